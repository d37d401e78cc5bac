# SPDX-License-Identifier: Apache-2.0
"""Locks output directories, records the files that commands write, and detects changed settings."""

from __future__ import annotations

import contextlib
import datetime
import fnmatch
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import IO, Any

from keras_bert import atomic
from keras_bert.vocabularies.tokenizer_settings import ALL_FILES

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# The lock file contains the process that writes to the directory. The record lists the names that
# each command has written there. It is not hidden, so that it is copied with the directory.
_LOCK_FILE, _RECORD_FILE = ".keras_bert.lock", "written_files.json"
# The settings of the run, so that an error can list the settings that differ
SETTINGS_FILE = "settings.json"
_OF_DIRECTORY = (_LOCK_FILE, _RECORD_FILE)
_ALL = "*"
_CHECKSUM = "checksum"
# Files that a resumed run continues with
_RESULTS = (
    "*/results.json",
    "grid/*/results.json",
    "run.json",
    "seed_*/run.json",
    "**/checkpoints/step_*[0-9]",
    "**/pretraining-*-of-*.tfrecord",
)
# Files that each command writes to its directory
_RUN = ("seed_[0-9]*", "results.json", "precision.json", "checkpoints", SETTINGS_FILE)
_WRITTEN = {
    "finetune": (
        *_RUN,
        *("run.json", "model.keras", "curves.png", "export", "predictions.tsv", "test_scores.json"),
        *("calibration.png",),
        *("dev.conll", "test.conll", "dev_scores.json", "predictions.json", "test"),
        *("nbest_predictions.json", "null_odds.json", "*.run", "held_out.qrels", "scores.json"),
        *("grid", "grid.json", "grid.md", "grid.png"),
    ),
    "pretrain": (
        *_RUN,
        *("vocab.txt", "tokenizer", "vocabulary.json", "records_[0-9]*", "dev_records_[0-9]*"),
        *("preset", "presets", "log.jsonl", "curves.png"),
    ),
    "finetune_glue": ("glue.json", "glue.md", "glue.png", "submission"),
    "ablation": ("ablation.json", "ablation.md", "ablation.png"),
    "create_pretraining_data": (
        *(".work", "summary.json", "lengths.png", "pretraining-*-of-*.tfrecord"),
    ),
    "tokenizer": ("config.json", *ALL_FILES),
    "quickstart": ("emoji.csv", "model.keras", "export"),
    # evaluate, insight and inspect
    "report": (
        *("report.html", "scores.json", "invalid_rows.txt", "index.html", "insight.json"),
        *("spans.html", "predictions.json", "nbest_predictions.json", "null_odds.json"),
        *(
            f"{figure}.png"
            for figure in (
                *("confusion", "calibration", "attention_*", "head_*", "layers", "attribution_*"),
                *("counterfactuals", "swap_directions", "error_rates", "crows_pairs", "winobias"),
                *("stereoset", "templates"),
            )
        ),
    ),
}
_locked: list[Path] = []


class DirectoryInUseError(OSError):
    """Raised if another process is writing to the directory."""


class NotFiniteError(ValueError):
    """Raised if a loss, weight or output is NaN or infinite, because the training has diverged."""


class SettingsMismatchError(ValueError):
    """Raised to keep existing results if the directory's run has different settings or data."""


@contextlib.contextmanager
def lock_output_dir(
    output_dir: str | os.PathLike[str],
    settings: Mapping[str, Any] | None = None,
    *,
    command: str = "",
    once: bool = False,
    flag: str = "output_dir",
) -> Iterator[Path]:
    """Creates a directory and locks it against other processes.

    The directory may contain other files. If a file has a name that the command writes, the command
    must have written it. The written names are recorded at the end. If the command is killed, the
    record covers all names that it may write.

    The operating system holds the lock, and releases it when the process exits for any reason. On
    Windows, the directory is not locked.

    Args:
        output_dir: The directory. It is created, with its parents, if it does not exist.
        settings: The options that affect the result of the run, as JSON values. If the directory
            contains a run with different settings, the error lists the differences. `None` for
            commands without such options.
        command: The command's name. The command must own the files that it replaces. Empty to skip
            this check.
        once: Whether the command must not replace its own files either, because they may be in use.
        flag: The flag that sets the directory, for error messages.

    Raises:
        FileExistsError: If the command would replace a file that it does not own.
        DirectoryInUseError: If another process holds the lock. The message identifies the process.
        OSError: If the directory cannot be created or written to.
    """
    path = Path(output_dir)
    resumes = command != "report"  # Reports are always created from scratch.
    if command:
        written = _read_record(path).get(command, ())
        names = sorted(os.listdir(path)) if path.is_dir() else []
        atomic.check_replaceable(
            [path / name for name in names if is_own(name, command) and name not in _OF_DIRECTORY],
            lambda file: file.name in written or _ALL in written,
            f"choose another --{flag}" if once else "",
            f"--{flag}",
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = open(  # noqa: SIM115
            path / _LOCK_FILE, "a+", encoding="utf-8", errors="surrogateescape"
        )
    except OSError as error:
        reason = f"{error.filename} is a file" if path.is_file() else error.strerror
        raise OSError(f"--{flag}={path} cannot be written to: {reason}") from error
    with lock:
        _lock(lock, path, f"--{flag}")
        if command:
            _record(path, command, [_ALL])
        for directory in (path, *path.glob("seed_*")):
            atomic.remove_abandoned(directory)
        file = path / SETTINGS_FILE
        if settings is not None and not (file.exists() and has_results(path)):
            atomic.write_json(file, settings)
        if resumes:
            _locked.append(path)
        try:
            yield path
        except SettingsMismatchError as error:
            # The same command would fail again, and the message already suggests a fix.
            if settings is not None:
                error.add_note(_differences(file, settings))
            raise
        except BaseException as error:
            if resumes and (has_results(path) or not isinstance(error, Exception)):
                error.add_note(resume_note(path))
            raise
        finally:
            if resumes:
                _locked.remove(path)
            if command:
                with contextlib.suppress(OSError):  # For example, when the disk is full.
                    _record(path, command, [n for n in os.listdir(path) if is_own(n, command)])


def check_same_settings(directory: Path, settings: Mapping[str, Any]) -> None:
    """Checks, before any data is read, that the run in a directory has the same options.

    Seeds may differ, as may options that one of the runs chooses from its data.

    Raises:
        SettingsMismatchError: If another option differs.
        ValueError: If the settings of the existing run cannot be read.
    """
    file = directory / SETTINGS_FILE
    if not (file.is_file() and has_results(directory)):
        return
    before, now = _read_settings(file), json.loads(json.dumps(settings))
    names = [name for name in now if None not in (before.get(name), now[name])]
    if any(before[name] != now[name] for name in names if name not in ("seed", "num_seeds")):
        raise SettingsMismatchError(
            f"{directory} contains a run with different settings. Choose another --output_dir, or "
            f"remove that directory ({_differences(file, settings)})"
        )


def is_own(name: str, command: str) -> bool:
    """Returns whether a command may write, replace and remove a file or directory by its name."""
    names = (*_WRITTEN[command], *_OF_DIRECTORY)
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in names)


@contextlib.contextmanager
def report_directories(config: Any) -> Iterator[None]:
    """Locks the report's directories, see `lock_output_dir`."""
    with contextlib.ExitStack() as stack:
        for flag in ("report_dir", "plots_dir"):
            if directory := getattr(config, flag, ""):
                stack.enter_context(lock_output_dir(directory, command="report", flag=flag))
        yield


def _read_record(directory: Path) -> dict[str, list[str]]:
    """Returns the names that each command has written to a directory."""
    try:
        record = json.loads((directory / _RECORD_FILE).read_text("utf-8"))
        return {command: [*map(str, names)] for command, names in record.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _record(directory: Path, command: str, names: Sequence[str]) -> None:
    """Records the names that a command has written to a directory."""
    record = _read_record(directory) | {command: sorted({*names} - {*_OF_DIRECTORY})}
    record = {command: names for command, names in record.items() if names}
    if not record:
        (directory / _RECORD_FILE).unlink(missing_ok=True)
        return
    with atomic.atomic_path(directory / _RECORD_FILE, sync=True) as temporary:
        temporary.write_text(json.dumps(record, indent=2) + "\n", "utf-8")


def _read_settings(file: Path) -> dict[str, Any]:
    """Reads a run's settings.

    Raises:
        ValueError: If the file does not contain a JSON object.
    """
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        settings = None
    if not isinstance(settings, dict):
        raise ValueError(f"{file} must contain a JSON object. Remove the file to continue")
    return settings


def _differences(file: Path, settings: Mapping[str, Any]) -> str:
    """Describes how the given settings differ from the settings in a file."""
    before = _read_settings(file)
    now = json.loads(json.dumps(settings))
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if not names:
        return "its options are the same, but the data or the backend differs"
    descriptions = (
        " ".join(f"--{name}={'' if values.get(name) is None else values[name]}" for name in names)
        for values in (before, now)
    )
    return "that run has {}, this run has {}".format(*descriptions)


def locked_directories() -> tuple[Path, ...]:
    """Returns the directories that this process has locked, outermost first."""
    return tuple(_locked)


def resume_note(directory: Path) -> str:
    """Returns a note on how to continue an interrupted run."""
    if has_results(directory):
        return f"the same command resumes from what {directory} contains"
    return f"{directory} contains no finished results yet"


def has_results(directory: Path) -> bool:
    """Returns whether a directory has a checkpoint, a finished run or seed, or records."""
    return any(any(directory.glob(pattern)) for pattern in _RESULTS)


def results_file(model: str | os.PathLike[str]) -> Path | None:
    """Returns the `results.json` of the run that wrote a model, or `None` if not found.

    The file is next to the model. For exports and models in `seed_*`, it is one directory up.
    """
    directory = Path(model).absolute().parent
    is_of_run = directory.name == "export" or directory.name.startswith("seed_")
    directories = (directory, directory.parent) if is_of_run else (directory,)
    paths = (directory / "results.json" for directory in directories)
    return next((path for path in paths if path.is_file()), None)


def load_results(model: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the content of `results_file`, or an empty dict if it cannot be read."""
    path = results_file(model)
    try:
        results = json.loads(path.read_text(encoding="utf-8")) if path else {}
    except (OSError, ValueError):
        return {}
    return results if isinstance(results, dict) else {}


def reads_pairs(models: Sequence[Path]) -> bool:
    """Returns whether the models were trained on text pairs, as far as is known."""
    return any(load_results(model).get("pairs") for model in models)


def check_pairs(models: Sequence[Path], text_pair: str, fields: Sequence[str] = ()) -> None:
    """Checks that `--text_pair` is given for models that require text pairs.

    Args:
        models: The paths of the models.
        text_pair: The value of `--text_pair`.
        fields: The model's required fields.

    Raises:
        ValueError: If it is missing.
    """
    if ("text_pair" in fields or reads_pairs(models)) and not text_pair:
        raise ValueError(
            f"--text_pair must be the column of the second text, because {models[0]} was trained "
            "on text pairs. Received: no --text_pair"
        )


def _lock(file: IO[str], directory: Path, flag: str) -> None:
    """Locks the file for this process, but not its children, and writes the process ID to it."""
    try:
        if fcntl is not None:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.seek(0)
        process = file.read().strip()
        raise DirectoryInUseError(
            f"{flag}={directory} is in use by {process or 'another process'}. Wait until it exits, "
            "or choose another directory"
        ) from error
    except OSError:
        pass  # The file system does not support locks.
    file.truncate(0)
    now = datetime.datetime.now().isoformat(" ", "seconds")
    command = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    file.write(f"process {os.getpid()} on {platform.node()}, since {now} ({command})\n")
    file.flush()


def fingerprint(settings: Mapping[str, Any], *contents: bytes) -> str:
    """Returns the SHA-256 of settings and inputs in hexadecimal."""
    content = json.dumps(settings, sort_keys=True).encode() + b"".join(contents)
    return hashlib.sha256(content).hexdigest()


def hash_directory(directory: str | os.PathLike[str]) -> bytes:
    """Returns a hash of the files in a directory, such as a preset, or `b""` if it has no files.

    Subdirectories are ignored.
    """
    return hash_files(sorted(path for path in Path(directory).glob("*") if path.is_file()))


def hash_files(paths: Sequence[Path]) -> bytes:
    """Returns a hash over names and contents of files, in this order, or `b""` for no files.

    Sizes and times would be faster to read, but different texts can have the same size and time. A
    core hashes about a gigabyte per second.
    """
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode("utf-8", "surrogateescape"))
        digest.update(bytes.fromhex(file_sha256(path)))
    return digest.digest() if paths else b""


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Returns a file's SHA-256 in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def with_checksum(values: Mapping[str, Any]) -> dict[str, Any]:
    """Adds a checksum to JSON values, for `read_checked`."""
    return {**values, _CHECKSUM: fingerprint(values)}


def read_checked(path: Path, names: Set[str]) -> dict[str, Any]:
    """Reads the JSON object that `with_checksum` returned.

    Raises:
        ValueError: If the file does not contain an object with these keys, or if the checksum
            differs.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(values, dict) or values.keys() != names | {_CHECKSUM}:
        raise ValueError(f"the keys of {path.name} are not {', '.join(sorted(names))}")
    if values.pop(_CHECKSUM) != fingerprint(values):
        raise ValueError(f"the checksum of {path.name} differs")
    return values


def check_same_start(directory: Path, flag: str, before: str, own: str) -> None:
    """Checks that the run in a directory started from the same files.

    An empty hash means that the files are unknown.

    Raises:
        SettingsMismatchError: If the files differ.
    """
    if before and own and before != own:
        raise SettingsMismatchError(
            f"{directory} contains a run that started from a --{flag} with different files. Choose "
            "another --output_dir, or remove that directory"
        )


def check_room(directory: Path, needed: int) -> None:
    """Checks that a disk has enough free space.

    Args:
        directory: Any directory on the disk.
        needed: The required space in bytes.

    Raises:
        OSError: If the disk has less free space.
    """
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(
            f"not enough disk space in {directory}: a model needs about {needed:,} bytes, but only "
            f"{free:,} are free"
        )

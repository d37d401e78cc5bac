# SPDX-License-Identifier: Apache-2.0
"""The models that `--model` names: one, or several that are an ensemble."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keras_bert.data.file_systems import find_files

from . import program

_WILDCARDS = "*?["
_SAVED = "the .keras file of a task"
_EXPORTED = "a folder written by export"


def model_files(model: str, *, exported: bool = False) -> list[Path]:
    """Returns the paths that `--model` names: one, or several for an ensemble.

    Args:
        model: A path; or several, separated by commas. Each may have wildcards: shells do not
            expand them in `--model=runs/*/model.keras`, and quotes keep zsh from refusing them.
        exported: Whether the path may be that of an exported SavedModel, if it is the only one.

    Raises:
        FileNotFoundError: If a path does not exist, or nothing matches one with wildcards.
        ValueError: If a path is not that of a model.
    """
    names = [model] if Path(model).exists() else model.split(",")
    files = []
    for name in names:
        paths = _named_by(name)
        if not paths:
            raise FileNotFoundError(f"--model={name} matches no file, expected .keras files")
        files += paths
    return [check_model(file, exported=exported and len(files) == 1) for file in files]


def exists(path: str) -> bool:
    """Returns whether a path exists, or something matches its wildcards."""
    return any(map(os.path.exists, _named_by(path)))


def _named_by(pattern: str) -> list[str]:
    """Returns a path; of wildcards, the files that match, and the exports whose folders do."""
    if Path(pattern).exists() or not any(mark in pattern for mark in _WILDCARDS):
        return [pattern]
    exports = [os.path.dirname(file.path) for file in find_files(f"{pattern}/saved_model.pb")]
    return [file.path for file in find_files(pattern)] + exports


def load_task(files: Sequence[Path]) -> Any:
    """Loads a model, or several as an ensemble, for prediction.

    Raises:
        ValueError: If a file is not a model, or the models cannot be averaged.
    """
    program.import_quietly()
    import keras_bert

    models = [keras_bert.load_model(file, compile=False) for file in files]
    if len(models) == 1:
        return models[0]
    try:
        return keras_bert.Ensemble(models)
    except (TypeError, ValueError) as error:
        members = ", ".join(f"members[{number}] {file}" for number, file in enumerate(files))
        raise ValueError(f"--model: {error} ({members})") from error


def check_model(path: str, *, exported: bool = False, flag: str = "model") -> Path:
    """Checks that a path is that of a trained model.

    Returns:
        The path: a folder with a `saved_model.pb`, or a file.

    Raises:
        FileNotFoundError: If it does not exist.
        ValueError: If it is empty, or a folder without such a model. The message names a model that
            is probably meant: of the versions of an export the newest, of a run its export or the
            model of its first seed.
    """
    kinds = f"{_EXPORTED} or {_SAVED}" if exported else _SAVED
    if not path:
        raise ValueError(f"no --{flag} is given, expected {kinds}")
    model = Path(path)
    if model.is_file() or (exported and is_export(model)):
        return model
    kind, problem = ValueError, "is a folder without a model"
    if not model.exists():
        kind, problem = FileNotFoundError, "does not exist"
    elif is_export(model):
        problem = "is an exported SavedModel"
    elif holds_exports(model):
        problem = "is a folder of exported versions"
    near = next(filter(None, _near(model, exported)), None)
    meant = "" if near is None else f"; did you mean --{flag}={near}?"
    raise kind(f"--{flag}={path} {problem}, expected {kinds}{meant}")


def is_export(path: Path) -> bool:
    """Returns whether a path is a folder with an exported SavedModel."""
    return (path / "saved_model.pb").is_file()


def holds_exports(folder: Path) -> bool:
    """Returns whether a path is a folder of exports, each in a folder named by its version."""
    return bool(_versions(folder))


def _versions(folder: Path) -> list[Path]:
    """Returns the exports in a folder that are named by a number, the newest first."""
    names = [path for path in folder.glob("[0-9]*") if path.name.isdecimal() and is_export(path)]
    return sorted(names, key=lambda path: int(path.name), reverse=True)


def _near(model: Path, exported: bool) -> Iterator[Path | None]:
    """Yields models in a folder, or in the run that the folder belongs to."""
    folders = [folder for folder in (model, *model.parents[:2]) if folder.is_dir()]
    for folder in folders:
        if exported:
            yield from (*_versions(folder), *_versions(folder / "export"))
        yield from sorted(folder.glob("seed_*/model.keras"))

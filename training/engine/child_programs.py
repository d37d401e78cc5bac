# SPDX-License-Identifier: Apache-2.0
"""The commands of this project's programs, and child processes that run each once."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

from keras_bert import atomic

from . import output_folder

# The name of this package: `training` in a checkout, another name in a wheel
_PACKAGE = __name__.partition(".")[0]
# Whether this process runs by the command `keras-bert`, not by `python -m`; set by `command_line`.
is_command = False


def typed(program: str) -> str:
    """Returns the command for a program: `keras-bert predict`, or `python -m training.predict`.

    Args:
        program: The name of its module in this package.
    """
    # The child process of an installed program runs by its module
    if is_command or _PACKAGE != "training":
        return f"keras-bert {program.replace('_', '-')}"
    return f"python -m {_PACKAGE}.{program}"


def command_record(command: Sequence[str], preset: str = "") -> dict[str, Any]:
    """Returns a record that identifies the settings of a run, written beside its results.

    Args:
        command: The program's module, as it is named in a checkout, and its flags.
        preset: The checkpoint that it starts from; if it is a folder, its files are hashed too.
    """
    content = output_folder.content_of_folder(preset) if preset else b""
    fingerprint = output_folder.fingerprint({"command": list(command)}, content)
    return {"command": list(command), "fingerprint": fingerprint}


def run_once(folder: Path, command: Sequence[str], preset: str = "") -> dict[str, Any]:
    """Runs a program of this project, unless its results exist.

    With another number of seeds, the program runs again, and trains only those that are missing.

    Args:
        folder: The program's `--output_dir`.
        command: The program's module and its other flags.
        preset: As for `command_record`.

    Returns:
        The content of the program's `results.json`.

    Raises:
        NotFiniteError: If the run diverged, now or before.
        ValueError: If the folder contains a run of other settings.
        subprocess.CalledProcessError: If the program fails.
    """
    results, record = folder / "results.json", folder / "command.json"
    expected = command_record(command, preset)
    recorded: dict[str, Any] = {}
    if record.exists():
        recorded = json.loads(record.read_text(encoding="utf-8"))
    before = recorded.get("command", ["settings that were not recorded"])
    is_same = recorded == expected
    adds_seeds = (
        not is_same
        and _without_seeds(before) == _without_seeds(command)
        and recorded == command_record(before, preset)
    )
    if (record.exists() or results.exists()) and not (is_same or adds_seeds):
        changed = sorted(set(before) - set(command)) or [f"other files in {preset}"]
        raise output_folder.OtherSettingsError(
            f"{folder} contains a run of other settings ({' '.join(changed)}); choose another "
            "--output_dir, or remove that folder"
        )
    if adds_seeds or not results.exists():
        name, own = command[0].removeprefix("training."), [*command[1:], f"--output_dir={folder}"]
        logging.info("%s: %s %s", folder.name, typed(name), shlex.join(own))
        folder.mkdir(parents=True, exist_ok=True)
        results.unlink(missing_ok=True)  # those of fewer seeds, before the record says otherwise
        atomic.write_json(record, expected)
        finished = subprocess.run([sys.executable, "-m", f"{_PACKAGE}.{name}", *own], check=False)
        if finished.returncode:
            _raise_if_diverged(folder)
            finished.check_returncode()
    _raise_if_diverged(folder)
    values: dict[str, Any] = json.loads(results.read_text(encoding="utf-8"))
    return values


def _raise_if_diverged(folder: Path) -> None:
    """Raises an error if the results in a folder are those of a run whose every seed diverged."""
    path = folder / "results.json"
    values = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if values.get("diverged") and not values["runs"]:
        raise output_folder.NotFiniteError(f"{folder}: {'; '.join(values['diverged'])}")


def _without_seeds(command: Sequence[str]) -> list[str]:
    return [flag for flag in command if not flag.startswith("--num_seeds=")]

# SPDX-License-Identifier: Apache-2.0
"""A grid of runs: each cell is a command of a program, which a child process runs once."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from absl import logging

from keras_bert import atomic
from keras_bert.progress import bar

from . import child_commands, interrupts, output_folder

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run of a program of this project.

    Args:
        folder: The program's `--output_dir`.
        command: The program's module, as it is named in a checkout, and its other flags.
        preset: The checkpoint that it starts from; if it is a folder, its files are hashed too.
    """

    folder: Path
    command: Sequence[str]
    preset: str = ""

    def __call__(self) -> dict[str, Any]:
        """Returns the content of the program's `results.json`; runs the program if there is none.

        With another number of seeds, the program runs again, and trains only those that are
        missing.

        Raises:
            NotFiniteError: If the run diverged, now or before.
            SettingsMismatchError: If the folder contains a run of other settings.
            subprocess.CalledProcessError: If the program fails.
        """
        folder, results, record = self.folder, self.folder / "results.json", self.record()
        file = folder / "command.json"
        previous_record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        before = previous_record.get("command", ["settings that were not recorded"])
        adds_seeds = (
            previous_record != record
            and _drop_seeds(before) == _drop_seeds(self.command)
            and previous_record == dataclasses.replace(self, command=before).record()
        )
        if (previous_record or results.exists()) and not (previous_record == record or adds_seeds):
            others = sorted(set(before) - set(self.command)) or [f"other files in {self.preset}"]
            raise output_folder.SettingsMismatchError(
                f"{folder} contains a run of other settings ({' '.join(others)}); choose another "
                "--output_dir, or remove that folder"
            )
        process = None
        if adds_seeds or not results.exists():
            module, *flags = *self.command, f"--output_dir={folder}"
            name = module.removeprefix("training.")
            logging.info(
                "%s: %s %s", folder.name, child_commands.command_name(name), shlex.join(flags)
            )
            folder.mkdir(parents=True, exist_ok=True)
            results.unlink(missing_ok=True)  # of fewer seeds, before the record says otherwise
            atomic.write_json(file, record)
            command = [sys.executable, "-m", f"{child_commands.PACKAGE}.{name}", *flags]
            process = run_child(command)
        values: dict[str, Any] = {}
        if results.exists():
            values = json.loads(results.read_text(encoding="utf-8"))
        if values.get("diverged") and not values["runs"]:
            raise output_folder.NotFiniteError(f"{folder}: {'; '.join(values['diverged'])}")
        if process is not None:
            process.check_returncode()
        return values

    def record(self) -> dict[str, Any]:
        """Returns what identifies the settings of the run, which is written beside its results."""
        content = output_folder.hash_directory(self.preset) if self.preset else b""
        fingerprint = output_folder.fingerprint({"command": list(self.command)}, content)
        return {"command": list(self.command), "fingerprint": fingerprint}


def run_child(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    """Runs a child process, which writes its checkpoint at Ctrl-C before this process ends.

    Raises:
        KeyboardInterrupt: After the child's end, if this process was interrupted or terminated.
    """
    with subprocess.Popen(command) as process:
        # Ctrl-C in a terminal reaches both processes, other signals only this one. The child
        # answers both signals once.
        forward = (lambda: None) if os.name == "nt" else process.terminate
        with interrupts.defer_interrupt(act=forward):
            process.wait()
    return subprocess.CompletedProcess(command, process.returncode)


def _drop_seeds(command: Sequence[str]) -> list[str]:
    return [flag for flag in command if not flag.startswith("--num_seeds=")]


def run_cells(cells: Mapping[Key, Callable[[], Result]]) -> dict[Key, Result]:
    """Runs the cells of a grid in their order, and shows the time left.

    A cell that fails ends the program: run again, it goes on with that cell.

    Args:
        cells: `Cell`s, or other functions that return the result of a run that is finished.

    Returns:
        The results without those of runs that diverged, which are logged.
    """
    results = {}
    # A line after each run that took some time
    options = {"lines": True, "mininterval": 1.0, "miniters": 1, "delay": 1.0, "leave": False}
    with bar("grid", len(cells), "runs", **options) as progress:
        for key, run in cells.items():
            try:
                results[key] = run()
            except output_folder.NotFiniteError as error:
                logging.error("%s: left out of the table", error)
            progress.update()
    return results

# SPDX-License-Identifier: Apache-2.0
"""Runs each command in a grid once, in a child process."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from absl import logging

from keras_bert import atomic
from keras_bert.intervals import mean_text
from keras_bert.progress import bar

from . import child_commands, interrupts, output_directory
from .run_report import duration

# The file in a run's directory with everything that the run has printed
OUTPUT_FILE = "output.log"
# Number of its last lines to show if the run fails
_LAST_LINES = 15

# Time to load the results of a finished run, at most
_SECONDS_TO_LOAD = 1.0

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run of one command. Its result is the content of `results.json`.

    Args:
        directory: The command's `--output_dir`.
        command: The name of the command's module in a checkout, followed by its other flags.
        preset: The checkpoint to start from. If it is a directory, the run is only reused for the
            same files.
        inputs: Hashes of other inputs by name, such as the data. The run is only reused for the
            same hashes.
    """

    directory: Path
    command: Sequence[str]
    preset: str = ""
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __call__(self) -> dict[str, Any]:
        """Runs the command unless it has finished before, and returns its `results.json`.

        If only the number of seeds differs, the command runs again and trains the missing seeds.
        Its output is appended to `output.log` in the directory, and a line with its scores is
        logged.

        Raises:
            NotFiniteError: If the run diverged, now or before.
            SettingsMismatchError: If the directory contains a run with different settings.
            subprocess.CalledProcessError: If the command fails.
        """
        directory, results, record = self.directory, self.directory / "results.json", self.record()
        file = directory / "command.json"
        previous_record = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        before = previous_record.get("command", ["unrecorded settings"])
        adds_seeds = (
            previous_record != record
            and _drop_seeds(before) == _drop_seeds(self.command)
            and previous_record == dataclasses.replace(self, command=before).record()
        )
        if (previous_record or results.exists()) and not (previous_record == record or adds_seeds):
            inputs = previous_record.get("inputs", {}).items() ^ record["inputs"].items()
            others = sorted(set(before) ^ set(self.command))
            others += sorted({f"other {name}" for name, _ in inputs if not others})
            raise output_directory.SettingsMismatchError(
                f"{directory} contains a run with different settings ({' '.join(others)}). Choose "
                "another --output_dir, or remove that directory"
            )
        process = None
        if adds_seeds or not results.exists():
            name = self.command[0].removeprefix("training.")
            flags = [*self.command[1:], f"--output_dir={directory}"]
            module = ("-m", f"{child_commands.PACKAGE}.{name}")
            directory.mkdir(parents=True, exist_ok=True)
            # Remove the results for fewer seeds before the record changes.
            results.unlink(missing_ok=True)
            atomic.write_json(file, record)
            output = directory / OUTPUT_FILE
            with open(output, "a", encoding="utf-8") as file:
                print("$", shlex.join(["python", *module, *flags]), file=file)
            start = time.monotonic()
            process = run_child([sys.executable, *module, *flags], output)
            seconds = time.monotonic() - start
        values: dict[str, Any] = {}
        if results.exists():
            values = json.loads(results.read_text(encoding="utf-8"))
        if values.get("diverged") and not values["runs"]:
            raise output_directory.NotFiniteError(f"{directory}: {'; '.join(values['diverged'])}")
        if process is not None:
            if process.returncode:
                _log_last_lines(output)
            process.check_returncode()
            scores = ", ".join([*_scores(values), duration(seconds)])
            logging.info("%s: %s", directory.name, scores)
        return values

    def record(self) -> dict[str, Any]:
        """Returns the settings that identify the run. They are written next to its results."""
        files = output_directory.hash_directory(self.preset).hex() if self.preset else ""
        inputs = {f"files in {self.preset}": files} if files else {}
        return {"command": list(self.command), "inputs": {**self.inputs, **inputs}}


def run_child(command: Sequence[str], output: Path) -> subprocess.CompletedProcess[bytes]:
    """Runs a child process, and lets it write its checkpoint if this process is interrupted.

    Args:
        command: The command line.
        output: The file to which the child's standard output and standard error are appended.

    Raises:
        KeyboardInterrupt: After the child has stopped, if this process was interrupted or
            terminated.
    """
    with (
        open(output, "ab") as file,
        subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process,
    ):

        def forward() -> None:
            interrupts.announce()
            # Ctrl-C in a terminal reaches both processes, but other signals only reach this
            # process. The child handles both signals once.
            if os.name != "nt":
                process.terminate()

        with interrupts.defer_interrupt(act=forward):
            process.wait()
    return subprocess.CompletedProcess(command, process.returncode)


def _log_last_lines(output: Path) -> None:
    with open(output, encoding="utf-8", errors="replace") as file:
        lines = "".join(deque(file, _LAST_LINES)).rstrip()
    logging.error("a run has failed. The last lines of %s:\n%s", output, lines)


def _scores(results: Mapping[str, Any]) -> list[str]:
    """Returns the mean scores on a run's first validation set, or the validation perplexity."""
    if results.get("summary"):
        scores = next(iter(results["summary"].values()))
        means = ", ".join(f"{name} {mean_text(value['seeds'])}" for name, value in scores.items())
        return [f"{means} after the last epoch"]
    last = results.get("last", {})
    return [f"perplexity {last['val_perplexity']:.1f}"] if "val_perplexity" in last else []


def _drop_seeds(command: Sequence[str]) -> list[str]:
    return [flag for flag in command if not flag.startswith("--num_seeds=")]


def run_cells(cells: Mapping[Key, Callable[[], Result]]) -> dict[Key, Result]:
    """Runs a grid's cells in order, and shows the remaining time.

    If a cell fails, the command stops. When it is run again, it continues with that cell.

    Args:
        cells: `Cell`s, or other functions that return a finished run's result.

    Returns:
        The results by key, without runs that diverged. Their errors are logged.
    """
    results = {}
    # Print a line after each run that takes more than a second. Faster runs were finished before,
    # so they do not count in the estimate of the remaining time.
    options = {"lines": True, "mininterval": 1.0, "miniters": 1, "delay": 1.0, "leave": False}
    with bar("grid", len(cells), "runs", **options) as progress:
        for key, run in cells.items():
            start = time.perf_counter()
            try:
                results[key] = run()
            except output_directory.NotFiniteError as error:
                logging.error("%s. The other runs continue", error)
            if time.perf_counter() - start < _SECONDS_TO_LOAD:
                progress.initial += 1
            progress.update()
    return results

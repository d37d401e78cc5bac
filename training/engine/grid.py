# SPDX-License-Identifier: Apache-2.0
"""A grid of runs: each cell is a command with its settings, which is run once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from absl import logging

from keras_bert.progress import bar

from .child_programs import run_once
from .output_folder import NotFiniteError

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Cell:
    """A run of a program of this project, in a child process.

    Args:
        folder: The program's `--output_dir`.
        command: The program's module and its other flags.
        preset: As for `child_programs.command_record`.
    """

    folder: Path
    command: Sequence[str]
    preset: str = ""

    def __call__(self) -> dict[str, Any]:
        """Returns the content of the program's `results.json`; runs it if there is none."""
        return run_once(self.folder, self.command, self.preset)


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
    with bar("grid", len(cells), "runs", **options) as shown:
        for key, run in cells.items():
            try:
                results[key] = run()
            except NotFiniteError as error:
                logging.error("%s: left out of the table", error)
            shown.update()
    return results


def seed_scores(results: Mapping[str, Any], metric: str) -> list[float]:
    """Returns the score of each seed in the results of a fine-tuning run.

    Args:
        results: The content of its `results.json`, with one development set.
        metric: The metric.
    """
    (by_metric,) = results["summary"].values()
    seeds: list[float] = by_metric[metric]["seeds"]
    return seeds

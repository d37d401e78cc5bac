# SPDX-License-Identifier: Apache-2.0
"""All of GLUE: every task over a grid of rates and seeds, one table, and the files to submit.

    python -m training.finetune_glue --recipe=bert_glue --data_dir=glue

Each task is fine-tuned with every rate, batch size and seed; the dev set decides which of these
runs answers the test file, as in the paper, whose rates are the defaults. Each run is a program of
its own, and what is done is not done again: stopped and started with the same command, it goes on.

It writes into `output_dir`: a folder for each run, `submission/*.tsv` in the official form where
there are test files (MNLI answers the diagnostic set too), `glue.json`, `glue.md` and `glue.png`.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from training.engine import output_folder, program
from training.engine.config_flags import configuration, define_program_flags
from training.jobs.glue_grid import FinetuneGlueConfig
from training.readers.glue import TASKS, GlueTask, find_task, read_diagnostic, read_split

_SUBMISSION_NAMES = {"test_matched": "MNLI-m", "test_mismatched": "MNLI-mm"}
_LARGEST_SCORE = 5.0  # of STS-B


@dataclasses.dataclass(frozen=True)
class TaskResult:
    """What came of a task.

    Args:
        metrics: the official metrics.
        seeds: their scores with the best setting, by dev set and metric, a seed each.
        best_setting: its learning rate and batch size.
        best_score: the mean of the metrics of the best run of all.
        model_path: that run's model.
    """

    metrics: tuple[str, ...]
    seeds: dict[str, dict[str, list[float]]]
    best_setting: tuple[str, str]
    best_score: float
    model_path: str


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    config = configuration(FinetuneGlueConfig)
    program.require(program.TRAINING_LIBRARIES, "training")
    with output_folder.claimed(config.output_dir):
        results = finetune_glue(config)
    print(format_table(results))


def finetune_glue(config: FinetuneGlueConfig) -> dict[str, TaskResult]:
    """Runs what is missing, and writes what came of it.

    Raises:
        ValueError: if there is no such task, or none in the folder.
        subprocess.CalledProcessError: if a run fails.
    """
    folder = Path(config.output_dir)
    results = {}
    for task in _tasks(config):
        results[task.name] = _select(config, task)
        write_submission(config, task, results[task.name], folder / "submission")
    output_folder.write_text(
        folder / "glue.json",
        json.dumps({name: dataclasses.asdict(r) for name, r in results.items()}, indent=2) + "\n",
    )
    output_folder.write_text(folder / "glue.md", format_table(results) + "\n")
    plot(results, folder / "glue.png")
    return results


def _tasks(config: FinetuneGlueConfig) -> list[GlueTask]:
    if config.tasks != ("all",):
        return [find_task(name) for name in config.tasks]
    present = [task for task in TASKS.values() if (Path(config.data_dir) / task.folder).is_dir()]
    missing = [task.folder for task in TASKS.values() if task not in present]
    if not present:
        raise ValueError(f"{config.data_dir} has none of GLUE's folders: {', '.join(missing)}")
    if missing:
        logging.warning("%s has no %s", config.data_dir, ", ".join(missing))
    return present


def _select(config: FinetuneGlueConfig, task: GlueTask) -> TaskResult:
    """The setting and the run that are best on the dev set."""
    candidates = []
    for setting in config.settings():
        results = _results(config, task, setting)
        seeds = {
            dev: {metric: scores[metric]["seeds"] for metric in task.metrics}
            for dev, scores in results["summary"].items()
        }
        best = max(results["runs"], key=_selection_score)
        candidates.append((_mean(next(iter(seeds.values()))), setting, seeds, best))
    # The best setting by its seeds' mean, the best run of all for the answers
    _, setting, seeds, _ = max(candidates, key=lambda candidate: candidate[0])
    best = max((candidate[3] for candidate in candidates), key=_selection_score)
    return TaskResult(task.metrics, seeds, setting, _selection_score(best), best["model_path"])


def _mean(by_metric: dict[str, list[float]]) -> float:
    """The mean of the metrics and the seeds."""
    return float(np.mean(list(by_metric.values())))


def _selection_score(run: dict[str, Any]) -> float:
    from training.scores import classifier_scores

    return classifier_scores.selection_score(next(iter(run["best"].values())))


def _results(
    config: FinetuneGlueConfig, task: GlueTask, setting: tuple[str, str]
) -> dict[str, Any]:
    learning_rate, batch_size = setting
    command = [
        *("training.finetune", "--noexport"),
        f"--task={task.name}",
        f"--data_dir={config.data_dir}",
        f"--preset={config.preset}",
        f"--learning_rate={learning_rate}",
        f"--batch_size={batch_size}",
        f"--num_seeds={config.num_seeds}",
        f"--epochs={config.task_epochs(task.name)}",
        f"--warmup={config.warmup}",
        f"--weight_decay={config.weight_decay}",
        f"--layer_decay={config.layer_decay}",
        f"--sequence_length={config.sequence_length}",
        f"--train_rows={config.train_rows}",
        f"--precision={config.precision}",
    ]
    folder = Path(config.output_dir) / f"{task.name}_{learning_rate}_{batch_size}"
    return program.run_once(folder, command, config.preset)


def write_submission(
    config: FinetuneGlueConfig, task: GlueTask, result: TaskResult, folder: Path
) -> list[Path]:
    """Answers the test files that are there, in the official form: index and prediction.

    Returns:
        The files.
    """
    sets = {}
    for split in task.test_splits:
        try:
            data = read_split(config.data_dir, task, split)
        except FileNotFoundError:
            logging.warning("%s has no %s.tsv to answer", task.folder, split)
            continue
        if data.skipped:
            raise ValueError(f"{data.path}: {data.skipped} rows are malformed, so it has no answer")
        sets[_SUBMISSION_NAMES.get(split, task.folder)] = data
    diagnostic = read_diagnostic(config.data_dir) if task.name == "mnli" else None
    if diagnostic is not None:
        sets["AX"] = diagnostic
    if not sets:
        return []
    from keras_bert import load_model
    from training.engine import finetuning

    classifier = load_model(result.model_path)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, data in sets.items():
        answers = finetuning.answers(classifier, data)
        paths.append(folder / f"{name}.tsv")
        _write_answers(paths[-1], task, answers)
    return paths


def _write_answers(path: Path, task: GlueTask, answers: Sequence[Any]) -> None:
    if task.file_labels is None:
        words = [f"{min(max(float(answer), 0.0), _LARGEST_SCORE):.3f}" for answer in answers]
    else:
        words = [task.file_labels[int(answer)] for answer in answers]
    partial = path.with_name(path.name + ".partial")
    with open(partial, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("index", "prediction"))
        writer.writerows(enumerate(words))
    os.replace(partial, path)


def format_table(results: dict[str, TaskResult]) -> str:
    """A Markdown table: each metric's mean, spread and best over the seeds, and the average."""
    from training.scores import classifier_scores

    lines = [
        "| task | metric | mean | 95 % ± | best | rate, batch |",
        "|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        for dev, by_metric in result.seeds.items():
            title = TASKS[name].folder + dev.removeprefix("dev").replace("_", ", ")
            for metric, values in by_metric.items():
                mean, half_width = classifier_scores.summarise(values)
                spread = "" if len(values) == 1 else f"{half_width:.1f}"
                cells = [title, metric, f"{mean:.1f}", spread, f"{max(values):.1f}"]
                lines.append(f"| {' | '.join([*cells, ', '.join(result.best_setting)])} |")
    # As GLUE's own: the mean over a task's development sets counts once
    average = np.mean(
        [
            np.mean([_mean(of_dev) for of_dev in result.seeds.values()])
            for result in results.values()
        ]
    )
    lines.append(f"| average of {len(results)} | | {average:.1f} | | | |")
    return "\n".join(lines)


def plot(results: dict[str, TaskResult], path: Path) -> None:
    """Draws each task's seeds as dots over the bar of their mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 + 0.8 * len(results), 3.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for place, result in enumerate(results.values()):
        values = np.mean([list(of_dev.values()) for of_dev in result.seeds.values()], axis=(0, 1))
        axes.bar(place, values.mean(), width=0.6, color="#9fc0e0")
        axes.plot([place] * len(values), values, "o", color="#0b5394", markersize=4)
        axes.annotate(f"{values.mean():.1f}", (place, 2), ha="center", fontsize=8)
    axes.set_xticks(range(len(results)), [TASKS[name].folder for name in results], fontsize=8)
    axes.set_ylabel("dev score, mean of the metrics", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    figure.savefig(partial, format="png")
    os.replace(partial, path)


if __name__ == "__main__":
    define_program_flags(FinetuneGlueConfig())
    program.run(main)

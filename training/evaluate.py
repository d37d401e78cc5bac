# SPDX-License-Identifier: Apache-2.0
"""Scores a saved model, or a file of predictions, on a labeled file with the official metrics.

    python -m training.evaluate --data_file=dev.tsv --text=review --label=stars \\
        --model=runs/reviews/seed_1/model.keras --report_dir=report
    python -m training.evaluate --data_file=dev-v1.1.json \\
        --model='runs/squad/seed_*/model.keras'
    python -m training.evaluate --data_file=dev-v1.1.json --predictions=predictions.json
    python -m training.evaluate --data_file=dev.conll --predictions=predicted.conll

The model determines the type of data. With --predictions, it is inferred from the file, as in
`finetune`, or given by --kind: `text` (texts and labels in TSV, CSV, JSON Lines or a JSON array),
`squad` (SQuAD's JSON, tables with its columns, TriviaQA), `tagging` (CoNLL columns) or
`multiple_choice` (SWAG's CSV, CODAH's TSV, JSON Lines, Parquet).

Predictions are read from the files that other commands write: `predictions.tsv`, the JSON Lines
of `predict` (`.jsonl`), `predictions.json`, or CoNLL columns with the predictions last. Predictions
for texts and choices are matched by `id` if both files have IDs, and by their order otherwise.

Multiple models are scored individually and as an ensemble that averages their predictions. The
output contains the ensemble's scores, each model's scores, and the mean of the models' scores with
the half-width of its 95% confidence interval.

With --report_dir, report.html shows where the model fails: scores next to a baseline, by class and
by length, and the most confident mistakes with their text.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_bert import atomic
from keras_bert.intervals import mean_and_interval

from .engine import output_directory, program, saved_models
from .engine.job import Job
from .jobs.report_configs import EvaluateConfig, check_flags_of_kind
from .jobs.tasks import jobs_by_kind, jobs_by_predict_method
from .plots import page
from .readers.data_files import exists
from .readers.task_files import data_kind, task_of_file

_REPORT = "report.html"


def main(config: EvaluateConfig) -> None:
    print(json.dumps(_rounded(evaluate(config)), indent=2))
    if config.report_dir:
        print(f"report: {Path(config.report_dir, _REPORT)}", file=sys.stderr)


def _rounded(scores: Any) -> Any:
    """Rounds scores to six decimals, so that 80.80000000000001 becomes 80.8."""
    if isinstance(scores, dict):
        return {name: _rounded(value) for name, value in scores.items()}
    if isinstance(scores, list):
        return list(map(_rounded, scores))
    return round(scores, 6) if isinstance(scores, float) else scores


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Returns the scores by metric. For an ensemble, also returns the scores of its members.

    Raises:
        FileNotFoundError: If a file does not exist.
        ValueError: If a file is invalid, or if predictions and labels do not match.
    """
    if bool(config.model) == bool(config.predictions):
        raise ValueError("pass either --model or --predictions, but not both")
    files = saved_models.model_files(config.model) if config.model else []
    for path in (config.data_file, config.predictions):
        is_there = exists if path == config.data_file else Path.is_file
        if path and not is_there(Path(path)):
            raise FileNotFoundError(f"{path} does not exist")
    if not config.data_file:
        raise ValueError("--data_file must be a labeled file. Received: no --data_file")
    with output_directory.report_directories(config):
        return _evaluate(config, files)


def _evaluate(config: EvaluateConfig, files: Sequence[Path]) -> dict[str, Any]:
    model = saved_models.load_task(files) if files else None
    job = _job_of_file(config) if model is None else _job_of_model(model, config)
    has_plots = job.predict_method == "classify" or (
        job.predict_method == "answer" and config.model
    )
    if config.plots_dir and not has_plots:
        raise ValueError(
            "--plots_dir is only supported for text classification, and for question answering "
            "with --model"
        )
    if config.report_dir or job.predict_method in ("classify", "choose"):
        program.require(program.TRAINING_LIBRARIES, "training")
    evaluation = job.evaluate(config, model)
    if evaluation.table:
        print(evaluation.table)
    scores = evaluation.scores
    if len(files) > 1:
        scores = _add_member_scores(evaluation.scores, job, config, model, files)
    if config.report_dir:
        directory = Path(config.report_dir)
        title = f"{config.model or config.predictions} on {config.data_file}"
        page.write_page(directory / _REPORT, title, evaluation.sections())
        atomic.write_json(directory / "scores.json", scores)
    return scores


def _add_member_scores(
    scores: dict[str, float],
    job: type[Job],
    config: EvaluateConfig,
    ensemble: Any,
    files: Sequence[Path],
) -> dict[str, Any]:
    """Adds the scores of each model in an ensemble, and their means with intervals."""
    config = dataclasses.replace(config, plots_dir="")
    members = {
        str(file): job.evaluate(dataclasses.replace(config, model=str(file)), member).scores
        for file, member in zip(files, ensemble.members, strict=True)
    }
    means = {name: mean_and_interval([of[name] for of in members.values()]) for name in scores}
    return {
        "ensemble": scores,
        "mean": {name: mean for name, (mean, _) in means.items()},
        "interval_95": {name: half_width for name, (_, half_width) in means.items()},
        "models": members,
    }


def _job_of_file(config: EvaluateConfig) -> type[Job]:
    """Returns the job that scores a file of predictions, by the type of data."""
    kind = config.kind
    if kind == "auto":
        path = Path(config.data_file)
        task = task_of_file(path, config.format, flag="--kind", encoding=config.encoding)
        kind = data_kind(task.name)
    check_flags_of_kind(config, kind, config.data_file)
    return jobs_by_kind()[kind]


def _job_of_model(model: Any, config: EvaluateConfig) -> type[Job]:
    """Returns the job that scores a model, by its prediction method.

    Raises:
        ValueError: If the model does not match --kind, or does not predict labels.
    """
    jobs = jobs_by_predict_method()
    name = f"{config.model} is a {type(model).__name__}"
    job = jobs.get(getattr(model, "predict_method", ""))
    if job is None:
        raise ValueError(f"{name}, but it must be a task that can {', '.join(jobs)}")
    kind = next(kind for kind, its in jobs_by_kind().items() if its is job)
    if config.kind not in ("auto", kind):
        raise ValueError(f"{name}, so --kind must be {kind}. Received: {config.kind}")
    check_flags_of_kind(config, kind, config.data_file)
    return job


if __name__ == "__main__":
    program.run(main, EvaluateConfig)

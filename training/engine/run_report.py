# SPDX-License-Identifier: Apache-2.0
"""Formats a run's final report with scores, baselines, times and files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_bert.tables import replace_underscores, table_from_records, text_table

from ..costs import run_cost
from . import example_request

_PARTS = {
    "reading": "reading the data",
    "building": "loading the checkpoint",
    "training": "training",
    "scoring": "scoring the development set and saving",
    "answers": "writing the predictions",
    "export": "the export",
}


@contextlib.contextmanager
def timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    """Measures the duration of the block and stores it in `seconds`."""
    start = time.perf_counter()
    yield
    seconds[part] = time.perf_counter() - start


def report(
    results: Mapping[str, Any],
    seconds: Mapping[str, float] | None = None,
    example_input: str = "",
    fields: tuple[str, ...] = ("text",),
) -> str:
    """Formats a fine-tuning run's report."""
    best_run, config = results["kept"], results["config"]
    scores = best_run["scores"]
    # Scores on the validation set are too high, because they were used to select the epoch.
    final = {"test": scores["test"]} if "test" in scores else scores
    directory = Path(config["output_dir"])
    best = directory / f"seed_{best_run['seed']}"
    is_only_seed = len(results["runs"]) == 1 and not results.get("diverged")
    seed_text = "" if is_only_seed else f"seed {best_run['seed']}, "
    selected_by = best_run["by"]
    if selected_by not in final:
        each = ", ".join(f"{name} {value:.2f}" for name, value in scores[selected_by].items())
        selected_by += f" ({each})"
    blocks = [
        f"Best model: {seed_text}epoch {best_run['epoch']} of {best_run['epochs']}, selected on "
        f"{selected_by}"
    ]
    for name, model_scores in final.items():
        records = {
            "this model": model_scores,
            **replace_underscores(results["baselines"].get(name, {})),
        }
        blocks.append(text_table(*table_from_records(part_title(name), records)))
    name, model_scores = next(iter(final.items()))
    baselines = results["baselines"].get(name, {})
    if len(results["runs"]) > 1:
        blocks.append(_seed_summary(results["summary"], len(results["runs"])))
    if results.get("by_class"):
        title = f"{part_title(name)}, by class"
        blocks.append(text_table(*table_from_records(title, results["by_class"])))
    if results.get("class_of_f1"):
        blocks.append(f"The overall f1 is the f1 of the class {results['class_of_f1']}.")
    blocks.append(_calibration(results.get("calibration", {}), directory))
    if results.get("diverged"):
        blocks.append("\n".join(["Not in these scores:", *results["diverged"]]))
    times = {**(seconds or {}), **results["seconds"]}
    compared = margin(model_scores, baselines)
    cost = run_cost.describe(results.get("cost", {}), compared[1] if compared else None)
    blocks.append("\n".join(filter(None, (_times(times), cost))))
    files = {
        "model": best / "model.keras",
        "curves": best / "curves.png",
        "results": directory / "results.json",
        "answers": directory / "predictions.tsv" if config.get("test_file") else None,
        "export": directory / "export" / "1" if config.get("export") else None,
    }
    present = {name: path for name, path in files.items() if path is not None and path.exists()}
    notes = {"model": " (includes the optimizer's state, to continue training)"}
    lines = [f"{name:8} {path}{notes.get(name, '')}" for name, path in present.items()]
    blocks.append("\n".join(lines))
    blocks.append(verdict(name, model_scores, baselines))
    if example_input:
        if results.get("pairs"):
            example_input, fields = "pairs.csv", ("text", "text_pair")
        model = present.get("export", present.get("model"))
        blocks.append(
            example_request.next_commands(f"{model}", example_input, fields, results.get("example"))
        )
    return "\n" + "\n\n".join(filter(None, blocks))


def part_title(name: str) -> str:
    """Returns the title for the scores on a data set, such as `dev (validation)`."""
    return name if name == "test" else f"{name} (validation)"


def margin(
    scores: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]
) -> tuple[str, float] | None:
    """Returns the best baseline and the model's lead over it in points, by the first metric.

    Returns `None` without baselines.
    """
    metric, score = next(iter(scores.items()))
    baseline_scores = {name: row[metric] for name, row in baselines.items() if metric in row}
    if not baseline_scores:
        return None
    best = max(baseline_scores, key=baseline_scores.__getitem__)
    return best, score - baseline_scores[best]


def verdict(
    part: str, scores: Mapping[str, float], baselines: Mapping[str, Mapping[str, float]]
) -> str:
    """Returns a sentence on whether a model beats the best baseline, or `""` without baselines.

    Example:

    >>> print(verdict("test", {"accuracy": 81.5}, {"bag_of_words": {"accuracy": 78.0}}))
    The model beats the best baseline on test: accuracy 81.50, bag of words 78.00 (+3.50).
    """
    compared = margin(scores, baselines)
    if compared is None:
        return ""
    (metric, score), (name, points) = next(iter(scores.items())), compared
    numbers = f"{metric} {score:.2f}, {name.replace('_', ' ')} {score - points:.2f} ({points:+.2f})"
    if points > 0:
        return f"The model beats the best baseline on {part}: {numbers}."
    return (
        f"The model does not beat the best baseline on {part}: {numbers}. The baseline is the "
        "cheaper choice until more data, more epochs or another checkpoint help."
    )


def _seed_summary(summary: Mapping[str, Mapping[str, Any]], count: int) -> str:
    lines = [f"Scores after the last epoch, mean of {count} seeds and 95% confidence interval:"]
    for dev, by_metric in summary.items():
        for metric, values in by_metric.items():
            lines.append(f"  {dev} {metric} {values['mean']:.2f} ± {values['interval_95']:.2f}")
    return "\n".join(lines)


def _calibration(calibration: Mapping[str, Any], directory: Path) -> str:
    """Returns a sentence on the calibration, or `""` without one."""
    if not calibration:
        return ""
    error = (
        f"Expected calibration error on {part_title(calibration['data'])}: "
        f"{calibration['ece']:.1f}%"
    )
    if "temperature" not in calibration:
        return f"{error}. The probabilities are not calibrated: {calibration['none_because']}"
    return (
        f"{error}, before calibration {calibration['ece_before']:.1f}% (temperature "
        f"{calibration['temperature']:.2f}). See {directory / 'calibration.png'}"
    )


def _times(seconds: Mapping[str, float]) -> str:
    total = sum(seconds.values())
    slowest = max(seconds, key=seconds.__getitem__)
    return (
        f"Time: {duration(total)}. The slowest part was {_PARTS.get(slowest, slowest)}: "
        f"{duration(seconds[slowest])}"
    )


def duration(seconds: float) -> str:
    """Formats a duration, for example `4.2 s`, `3 min 20 s` or `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"

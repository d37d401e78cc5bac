# SPDX-License-Identifier: Apache-2.0
"""The report at the end of a run: scores, baselines, times and files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_bert.tables import of_records, text_table, with_spaces

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
    """Sets the duration of a part of a run, the block."""
    start = time.perf_counter()
    yield
    seconds[part] = time.perf_counter() - start


def report(
    results: Mapping[str, Any],
    seconds: Mapping[str, float] | None = None,
    example_input: str = "",
    fields: tuple[str, ...] = ("text",),
) -> str:
    """Formats the report of a fine-tuning run."""
    best_run, config = results["kept"], results["config"]
    folder = Path(config["output_dir"])
    best = folder / f"seed_{best_run['seed']}"
    is_only_seed = len(results["runs"]) == 1 and not results.get("diverged")
    of_seeds = "" if is_only_seed else f"seed {best_run['seed']}, "
    blocks = [
        f"Best model: {of_seeds}epoch {best_run['epoch']} of {best_run['epochs']}, selected on "
        f"{best_run['by']}"
    ]
    for name, scores in best_run["scores"].items():
        baselines = results["baselines"].get(name, {})
        records = {"this model": scores, **with_spaces(baselines)}
        blocks.append(text_table(*of_records(name, records)))
    points = _points_over_baselines(results)
    if points is not None and points <= 0:
        blocks.append(
            f"A baseline is as good as this model on {best_run['by']}, or better: more data, more "
            "epochs or another checkpoint may help; the baseline is the cheaper choice until then."
        )
    if len(results["runs"]) > 1:
        blocks.append(_of_seeds(results["summary"], len(results["runs"])))
    if results.get("by_class"):
        blocks.append(text_table(*of_records(f"{best_run['by']}, by class", results["by_class"])))
    if results.get("class_of_f1"):
        blocks.append(f"The f1 of all rows is that of the class {results['class_of_f1']}.")
    if results.get("diverged"):
        blocks.append("\n".join(["Not in these scores:", *results["diverged"]]))
    times = {**(seconds or {}), **results["seconds"]}
    cost = run_cost.describe(results.get("cost", {}), points)
    blocks.append("\n".join(filter(None, (_times(times), cost))))
    files = {
        "model": best / "model.keras",
        "curves": best / "curves.png",
        "results": folder / "results.json",
        "answers": folder / "answers.tsv" if config.get("test_file") else None,
        "export": folder / "export" / "1" if config.get("export") else None,
    }
    present = {name: path for name, path in files.items() if path is not None and path.exists()}
    blocks.append("\n".join(f"{name:8} {path}" for name, path in present.items()))
    if example_input:
        if results.get("pairs"):
            example_input, fields = "pairs.csv", ("text", "text_pair")
        model = present.get("export", present.get("model"))
        blocks.append(
            example_request.next_commands(f"{model}", example_input, fields, results.get("example"))
        )
    return "\n" + "\n\n".join(blocks)


def _points_over_baselines(results: Mapping[str, Any]) -> float | None:
    """Returns by how much the best epoch's first score is above the best baseline's."""
    name = results["kept"]["by"]
    metric, score = next(iter(results["kept"]["scores"][name].items()))
    rows = results["baselines"].get(name, {}).values()
    scores = [row[metric] for row in rows if metric in row]
    return score - max(scores) if scores else None


def _of_seeds(summary: Mapping[str, Mapping[str, Any]], count: int) -> str:
    lines = [f"Scores after the last epoch, mean of {count} seeds and 95 % interval:"]
    for dev, by_metric in summary.items():
        for metric, values in by_metric.items():
            lines.append(f"  {dev} {metric} {values['mean']:.2f} ± {values['interval_95']:.2f}")
    return "\n".join(lines)


def _times(seconds: Mapping[str, float]) -> str:
    total = sum(seconds.values())
    slowest = max(seconds, key=seconds.__getitem__)
    return (
        f"Time: {duration(total)}; the slowest part was {_PARTS.get(slowest, slowest)}: "
        f"{duration(seconds[slowest])}"
    )


def duration(seconds: float) -> str:
    """Formats a duration: `4.2 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"

# SPDX-License-Identifier: Apache-2.0
"""What a pre-training run prints: a line for each interval, and the report at the end."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_bert.tables import of_records, text_table

from ..costs import run_cost
from ..engine import child_programs, run_report

# The metrics of a record that are printed, with their formats; the record has more.
_SHOWN = {
    "loss": "{:.4g}",
    "masked_accuracy": "{:.1%}",
    "perplexity": "{:.4g}",
    "pair_accuracy": "{:.1%}",
    "discriminator_accuracy": "{:.1%}",
}


def metrics_line(record: Mapping[str, float]) -> str:
    """Formats the metrics of an interval, those of a unigram model beside the model's own.

    Args:
        record: A record of `log.jsonl`.

    Example:

    >>> metrics_line({"loss": 5.0, "masked_accuracy": 0.2, "unigram_accuracy": 0.06})
    'loss 5, masked accuracy 20.0% (unigram 6.0%)'
    """
    words = []
    for prefix, text in (("", ""), ("val_", "validation ")):
        for name, form in _SHOWN.items():
            value = record.get(prefix + name)
            if value is None:
                continue
            unigram = record.get(f"unigram_{name.removeprefix('masked_')}")
            # Once is enough: the baseline is that of the training text.
            beside = "" if prefix or unigram is None else f" (unigram {form.format(unigram)})"
            words.append(f"{text}{name.replace('_', ' ')} {form.format(value)}{beside}")
    return ", ".join(words)


def interval_line(record: Mapping[str, float], num_steps: int, time_left: str = "") -> str:
    """Formats the line that is printed after an interval.

    Args:
        record: A record of `log.jsonl`.
        num_steps: Number of updates of the whole run.
        time_left: The estimated time until the end of the run, if there is an estimate.

    Example:

    >>> record = {"step": 500, "loss": 5.0, "perplexity": 148.4, "tokens_per_second": 12_345.6}
    >>> interval_line(record, 20_000, "3 min 20 s left")
    'step 500/20000, loss 5, perplexity 148.4, 12,346 tokens/s, 3 min 20 s left'
    """
    words = [
        f"step {record['step']:.0f}/{num_steps}",
        metrics_line(record),
        f"{record['tokens_per_second']:,.0f} tokens/s",
        time_left,
    ]
    return ", ".join(filter(None, words))


def report(results: Mapping[str, Any], files: Mapping[str, Path], warning: str = "") -> str:
    """Formats the report at the end of a run.

    Args:
        results: The content of `results.json`.
        files: The files to name, with their descriptions; one of them is the `preset`.
        warning: A warning to end with.
    """
    last, total = results["last"], results["total"]
    rows = {
        "validation text": _scores(last, "val_"),
        "training text": _scores(last, ""),
        "unigram model": _scores(last, "unigram_"),
    }
    blocks = [
        f"Pre-trained: {results['parameters']:,} parameters, {total['steps']:,} steps; scores of "
        "the last interval, accuracies in percent",
        text_table(*of_records("masked tokens", {name: row for name, row in rows.items() if row})),
    ]
    speed = (
        f"Time: {run_report.duration(total['seconds'])} of training, "
        f"{total['tokens_per_second']:,.0f} tokens/s, {total['share_of_peak']:.1%} of the "
        "highest speed measured on this machine"
    )
    blocks.append("\n".join(filter(None, (speed, run_cost.describe(results.get("cost", {}))))))
    present = {name: path for name, path in files.items() if path.exists()}
    blocks.append("\n".join(f"{name:8} {path}" for name, path in present.items()))
    finetune = child_programs.typed("finetune")
    preset = shlex.quote(f"--preset={files['preset']}")
    blocks.append(f"Next: {finetune} {preset} --train_file=FILE")
    if warning:
        blocks.append(f"WARNING: {warning}")
    return "\n" + "\n\n".join(blocks)


def _scores(record: Mapping[str, float], prefix: str) -> dict[str, float]:
    names = ("accuracy", "perplexity") if prefix == "unigram_" else tuple(_SHOWN)
    scores = {}
    for name in names:
        if prefix + name in record:
            factor = 100 if name.endswith("accuracy") else 1
            column = name.removeprefix("masked_").replace("_", " ")
            scores[column] = factor * record[prefix + name]
    return scores

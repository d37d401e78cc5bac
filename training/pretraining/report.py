# SPDX-License-Identifier: Apache-2.0
"""Formats and writes a pre-training run's log, curves, progress lines and results."""

from __future__ import annotations

import json
import math
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_bert import atomic
from keras_bert.tables import table_from_records, text_table

from ..costs import run_cost
from ..costs.energy import Energy
from ..engine import child_commands, run_report
from ..engine.progress import in_percent
from ..engine.run_checkpoints import RunState
from ..plots.curves import curves_figure
from ..plots.style import save
from .config import PretrainConfig

LOG_FILE = "log.jsonl"
CURVES_FILE = "curves.png"
RESULTS_FILE = "results.json"
# A run has collapsed if its accuracy is this close to the unigram baseline for this many
# consecutive intervals.
_STILL_INTERVALS = 3
_STILL_RATIO = 1.05
_STILL_MARGIN = 0.002
_NAMES = {
    "masked_lm_logits_accuracy": "masked_accuracy",
    "masked_lm_logits_perplexity": "perplexity",
    "masked_lm_logits_loss": "masked_loss",
    "next_sentence_logits_accuracy": "pair_accuracy",
    "next_sentence_logits_loss": "pair_loss",
    # Keras omits the output's name if the model has only one output.
    "accuracy": "masked_accuracy",
    "masked_lm_loss": "masked_loss",
    "label_loss": "masked_loss",
    "generator_accuracy": "masked_accuracy",
}
_DRAWN = ("loss", "masked_accuracy", "unigram_accuracy", "pair_accuracy", "discriminator_accuracy")
# The printed metrics with their formats. The records have more metrics.
_SHOWN = {
    "loss": "{:.4g}",
    "masked_accuracy": "{:.1%}",
    "perplexity": "{:.4g}",
    "pair_accuracy": "{:.1%}",
    "discriminator_accuracy": "{:.1%}",
}

Log = dict[str, float]


def named(logs: dict[str, Any]) -> Log:
    """Returns Keras' losses and metrics under shorter names."""
    return {_NAMES.get(name, name): float(value) for name, value in logs.items()}


def metrics_line(record: Mapping[str, float]) -> str:
    """Formats an interval's metrics, with the unigram baseline next to the model's scores.

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
            # The baseline is computed once, so it is only shown with the training metrics.
            beside = "" if prefix or unigram is None else f" (unigram {form.format(unigram)})"
            words.append(f"{text}{name.replace('_', ' ')} {form.format(value)}{beside}")
    return ", ".join(words)


def interval_line(record: Mapping[str, float], num_steps: int, time_left: str = "") -> str:
    """Formats the line printed after an interval.

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


def has_collapsed(log: list[Log], warmup_steps: int) -> bool:
    """Returns whether a run predicts masked tokens no better than the unigram baseline.

    Every run starts like this, so only the last intervals after the warmup count. The accuracy on
    the validation text is used if it is available.
    """
    last = [record for record in log if record["step"] > warmup_steps][-_STILL_INTERVALS:]

    def is_still(record: Log) -> bool:
        accuracy = record.get("val_masked_accuracy", record.get("masked_accuracy", 1.0))
        return accuracy <= record.get("unigram_accuracy", -1.0) * _STILL_RATIO + _STILL_MARGIN

    return len(last) == _STILL_INTERVALS and all(map(is_still, last))


def collapse_warning(record: Log) -> str:
    """Returns the warning for a run that `has_collapsed`, given its last record."""
    name = "val_masked_accuracy" if "val_masked_accuracy" in record else "masked_accuracy"
    return (
        f"the model has not learned from the context. After step {record['step']:.0f}, its "
        f"accuracy on masked tokens is {record[name]:.1%}, and always predicting the most frequent "
        f"token gives {record['unigram_accuracy']:.1%} (perplexity "
        f"{record.get(name.replace('masked_accuracy', 'perplexity'), math.nan):.1f}, unigram "
        f"baseline {record['unigram_perplexity']:.1f}). Try a lower --learning_rate, more "
        "--warmup_steps or a longer run"
    )


def write_log(log: list[Log], directory: Path) -> None:
    """Rewrites the whole log as JSON Lines, so a repeated interval occurs only once."""
    atomic.write_text(directory / LOG_FILE, "".join(json.dumps(record) + "\n" for record in log))


def write_tensorboard(record: Log, directory: Path) -> None:
    """Writes a record's values as TensorBoard scalars."""
    import tensorflow as tf

    writer = tf.summary.create_file_writer(os.fspath(directory))
    with writer.as_default(step=int(record["step"])):
        for name, value in record.items():
            tf.summary.scalar(name, value)
    writer.close()


def draw(log: list[Log], directory: Path) -> None:
    """Plots the curves of the loss and the accuracies."""
    log = list(map(in_percent, log))
    names = [f"{prefix}{name}" for name in _DRAWN for prefix in ("", "val_")]
    history = {
        name: [record.get(name, math.nan) for record in log]
        for name in names
        if any(name in record for record in log)
    }
    steps = [int(record["step"]) for record in log]
    save(curves_figure(history, steps=steps, title=directory.name), directory / CURVES_FILE)


def build_results(config: PretrainConfig, num_parameters: int, state: RunState) -> dict[str, Any]:
    """Returns the content of `results.json`."""
    last = state.log[-1]
    return {
        "config": config.to_dict(),
        "backend": state.backend,
        "parameters": num_parameters,
        "last": last,
        "collapsed": has_collapsed(state.log, config.optimization.num_warmup_steps),
        "total": {
            "steps": state.step,
            "seconds": round(state.seconds, 1),
            "tokens_per_second": round(_mean(state.log, "tokens_per_second"), 1),
            "mfu": round(_mean(state.log, "mfu"), 4),
            **{name: last[name] for name in ("energy_kwh", "co2_kg") if name in last},
        },
        "cost": run_cost.cost_record(
            state.seconds,
            _sum(state.log, "flops_per_second"),
            Energy(last["energy_kwh"], last["co2_kg"], bool(last["energy_is_measured"]))
            if "energy_kwh" in last
            else None,
            config.costs.country,
            config.costs.cost_per_hour,
        ),
        "log": state.log,
    }


def _mean(log: list[Log], name: str) -> float:
    """Returns a rate's mean over the run, weighted by the intervals' duration."""
    return _sum(log, name) / float(log[-1]["seconds"])


def _sum(log: list[Log], rate: str) -> float:
    """Integrates a rate per second over the run."""
    ends = np.array([0.0, *(record["seconds"] for record in log)])
    return float(np.dot(np.diff(ends), [record[rate] for record in log]))


def report(results: Mapping[str, Any], directory: Path) -> str:
    """Formats a run's final report."""
    last, total = results["last"], results["total"]
    rows = {
        "validation text": _scores(last, "val_"),
        "training text": _scores(last, ""),
        "unigram model": _scores(last, "unigram_"),
    }
    blocks = [
        f"Pre-trained: {results['parameters']:,} parameters, {total['steps']:,} steps. Scores of "
        "the last interval, accuracies in percent:",
        text_table(
            *table_from_records("masked tokens", {name: row for name, row in rows.items() if row})
        ),
    ]
    speed = (
        f"Time: {run_report.duration(total['seconds'])} of training, "
        f"{total['tokens_per_second']:,.0f} tokens/s, {total['mfu']:.1%} of the highest "
        "speed measured on this machine"
    )
    blocks.append("\n".join(filter(None, (speed, run_cost.describe(results.get("cost", {}))))))
    files = {"preset": "preset", "curves": CURVES_FILE, "log": LOG_FILE, "results": RESULTS_FILE}
    blocks.append("\n".join(f"{name:8} {directory / file}" for name, file in files.items()))
    # The other commands read from left to right.
    is_reversed = results["config"]["right_to_left"]
    finetune = child_commands.command_name("directional_finetuning" if is_reversed else "finetune")
    preset = shlex.quote(f"--preset={directory / 'preset'}")
    blocks.append(f"Next: {finetune} {preset} --train_file=FILE")
    if results["collapsed"]:
        blocks.append(f"WARNING: {collapse_warning(last)}")
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

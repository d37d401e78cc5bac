# SPDX-License-Identifier: Apache-2.0
"""Results of fine-tuning, for one seed and for all seeds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from keras_bert.intervals import mean_and_interval

from ..costs import run_cost
from ..costs.energy import Energy
from .finetuning_config import ENCODER_SIZES, LabeledFilesConfig


@dataclasses.dataclass(frozen=True)
class Run:
    """The results of one seed.

    Args:
        seed: The seed.
        final: The scores after the last epoch, for each validation set.
        best: The scores of the best epoch, for each validation set. The first set selects the
            epoch.
        best_epoch: The number of the best epoch, from 1.
        history: Keras' loss and metrics by epoch.
        evaluations: The scores on the first validation set, one record per epoch.
        examples_per_second: Training speed, without evaluation.
        model_path: Path of the best epoch's model.
        seconds: Duration of each part: building, training, scoring.
        flops: Matmul FLOPs of the training. `None` if unknown.
        energy: Energy of training and scoring. `None` if it was not measured.
        dtype: Keras' dtype policy of the model.
        encoder: The encoder's sizes and its number of parameters.
    """

    seed: int
    final: dict[str, dict[str, float]]
    best: dict[str, dict[str, float]]
    best_epoch: int
    history: dict[str, list[float]]
    evaluations: list[dict[str, float]]
    examples_per_second: float
    model_path: str
    seconds: dict[str, float]
    dtype: str
    encoder: dict[str, int]
    flops: int | None = None
    energy: Energy | None = None


def encoder_sizes(model: keras.Model) -> dict[str, int] | None:
    """Returns the encoder's sizes (`ENCODER_SIZES`) and its number of parameters.

    Returns `None` if the model has no encoder, as in feature-based tagging.
    """
    backbone = getattr(model, "backbone", None)
    if backbone is None:
        return None
    sizes = {name: int(getattr(backbone.config, name)) for name in ENCODER_SIZES}
    return {**sizes, "parameters": int(backbone.count_params())}


def total_cost(
    runs: Sequence[Run], seconds: Mapping[str, float], config: LabeledFilesConfig
) -> dict[str, Any]:
    """Returns the total cost of all seeds, see `run_cost.cost_record`."""
    flops = [run.flops for run in runs if run.flops is not None]
    energies = [Energy(*run.energy) for run in runs if run.energy is not None]
    return run_cost.cost_record(
        sum(seconds.values()),
        sum(flops) if len(flops) == len(runs) else None,
        functools.reduce(Energy.__add__, energies) if len(energies) == len(runs) else None,
        config.costs.country,
        config.costs.cost_per_hour,
    )


def summary(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Returns mean, confidence interval and values of the last epoch's scores over the seeds."""

    def summarize(dev: str, metric: str) -> dict[str, Any]:
        values = [run.final[dev][metric] for run in runs]
        mean, half_width = mean_and_interval(values)
        interval = None if len(values) == 1 else round(half_width, 2)
        return {"mean": round(mean, 2), "interval_95": interval, "seeds": values}

    return {
        dev: {metric: summarize(dev, metric) for metric in metrics}
        for dev, metrics in runs[0].final.items()
    }

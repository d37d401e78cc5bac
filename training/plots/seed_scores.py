# SPDX-License-Identifier: Apache-2.0
"""Plot of the scores of several tasks, for each seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from keras_bert import atomic


def plot_seed_scores(path: Path, scores: Mapping[str, Sequence[float]]) -> None:
    """Plots the scores of each task's seeds as dots over a bar of their mean.

    Args:
        path: The PNG file.
        scores: The scores of each seed in percent, by task.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.5 + 0.8 * len(scores), 3.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for position, values in enumerate(scores.values()):
        mean = float(np.mean(values))
        axes.bar(position, mean, width=0.6, color="#9fc0e0")
        axes.plot([position] * len(values), values, "o", color="#0b5394", markersize=4)
        axes.annotate(f"{mean:.1f}", (position, 2), ha="center", fontsize=8)
    axes.set_xticks(range(len(scores)), list(scores), fontsize=8)
    axes.set_ylabel("dev score, mean of the metrics", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    with atomic.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")

# SPDX-License-Identifier: Apache-2.0
"""Plot of the scores of several tasks, for each seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .style import BLUE, LIGHT_BLUE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@style()
def seed_scores_figure(scores: Mapping[str, Sequence[float]]) -> Figure:
    """Draws the scores of each task's seeds as dots over a bar of their mean.

    Args:
        scores: The scores of each seed in percent, by task.
    """
    figure, (axes,) = new_figure(1.5 + 0.8 * len(scores), 3.2)
    for position, values in enumerate(scores.values()):
        mean = float(np.mean(values))
        axes.bar(position, mean, width=0.6, color=LIGHT_BLUE)
        axes.plot([position] * len(values), values, "o", color=BLUE)
        axes.annotate(f"{mean:.1f}", (position, 2), ha="center")
    axes.set_xticks(range(len(scores)), list(scores))
    axes.set_ylabel("dev score, mean of the metrics")
    return figure

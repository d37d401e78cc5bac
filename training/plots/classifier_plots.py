# SPDX-License-Identifier: Apache-2.0
"""A classifier's confusion matrix and reliability diagram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .style import GRAY, LIGHT_BLUE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 10
# Bins with fewer predictions have a bar, but no point, because their accuracy is mostly chance.
_MIN_ROWS_IN_BIN = 5
# With more classes, counts do not fit into the cells.
_MAX_CLASSES_WITH_COUNTS = 20


@style()
def confusion_figure(
    labels: Sequence[int], predictions: Sequence[int], class_names: Sequence[str]
) -> Figure:
    """Draws the confusion matrix."""
    from sklearn.metrics import confusion_matrix

    counts = confusion_matrix(labels, predictions, labels=range(len(class_names)))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = 2.2 + 0.45 * len(class_names)
    figure, (axes,) = new_figure(size + 0.6, size)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.spines[:].set_visible(True)
    ticks = range(len(class_names))
    # A dollar sign in a class name does not start a formula.
    axes.set_xticks(ticks, class_names, rotation=45, ha="right", parse_math=False)
    axes.set_yticks(ticks, class_names, parse_math=False)
    accuracy = np.trace(counts) / max(counts.sum(), 1)
    title = f"accuracy {accuracy:.1%} on {counts.sum():,} rows"
    axes.set(xlabel="prediction", ylabel="label", title=title)
    if len(class_names) <= _MAX_CLASSES_WITH_COUNTS:
        for (row, column), count in np.ndenumerate(counts):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count}", ha="center", va="center", color=color)
    return figure


@style()
def calibration_figure(right: Sequence[bool], scores: Sequence[float]) -> Figure:
    """Draws a reliability diagram, the accuracy by predicted probability.

    The title contains the expected calibration error. It is the mean absolute difference between
    accuracy and probability, weighted by the number of predictions in each bin
    ([Guo et al., 2017](https://arxiv.org/abs/1706.04599), section 2).
    """
    confidence, accuracy, share = calibration(right, scores)
    figure, (axes,) = new_figure(4.0, 3.6)
    axes.plot([0, 1], [0, 1], "--", color=GRAY)
    axes.bar(confidence, share, width=0.03, color=LIGHT_BLUE)
    is_shown = share * len(scores) >= _MIN_ROWS_IN_BIN
    axes.plot(confidence[is_shown], accuracy[is_shown], "o-")
    error = float(np.sum(share * np.abs(accuracy - confidence)))
    axes.set(
        xlim=(0, 1),
        ylim=(0, 1),
        xlabel="predicted probability (bars: fraction of predictions)",
        ylabel="accuracy",
        title=f"expected calibration error {error:.1%}",
    )
    return figure


def calibration(
    right: Sequence[bool], scores: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divides predictions into ten bins by their probability.

    Returns:
        The mean probability, the accuracy and the fraction of predictions in each nonempty bin.
    """
    is_right, probabilities = np.asarray(right, float), np.asarray(scores, float)
    bins = np.minimum((probabilities * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    is_nonempty = counts > 0
    confidence = np.bincount(bins, probabilities, _BINS)[is_nonempty] / counts[is_nonempty]
    accuracy = np.bincount(bins, is_right, _BINS)[is_nonempty] / counts[is_nonempty]
    return confidence, accuracy, counts[is_nonempty] / counts.sum()

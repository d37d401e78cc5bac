# SPDX-License-Identifier: Apache-2.0
"""A classifier's confusion matrix and reliability diagram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..scores import classifier_scores
from .style import BLUE, GRAY, LIGHT_BLUE, ORANGE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
def calibration_figure(
    right: Sequence[bool] | np.ndarray,
    probabilities: Sequence[float] | np.ndarray,
    uncalibrated: tuple[np.ndarray, np.ndarray] | None = None,
) -> Figure:
    """Draws a reliability diagram, the accuracy by predicted probability.

    The title contains the expected calibration error, see `classifier_scores.calibration_error`.

    Args:
        right: Whether each prediction is right.
        probabilities: The probability of each prediction.
        uncalibrated: `right` and `probabilities` before the calibration, for a second line.
    """
    figure, (axes,) = new_figure(4.0, 3.6)
    axes.plot([0, 1], [0, 1], "--", color=GRAY)
    error = classifier_scores.calibration_error(right, probabilities)
    title = f"expected calibration error {error:.1f}%"
    if uncalibrated is not None:
        title += f", before {classifier_scores.calibration_error(*uncalibrated):.1f}%"
        _draw_accuracy(axes, *uncalibrated, color=ORANGE, label="before")
    fraction = _draw_accuracy(axes, right, probabilities, color=BLUE, label="calibrated")
    axes.bar(*fraction, width=0.03, color=LIGHT_BLUE)
    if uncalibrated is not None:
        axes.legend()
    axes.set(
        xlim=(0, 1),
        ylim=(0, 1),
        xlabel="predicted probability (bars: fraction of predictions)",
        ylabel="accuracy",
        title=title,
    )
    return figure


def _draw_accuracy(
    axes: Axes,
    right: Sequence[bool] | np.ndarray,
    probabilities: Sequence[float] | np.ndarray,
    **options: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the accuracy in each bin. Returns the bins and their fractions of the predictions."""
    confidence, accuracy, fraction = classifier_scores.calibration_bins(right, probabilities)
    is_shown = fraction * len(right) >= _MIN_ROWS_IN_BIN
    axes.plot(confidence[is_shown], accuracy[is_shown], "o-", **options)
    return confidence, fraction

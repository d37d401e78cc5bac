# SPDX-License-Identifier: Apache-2.0
"""Two plots of a classifier: the confusion matrix and the calibration of its probabilities."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from keras_bert.atomic import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BINS = 10
_BLUE, _GREY = "#0b5394", "#888888"
# With more classes, counts do not fit into the cells.
_MAX_CLASSES_WITH_COUNTS = 20


def plot_confusion(
    path: str | os.PathLike[str],
    labels: Sequence[int],
    predictions: Sequence[int],
    class_names: Sequence[str],
) -> Path:
    """Plots the confusion matrix as a PNG.

    Args:
        path: The file to write; its folder must exist.
        labels: Class ids `(examples,)`.
        predictions: Predicted class ids of the same examples.
        class_names: The names of the classes.

    Returns:
        The path.
    """
    return _save(confusion_figure(labels, predictions, class_names), Path(path))


def confusion_figure(
    labels: Sequence[int], predictions: Sequence[int], class_names: Sequence[str]
) -> Figure:
    """Returns the figure of `plot_confusion`."""
    from matplotlib.figure import Figure
    from sklearn.metrics import confusion_matrix

    counts = confusion_matrix(labels, predictions, labels=range(len(class_names)))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    size = 2.2 + 0.45 * len(class_names)
    figure = Figure(figsize=(size + 0.6, size), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    ticks = range(len(class_names))
    # A name with dollar signs is no formula.
    axes.set_xticks(ticks, class_names, rotation=45, ha="right", fontsize=8, parse_math=False)
    axes.set_yticks(ticks, class_names, fontsize=8, parse_math=False)
    axes.set_xlabel("prediction", fontsize=9)
    axes.set_ylabel("label", fontsize=9)
    if len(class_names) <= _MAX_CLASSES_WITH_COUNTS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count}", ha="center", va="center", color=colour, fontsize=8)
    accuracy = np.trace(counts) / max(counts.sum(), 1)
    axes.set_title(f"accuracy {accuracy:.1%} on {counts.sum():,} rows", loc="left", fontsize=10)
    return figure


def plot_calibration(
    path: str | os.PathLike[str], right: Sequence[bool], scores: Sequence[float]
) -> Path:
    """Plots a reliability diagram, the accuracy by predicted probability, as a PNG.

    The title has the expected calibration error, the mean absolute difference of the two, weighted
    by the number of predictions in a bin ([Guo et al., 2017](https://arxiv.org/abs/1706.04599),
    section 2).

    Args:
        path: The file to write; its folder must exist.
        right: Whether each prediction is correct, `(examples,)`.
        scores: The probability of each prediction, `(examples,)`.

    Returns:
        The path.
    """
    return _save(calibration_figure(right, scores), Path(path))


def calibration_figure(right: Sequence[bool], scores: Sequence[float]) -> Figure:
    """Returns the figure of `plot_calibration`."""
    from matplotlib.figure import Figure

    confidence, accuracy, share = calibration(right, scores)
    figure = Figure(figsize=(4.0, 3.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color=_GREY, linewidth=1, linestyle="--")
    axes.bar(confidence, share, width=0.03, color="#d9e6f2")
    axes.plot(confidence, accuracy, "o-", color=_BLUE, markersize=4)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    axes.set_xlabel("predicted probability (bars: share of the predictions)", fontsize=8)
    axes.set_ylabel("accuracy", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    error = float(np.sum(share * np.abs(accuracy - confidence)))
    axes.set_title(f"expected calibration error {error:.1%}", loc="left", fontsize=10)
    return figure


def calibration(
    right: Sequence[bool], scores: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns mean probability, accuracy and share of predictions of each nonempty bin of ten."""
    is_right, given = np.asarray(right, float), np.asarray(scores, float)
    bins = np.minimum((given * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    used = counts > 0
    confidence = np.bincount(bins, given, _BINS)[used] / counts[used]
    accuracy = np.bincount(bins, is_right, _BINS)[used] / counts[used]
    return confidence, accuracy, counts[used] / counts.sum()


def _save(figure: Figure, path: Path) -> Path:
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")
    return path

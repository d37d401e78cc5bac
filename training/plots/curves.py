# SPDX-License-Identifier: Apache-2.0
"""Plots a training run's loss and validation scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .style import COLORS, GRAY, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOSSES = {"loss": "training", "dev_loss": "development", "val_loss": "development"}
# Curves with more points have no markers, because the markers would overlap.
_MAX_MARKERS = 40
# Metrics on a different scale than scores, or redundant next to F1
_NOT_PLOTTED = ("epoch", "learning_rate", "mse", "val_mse", "HasAns_exact", "NoAns_exact")

_Points = tuple[list[float], list[float]]


@style()
def curves_figure(
    history: Mapping[str, Sequence[float]],
    evaluations: Sequence[Mapping[str, float]] = (),
    *,
    steps: Sequence[int] | None = None,
    title: str = "",
    best_epoch: float | None = None,
) -> Figure:
    """Draws a run's curves, with losses on the left and scores on the right.

    Non-finite values are omitted. A curve with a single value is a dot.

    Args:
        history: `History.history` from Keras' `fit`: the `loss`, `val_loss` and metrics of each
            epoch.
        evaluations: The validation scores of each epoch. They replace the metrics in `history`.
            `mse` is not plotted.
        steps: The optimizer step of each value in `history`, for the horizontal axis. By default,
            the values are from epochs.
        title: The figure's title.
        best_epoch: The best model's epoch, marked with a vertical line.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    panels = _panels(history, evaluations, steps)
    figure, all_axes = new_figure(4.6 * len(panels), 3.2, len(panels))
    for axes, (name, curves) in zip(all_axes, panels.items(), strict=True):
        axes.set(
            title=name,
            xlabel="step" if steps else "epoch",
            ylabel=name.partition(" ")[0].lower(),
        )
        _draw(axes, curves)
        if best_epoch is not None:
            _mark(axes, best_epoch)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _panels(
    history: Mapping[str, Sequence[float]],
    evaluations: Sequence[Mapping[str, float]],
    steps: Sequence[int] | None,
) -> dict[str, dict[str, _Points]]:
    """Returns the curves in each panel by name. Panels without curves are omitted."""
    scores, title = history, "Score"
    if evaluations:
        scores = {name: [record[name] for record in evaluations] for name in evaluations[0]}
        title = "Score on the development set"
    panels = {
        "Loss": {name: values for name, values in history.items() if name in _LOSSES},
        title: {
            name: values
            for name, values in scores.items()
            if name not in _NOT_PLOTTED and not name.endswith("loss")
        },
    }
    curves = {
        panel: {
            _LOSSES.get(name, name): points
            for name, values in panel_curves.items()
            if (points := _finite(steps or range(1, len(values) + 1), values))[0]
        }
        for panel, panel_curves in panels.items()
    }
    return {panel: panel_curves for panel, panel_curves in curves.items() if panel_curves}


def _finite(when: Sequence[float], values: Sequence[float]) -> _Points:
    points = [(x, y) for x, y in zip(when, values, strict=True) if math.isfinite(y)]
    return [float(x) for x, _ in points], [float(y) for _, y in points]


def _draw(axes: Any, curves: Mapping[str, _Points]) -> None:
    """Draws the curves of one panel, each labeled with its name and last value."""
    from matplotlib.ticker import MaxNLocator

    for when, values in curves.values():
        axes.plot(when, values, marker="o" if len(when) <= _MAX_MARKERS else None)
    axes.grid(axis="y", color="#e3e3e3")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
    axes.margins(y=0.12)
    # The axis starts at 0, so that it has integer ticks even for a single epoch.
    axes.set_xlim(0, 1.04 * max(when[-1] for when, _ in curves.values()))
    low, high = axes.get_ylim()
    ends = [(values[-1] - low) / (high - low) for _, values in curves.values()]
    for index, (height, (name, (_, values))) in enumerate(
        zip(_spread(ends, gap=0.08), curves.items(), strict=True)
    ):
        axes.annotate(
            f"{name} {values[-1]:.4g}",
            (1.02, height),
            xycoords="axes fraction",
            va="center",
            color=COLORS[index % len(COLORS)],
        )


def _mark(axes: Any, position: float) -> None:
    axes.axvline(position, color=GRAY, linestyle="--", zorder=0)
    axes.annotate(
        "best",
        (position, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(2, -2),
        textcoords="offset points",
        va="top",
        fontsize=7,
        color=GRAY,
    )


def _spread(heights: Sequence[float], gap: float) -> list[float]:
    """Moves labels up, in the order of their heights, until they do not overlap."""
    positions = list(heights)
    order = sorted(range(len(heights)), key=heights.__getitem__)
    for below, above in itertools.pairwise(order):
        positions[above] = max(positions[above], positions[below] + gap)
    return positions

# SPDX-License-Identifier: Apache-2.0
"""Histogram of the lengths of rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keras_bert.atomic import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_BARS = 64


def plot_lengths(path: str | os.PathLike[str], lengths: Sequence[int], title: str = "") -> Path:
    """Plots a histogram of row lengths as a PNG.

    Args:
        path: The file to write; its folder must exist.
        lengths: Number of rows of each length, from 0 tokens to the longest.
        title: The title of the figure.

    Returns:
        The path.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are no rows.
    """
    figure = length_figure(lengths, title)
    path = Path(path)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")
    return path


def length_figure(lengths: Sequence[int], title: str = "") -> Figure:
    """Returns the figure of `plot_lengths`; see there."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "plot_lengths requires matplotlib: install the extra `pretraining`, or matplotlib "
            "itself"
        ) from error
    total = sum(lengths)
    if not total:
        raise ValueError("lengths has no rows, so that there is nothing to plot")
    width = -(-len(lengths) // _MAX_BARS)
    starts = range(0, len(lengths), width)
    shares = [100 * sum(lengths[start : start + width]) / total for start in starts]
    mean = sum(length * count for length, count in enumerate(lengths)) / total
    figure = Figure(figsize=(5.6, 3.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    axes.bar(starts, shares, width=0.9 * width, align="edge", color="#0b5394")
    axes.axvline(mean, color="#d1570c", linewidth=1.4)
    axes.annotate(
        f"mean {mean:.1f}",
        (mean, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=8,
        color="#d1570c",
    )
    axes.set_xlabel("tokens in a row")
    axes.set_ylabel("% of rows")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, color="#888888")
    if title:
        axes.set_title(title, loc="left", fontsize=10)
    return figure

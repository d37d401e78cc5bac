# SPDX-License-Identifier: Apache-2.0
"""Histogram of the lengths of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .style import ORANGE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_BARS = 64


@style()
def length_figure(lengths: Sequence[int], title: str = "") -> Figure:
    """Draws a histogram of row lengths.

    Args:
        lengths: Number of rows of each length, from 0 tokens to the longest.
        title: The title of the figure.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are no rows.
    """
    total = sum(lengths)
    if not total:
        raise ValueError("lengths has no rows, so that there is nothing to plot")
    width = -(-len(lengths) // _MAX_BARS)
    starts = range(0, len(lengths), width)
    shares = [100 * sum(lengths[start : start + width]) / total for start in starts]
    mean = sum(length * count for length, count in enumerate(lengths)) / total
    figure, (axes,) = new_figure(5.6, 3.2)
    axes.bar(starts, shares, width=0.9 * width, align="edge")
    axes.axvline(mean, color=ORANGE)
    axes.annotate(
        f"mean {mean:.1f}",
        (mean, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        va="top",
        color=ORANGE,
    )
    axes.set(xlabel="tokens in a row", ylabel="% of rows", title=title)
    return figure

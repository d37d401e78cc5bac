# SPDX-License-Identifier: Apache-2.0
"""Draws a histogram of sequence lengths."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from .style import ORANGE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_BARS = 64


@style()
def length_figure(lengths: Sequence[int], title: str = "") -> Figure:
    """Draws a histogram of sequence lengths.

    Args:
        lengths: The number of sequences by length, from 0 tokens to the maximum.
        title: The figure's title.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If all numbers are 0.
    """
    total = sum(lengths)
    if not total:
        raise ValueError("lengths must have at least one row. Received: only zeros")
    counts = lengths[: _last_drawn(lengths) + 1]
    width = -(-len(counts) // _MAX_BARS)
    starts = range(0, len(counts), width)
    shares = [100 * sum(counts[start : start + width]) / total for start in starts]
    mean = sum(length * count for length, count in enumerate(lengths)) / total
    median = next(length for length, rows in enumerate(accumulate(lengths)) if 2 * rows >= total)
    notes = [f"median {median}", f"mean {mean:.1f}"]
    longer = total - sum(counts)
    if longer:
        share = 100 * longer / total
        longest = len(lengths) - 1
        rows = "1 row" if longer == 1 else f"{longer:,} rows"
        notes += [f"not shown: {rows}", f"({share:.2g}%) of up to {longest:,} tokens"]
    figure, (axes,) = new_figure(5.6, 3.2)
    axes.bar(starts, shares, width=0.9 * width, align="edge")
    axes.axvline(median, color=ORANGE)
    axes.annotate(
        "\n".join(notes),
        (1, 0.97),
        xycoords="axes fraction",
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        va="top",
        color=ORANGE,
    )
    axes.set(xlabel="tokens in a row", ylabel="% of rows", title=title)
    return figure


def _last_drawn(lengths: Sequence[int]) -> int:
    """Returns the maximum length to draw, so that a few long sequences do not flatten the rest.

    It is twice the 98th percentile, or the maximum length if that is smaller. In files with fewer
    than 100 sequences, only the longest sequence counts as an outlier.
    """
    longest = max(length for length, count in enumerate(lengths) if count)
    total = sum(lengths)
    usual_rows = total - max(1, total // 50)
    if not usual_rows:
        return longest
    usual = next(length for length, rows in enumerate(accumulate(lengths)) if rows >= usual_rows)
    return max(length for length in range(min(longest, 2 * usual) + 1) if lengths[length])

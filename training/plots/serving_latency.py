# SPDX-License-Identifier: Apache-2.0
"""Plot of a server's latency by its throughput."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..benchmarks.report import Row
from .style import BLUE, ORANGE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@style()
def serving_latency_figure(rows: Sequence[Row]) -> Figure:
    """Draws the median and the 99th percentile of the latency over answered requests per second.

    Args:
        rows: The rows of a benchmark; those without requests are omitted.
    """
    figure, (axes,) = new_figure(6.0, 3.6)
    for loop, color in (("closed", BLUE), ("open", ORANGE)):
        points = sorted(
            (1000 / row.milliseconds, row.p50, row.p99, row.load.rate or row.load.clients)
            for row in rows
            if row.load and row.requests and bool(row.load.rate) == (loop == "open")
        )
        if not points:
            continue
        qps, p50, p99, loads = zip(*points, strict=True)
        axes.plot(qps, p50, "o-", color=color, label=f"{loop} loop, p50")
        axes.plot(qps, p99, "s--", color=color, label=f"{loop} loop, p99")
        for x, y, load in zip(qps, p99, loads, strict=True):
            axes.annotate(
                f"{load:g}", (x, y), xytext=(3, 3), textcoords="offset points", fontsize=7
            )
    axes.set_xlabel("answered requests/s (numbers at p99: clients, or requests/s sent)")
    axes.set_ylabel("milliseconds")
    axes.set_ylim(bottom=0)
    if axes.lines:
        axes.legend()
    return figure

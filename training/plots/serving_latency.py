# SPDX-License-Identifier: Apache-2.0
"""Plot of a server's latency by its throughput."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from keras_bert import atomic

from ..benchmarks.report import Row


def plot_serving_latency(path: Path, rows: Sequence[Row]) -> None:
    """Plots the median and the 99th percentile of the latency over answered requests per second.

    Args:
        path: The PNG file.
        rows: The rows of a benchmark; those without requests are omitted.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.6), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for loop, color in (("closed", "#0b5394"), ("open", "#d1570c")):
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
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:
        axes.legend(frameon=False, fontsize=8)
    with atomic.atomic_path(path) as temporary:
        figure.savefig(temporary, format="png")

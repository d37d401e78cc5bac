# SPDX-License-Identifier: Apache-2.0
"""The plots of `ablation`."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from ..plots.style import BLUE, ORANGE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@style()
def scores_figure(records: Sequence[dict[str, Any]], columns: Sequence[str]) -> Figure:
    """Plots each row's seeds as dots and their mean as a tick, with a panel per column."""
    records = [record for record in records if record["scores"]]
    width, height = 1.8 + 2.2 * len(columns), 0.9 + 0.28 * len(records)
    figure, panels = new_figure(width, height, len(columns))
    for axes, name in zip(panels, columns, strict=True):
        for position, record in enumerate(records):
            if values := record["scores"].get(name):
                axes.plot(mean(values), position, "|", color=ORANGE, markersize=14)
                axes.plot(values, [position] * len(values), "o", color=BLUE)
        axes.set(title=name, ylim=(len(records) - 0.4, -0.6))
        axes.set_yticks(range(len(records)), [""] * len(records))
        axes.grid(axis="x", alpha=0.3)
    panels[0].set_yticks(range(len(records)), [record["name"] for record in records])
    return figure


def _value(record: dict[str, Any], name: str) -> float | None:
    """Returns an encoder's perplexity or mean score, or `None` if the run diverged."""
    if name == "perplexity":
        return record.get("perplexity")
    return mean(record["scores"][name]) if name in record["scores"] else None


@style()
def _lines_figure(
    records: Sequence[dict[str, Any]], columns: Sequence[str], x: str, **axes_options: Any
) -> Figure:
    """Plots a line for each `line` in the records, and the scores of all seeds as dots.

    Args:
        records: The records.
        columns: The values to plot, with a panel per column.
        x: The key of the values on the horizontal axes.
        **axes_options: Properties of all axes.
    """
    figure, panels = new_figure(3.2 * len(columns), 3.0, len(columns))
    lines = dict.fromkeys(record["line"] for record in records)
    for axes, name in zip(panels, columns, strict=True):
        for line, marks, color in zip(lines, ("o-", "s--"), (BLUE, ORANGE), strict=False):
            own = [record for record in records if record["line"] == line]
            points = sorted(
                (record[x], value) for record in own if (value := _value(record, name)) is not None
            )
            if points:
                axes.plot(*zip(*points, strict=True), marks, color=color, label=line)
            for record in own:
                values = record["scores"].get(name, [])
                axes.plot([record[x]] * len(values), values, ".", color=color, alpha=0.4)
        axes.set(title=name, **axes_options)
    panels[0].legend()
    return figure


def size_figure(records: Sequence[dict[str, Any]], columns: Sequence[str]) -> Figure:
    """Plots perplexity and mean scores over the number of parameters."""
    trained = [record for record in records if "parameters" in record]
    options = {"xscale": "log", "xlabel": "parameters"}
    return _lines_figure(trained, ["perplexity", *columns], "parameters", **options)


def steps_figure(records: Sequence[dict[str, Any]], columns: Sequence[str]) -> Figure:
    """Plots mean scores over the number of pre-training steps, with a line per objective."""
    return _lines_figure(records, columns, "step", xlabel="pre-training steps")

# SPDX-License-Identifier: Apache-2.0
"""The plots of `ablation`."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING, Any

from ..plots.style import BLUE, LIGHT_BLUE, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@style()
def scores_figure(records: Sequence[dict[str, Any]], columns: Sequence[str]) -> Figure:
    """Plots each row's mean score as a bar, and its seeds as dots, with a panel per column."""
    records = [record for record in records if record["scores"]]
    width, height = 1.8 + 2.2 * len(columns), 0.9 + 0.28 * len(records)
    figure, panels = new_figure(width, height, len(columns))
    for axes, name in zip(panels, columns, strict=True):
        for position, record in enumerate(records):
            if values := record["scores"].get(name):
                axes.barh(position, mean(values), height=0.6, color=LIGHT_BLUE)
                axes.plot(values, [position] * len(values), "o", color=BLUE)
        axes.set(title=name, ylim=(len(records) - 0.4, -0.6))
        axes.set_yticks(range(len(records)), [""] * len(records))
        _zoom(axes, [value for record in records for value in record["scores"].get(name, [])])
    panels[0].set_yticks(range(len(records)), [record["name"] for record in records])
    return figure


def _zoom(axes: Any, values: Sequence[float]) -> None:
    """Cuts the bars if the scores are so similar that their differences would not be visible."""
    if values:
        low, high = min(values), max(values)
        margin = 0.3 * (high - low) + 0.5
        axes.set_xlim(max(0.0, low - margin), high + margin)


def _value(record: dict[str, Any], name: str) -> float | None:
    """Returns an encoder's perplexity or mean score, or `None` if the run diverged."""
    if name == "perplexity":
        return record.get("perplexity")
    return mean(record["scores"][name]) if name in record["scores"] else None


def _draw_lines(axes: Any, records: Sequence[dict[str, Any]], x: str, name: str) -> None:
    """Plots a line for each `line` in the records."""
    styles = ("o-", "s--")
    lines = dict.fromkeys(record["line"] for record in records)
    for line, marks in zip(lines, styles, strict=False):
        points = sorted(
            (record[x], value)
            for record in records
            if record["line"] == line and (value := _value(record, name)) is not None
        )
        if points:
            axes.plot(*zip(*points, strict=True), marks, label=line)
    axes.set(title=name)


@style()
def size_figure(records: Sequence[dict[str, Any]], columns: Sequence[str]) -> Figure:
    """Plots perplexity and mean scores over the number of parameters."""
    figure, panels = new_figure(3.2 * (1 + len(columns)), 3.0, 1 + len(columns))
    trained = [record for record in records if "parameters" in record]
    for axes, name in zip(panels, ["perplexity", *columns], strict=True):
        _draw_lines(axes, trained, "parameters", name)
        axes.set(xscale="log", xlabel="parameters")
    panels[0].legend()
    return figure


@style()
def steps_figure(records: Sequence[dict[str, Any]], columns: Sequence[str]) -> Figure:
    """Plots mean scores over the number of pre-training steps, with a line per objective."""
    figure, panels = new_figure(3.2 * len(columns), 3.0, len(columns))
    for axes, name in zip(panels, columns, strict=True):
        _draw_lines(axes, records, "step", name)
        axes.set(xlabel="pre-training steps")
    panels[0].legend()
    return figure

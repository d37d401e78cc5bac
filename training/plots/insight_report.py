# SPDX-License-Identifier: Apache-2.0
"""Writes an interpretability report with an HTML page, PNG figures, and numbers in JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras_bert import atomic, insight

from . import page
from .style import save

PAGE_FILE, NUMBERS_FILE = "index.html", "insight.json"

Block = page.Html


class Report:
    """Collects sections and writes them to a directory."""

    def __init__(self, directory: Path, title: str) -> None:
        self._directory = directory
        self._title = title
        self._sections: list[Block] = []
        self._left_out: list[str] = []
        self._numbers: dict[str, Any] = {}

    def add(self, title: str, blocks: Sequence[Block], **numbers: Any) -> None:
        """Adds a section, and its numbers under their names in the JSON file."""
        self._sections.append(page.section(title, *blocks))
        self._numbers |= numbers

    def leave_out(self, reason: str) -> None:
        """Adds a section to the list of omitted sections.

        Args:
            reason: The section's title and why it is omitted, as a sentence.
        """
        self._left_out.append(reason)

    def figure(self, name: str, plot: Any, description: str) -> Block:
        """Writes a matplotlib figure as PNG, and returns it as a block.

        Args:
            name: The file name without suffix.
            plot: The figure or its axes.
            description: The alternative text.
        """
        from matplotlib import pyplot

        plot = getattr(plot, "figure", plot)
        save(plot, self._directory / f"{name}.png")
        block = page.figure(plot, description)
        pyplot.close(plot)
        return block

    def measures(self, name: str, result: insight.Result | insight.Comparison) -> list[Block]:
        """Returns blocks with a result's table, its notes, and a plot of its first metric."""
        columns, rows = result.table()
        # Keep a number and its interval on one line.
        rows = [[row[0], *(cell.replace(" ", "\u00a0") for cell in row[1:])] for row in rows]
        is_one = isinstance(result, insight.Result)
        kind = result if is_one else next(iter(result.results.values()))
        blocks = [
            page.text(f"{kind.title}, with 95% intervals in parentheses.", faint=True),
            page.table(columns, rows),
        ]
        if kind.notes:
            blocks.append(page.text(kind.notes, faint=True))
        figure = result.plot()
        description = f"{kind.title}: {figure.get_xlabel()}, as in the table"
        return [*blocks, self.figure(name, figure, description)]

    def write(self) -> Path:
        """Writes the page and the numbers, and returns the page's path."""
        sections = list(self._sections)
        if self._left_out:
            sections.append(page.section("Not included", *map(page.text, self._left_out)))
        numbers = {"title": self._title, **self._numbers, "left_out": self._left_out}
        atomic.write_json(self._directory / NUMBERS_FILE, _finite(numbers))
        return page.write_page(self._directory / PAGE_FILE, self._title, sections)


def _finite(value: Any) -> Any:
    """Replaces numbers that JSON does not support with `None`."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value

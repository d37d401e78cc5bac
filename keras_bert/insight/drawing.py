# SPDX-License-Identifier: Apache-2.0
"""Drawings and tables that multiple results share."""

from __future__ import annotations

import abc
import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_bert.tables import html_table, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# RGB values for CSS
BLUE, GREEN, ORANGE = "11, 83, 148", "42, 125, 79", "209, 87, 12"


class Tabular(abc.ABC):
    """A result that prints as a table and is displayed as a table in notebooks.

    `table` returns the column names and the rows of cells. The `title` is shown before it, and the
    `notes` are shown after it.
    """

    # Index of the first right-aligned column
    _numbers_from = 1

    @abc.abstractmethod
    def table(self) -> tuple[list[str], list[list[str]]]: ...

    @property
    def title(self) -> str:
        return ""

    @property
    def notes(self) -> str:
        return ""

    def __str__(self) -> str:
        table = text_table(*self.table(), numbers_from=self._numbers_from)
        return "\n\n".join(part for part in (self.title, table, self.notes) if part)

    def _repr_html_(self) -> str:
        title = f"<p><b>{html.escape(self.title)}</b></p>" if self.title else ""
        notes = f"<p>{html.escape(self.notes)}</p>" if self.notes else ""
        return f"<div>{title}{html_table(*self.table())}{notes}</div>"


def shaded(text: str, share: float, color: str = BLUE, *, tag: str = "td", hint: str = "") -> str:
    """Returns text as HTML. The background's opacity is proportional to `share` (0 to 1)."""
    style = f'style="background: rgba({color}, {0.6 * share:.3f})"'
    title = f' title="{hint}"' if hint else ""
    return f"<{tag}{title} {style}>{html.escape(text)}</{tag}>"


def table_of_cells(columns: Sequence[str], rows: Iterable[tuple[Sequence[object], str]]) -> str:
    """Returns an HTML table. Each row has a list of headers and its cells as HTML."""

    def heads(names: Iterable[object]) -> str:
        return "".join(f"<th>{html.escape(str(name))}</th>" for name in names)

    lines = [heads(columns), *(f"{heads(names)}{cells}" for names, cells in rows)]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def axes_or_new(axes: Axes | None, width: float, height: float) -> Axes:
    """Returns `axes`, or axes in a new figure with the given size in inches."""
    import matplotlib.pyplot as plt

    return axes or plt.subplots(figsize=(width, height), layout="constrained")[1]


def draw_heads(
    values: np.ndarray, title: str, axes: Axes | None = None, highest: float | None = None
) -> Axes:
    """Draws values `(layers, heads)` as a heat map, with the first layer at the bottom.

    Absent heads are NaN. The color scale ends at `highest`, or at the highest value.
    """
    layers, heads = values.shape
    axes = axes_or_new(axes, 0.35 * heads + 2, 0.35 * layers + 1)
    image = axes.imshow(values, origin="lower", cmap="viridis", vmin=0, vmax=highest)
    axes.figure.colorbar(image, ax=axes)
    axes.set_xticks(range(heads))
    axes.set_yticks(range(layers))
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.set_title(title)
    return axes

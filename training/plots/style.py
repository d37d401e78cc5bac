# SPDX-License-Identifier: Apache-2.0
"""The style of all plots, and how they are saved."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from keras_bert.atomic import write_bytes
from keras_bert.checks import importing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Distinguishable for color-blind readers and in grayscale
COLORS = BLUE, ORANGE, _GREEN, _PURPLE = "#0b5394", "#d1570c", "#2a7d4f", "#8e4a9e"
_DOTS_PER_INCH = 150
LIGHT_BLUE, GRAY = "#9fc0e0", "#888888"


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Applies the style to matplotlib plots. Works as a context manager and as a decorator.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    with importing("training", "Plotting"):
        import matplotlib
    settings = {
        "figure.constrained_layout.use": True,
        "font.size": 8,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": matplotlib.cycler(color=COLORS),
        "lines.linewidth": 1.4,
        "lines.markersize": 4,
        "legend.frameon": False,
    }
    with matplotlib.rc_context(settings):
        yield


def new_figure(width: float, height: float, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """Returns a figure with a size in inches, and its panels from left to right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Writes a figure as PNG into an existing directory, and returns the path."""
    path = Path(path)
    write_bytes(path, png(figure))
    return path


def png(figure: Figure) -> bytes:
    """Renders a figure as PNG, and returns the file's content."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):  # File names may contain bytes that are not UTF-8.
        text.set_text(text.get_text().encode(errors="backslashreplace").decode())
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=_DOTS_PER_INCH)
    return content.getvalue()

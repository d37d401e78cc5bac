# SPDX-License-Identifier: Apache-2.0
"""Drawings that several results have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes_or_new(axes: Axes | None, width: float, height: float) -> Axes:
    """Returns the axes to draw on: `axes`, or the axes of a new figure.

    Args:
        axes: Where to draw; `None` makes a figure.
        width, height: The size of that figure in inches.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    import matplotlib.pyplot as plt

    return axes or plt.subplots(figsize=(width, height), layout="constrained")[1]


def draw_heads(
    values: np.ndarray, title: str, axes: Axes | None = None, highest: float | None = None
) -> Axes:
    """Draws a number of each attention head as a heat map, layers upwards.

    Args:
        values: At least 0, `(layers, heads)`; NaN for heads that are not there.
        title: The title.
        axes: Where to draw; `None` makes a figure.
        highest: The end of the scale; `None` for the highest value.

    Raises:
        ImportError: If matplotlib is not installed.
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

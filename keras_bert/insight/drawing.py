# SPDX-License-Identifier: Apache-2.0
"""Drawings that several results have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes_or_new(axes: Axes | None, width: float, height: float) -> Axes:
    """Returns the axes to draw on: `axes`, or those of a new figure of a size in inches."""
    import matplotlib.pyplot as plt

    return axes or plt.subplots(figsize=(width, height), layout="constrained")[1]


def draw_heads(
    values: np.ndarray, title: str, axes: Axes | None = None, highest: float | None = None
) -> Axes:
    """Draws values `(layers, heads)` as a heat map, layers upwards; NaN for absent heads.

    The scale ends at `highest`, or at the highest value.
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

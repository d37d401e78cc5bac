# SPDX-License-Identifier: Apache-2.0
"""Draws boxes, arrows and text in SVG."""

from __future__ import annotations

from xml.sax.saxutils import escape

# These grays and blues are legible on light and on dark pages.
TEXT, LINE, BLUE = "#768390", "#a3adba", "#5c6bc0"
WIDTH, GAP = 480, 8


def svg(title: str, height: float, shapes: list[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
            f'viewBox="0 0 {WIDTH} {height:.0f}" font-family="system-ui, sans-serif">',
            f"<title>{escape(title)}</title>",
            *shapes,
            "</svg>\n",
        ]
    )


def box(x: float, y: float, width: float, name: str, description: str) -> str:
    """Draws a box of height 44 with a name and, below it, a description."""
    middle = x + width / 2
    return "\n".join(
        [
            f'<rect x="{x + 1:.1f}" y="{y + 1}" width="{width - 2:.1f}" height="42" rx="6" '
            f'fill="none" stroke="{LINE}"/>',
            text(middle, y + 19, name, weight="bold", size=13),
            text(middle, y + 35, description),
        ]
    )


def arrow(top: float, bottom: float, label: str) -> str:
    x = WIDTH / 2
    return "\n".join(
        [
            f'<path d="M{x} {top + 3}V{bottom - 3}m-4 -6l4 6l4 -6" fill="none" stroke="{LINE}"/>',
            text(x + 10, (top + bottom) / 2 + 4, label, anchor="start"),
        ]
    )


def text(
    x: float,
    y: float,
    words: str,
    *,
    color: str = TEXT,
    weight: str = "normal",
    size: int = 11,
    anchor: str = "middle",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.0f}" fill="{color}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )

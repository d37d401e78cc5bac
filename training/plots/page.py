# SPDX-License-Identifier: Apache-2.0
"""Creates self-contained HTML pages with text, tables and figures, for desktop and mobile."""

from __future__ import annotations

import base64
import html
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from keras_bert import atomic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light dark; --text: #222; --faint: #666; --line: #ddd; --page: #fff;
  --answer: #bcd9f5; --gold: #2a7d4f; --wrong: #f6c9c4; }
@media (prefers-color-scheme: dark) { :root { --text: #ddd; --faint: #999; --line: #444;
  --page: #181a1b; --answer: #1f4a75; --gold: #58b583; --wrong: #6d2a24; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 0 auto; padding: 1em;
  color: var(--text); background: var(--page); overflow-wrap: anywhere; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; } h3 { font-size: 1em; }
p.faint, .faint { color: var(--faint); font-weight: normal; }
.wide { overflow-x: auto; margin-bottom: 1em; }
table { border-collapse: collapse; font-size: 0.93em; }
caption { text-align: left; color: var(--faint); padding-bottom: 0.4em; }
th, td { text-align: left; vertical-align: top; padding: 0.25em 0.8em 0.25em 0;
  border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
th { font-weight: 600; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.text { min-width: 16em; white-space: pre-wrap; }
figure { display: inline-block; margin: 0 1em 1em 0; max-width: 100%; vertical-align: top; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
mark { color: inherit; background: none; }
mark.answer { background: var(--answer); }
mark.gold { border-bottom: 3px solid var(--gold); }
mark.both { background: var(--answer); border-bottom: 3px solid var(--gold); }
mark.wrong { background: var(--wrong); }
"""


@dataclass(frozen=True)
class Html:
    """HTML, as opposed to plain text that must be escaped."""

    text: str


Cell = str | int | float | None | Html


def text(content: str, faint: bool = False) -> Html:
    """Returns a paragraph, in a fainter color if `faint` is set."""
    attribute = ' class="faint"' if faint else ""
    return Html(f"<p{attribute}>{html.escape(content)}</p>")


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], caption: str = "") -> Html:
    """Returns a table that scrolls horizontally in a narrow window.

    Args:
        columns: The headers.
        rows: Rows of cells. Strings are escaped, integers get thousands separators, floats are
            rounded to two decimals, `None` becomes an empty cell, and `Html` is not changed.
        caption: A line above the table.
    """
    rows = [list(row) for row in rows]
    is_number = [
        any(isinstance(row[index], int | float) for row in rows) for index in range(len(columns))
    ]
    head = "".join(
        f"<th{_number_attribute(number)}>{html.escape(name)}</th>"
        for name, number in zip(columns, is_number, strict=True)
    )
    lines = [f"<tr>{''.join(map(_cell, row, is_number))}</tr>" for row in rows]
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    body = "\n".join(lines)
    return Html(
        f'<div class="wide"><table>{title}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _number_attribute(number: bool) -> str:
    return ' class="number"' if number else ""


_LONG = 60


def _cell(value: Cell, number: bool) -> str:
    if isinstance(value, Html):
        return f'<td class="text">{value.text}</td>'
    if isinstance(value, str):
        attribute = ' class="text"' if len(value) > _LONG else ""
        return f"<td{attribute}>{html.escape(value)}</td>"
    text = "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    return f"<td{_number_attribute(number)}>{text}</td>"


def figure(plot: Figure, description: str) -> Html:
    """Returns a matplotlib figure as an embedded SVG image."""
    import matplotlib

    buffer = io.BytesIO()
    # With a fixed salt and no date, the same figure always produces the same page.
    with matplotlib.rc_context({"svg.hashsalt": "page"}):
        plot.savefig(buffer, format="svg", metadata={"Date": None})
    content = base64.b64encode(buffer.getvalue()).decode()
    return Html(
        f'<figure><img alt="{html.escape(description)}" '
        f'src="data:image/svg+xml;base64,{content}"></figure>'
    )


def section(title: str, *blocks: Html) -> Html:
    """Returns blocks under a heading."""
    return Html(f"<h2>{html.escape(title)}</h2>\n" + "\n".join(block.text for block in blocks))


def write_page(path: str | os.PathLike[str], title: str, sections: Iterable[Html]) -> Path:
    """Writes a page that requires no other files and no network access."""
    path = Path(path)
    content = "\n".join(block.text for block in sections)
    atomic.write_text(
        path,
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n"
        f"<h1>{html.escape(title)}</h1>\n{content}\n</html>\n",
    )
    return path

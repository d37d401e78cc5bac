# SPDX-License-Identifier: Apache-2.0
"""Formats tables as aligned text for a terminal, as Markdown, and as HTML for a notebook."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

# Floats are shown with two decimals, `None` as a blank, and line breaks as spaces.
Cell = str | int | float | None
Records = Mapping[str, Mapping[str, Cell]]


def text_table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], numbers_from: int = 1
) -> str:
    """Formats a table whose columns are aligned with spaces.

    Args:
        columns: The column headers.
        rows: The cells of each row.
        numbers_from: Index of the first right-aligned column.

    Example:

    >>> print(text_table(["dev", "accuracy", "rows"], [["BERT", 91.5, 872], ["random", 50, None]]))
    dev     accuracy  rows
    BERT       91.50   872
    random        50
    """
    lines = [list(map(_text, row)) for row in (columns, *rows)]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    aligned = [
        [
            cell + spaces if index < numbers_from else spaces + cell
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
            for spaces in [" " * (width - _width(cell))]
        ]
        for line in lines
    ]
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Formats a Markdown table. Accepts the same columns and rows as `text_table`.

    Vertical bars are escaped unless they are already escaped.

    Example:

    >>> print(markdown_table(["dev", "accuracy"], [["BERT", 91.5]]))
    | dev | accuracy |
    |---|---|
    | BERT | 91.50 |
    """
    heads, *lines = (f"| {' | '.join(map(_escaped, row))} |" for row in (columns, *rows))
    return "\n".join([heads, "|---" * len(columns) + "|", *lines])


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Formats an HTML table for notebooks. Accepts the same columns and rows as `text_table`.

    Example:

    >>> html_table(["", "f1"], [["R & D", 91.5]])
    '<table><tr><th></th><th>f1</th></tr><tr><td>R &amp; D</td><td>91.50</td></tr></table>'
    """
    lines = [
        "".join(f"<{tag}>{html.escape(_text(cell))}</{tag}>" for cell in row)
        for tag, row in (("th", columns), *(("td", row) for row in rows))
    ]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def table_from_records(title: str, records: Records) -> tuple[list[str], list[list[Cell]]]:
    """Converts records to table columns and rows.

    Args:
        title: Header of the column with the records' names.
        records: The values of each record, by column name.

    Example:

    >>> table_from_records(
    ...     "dev", {"BERT": {"accuracy": 91.5}, "random": {"accuracy": 50.0, "f1": 48.9}})
    (['dev', 'accuracy', 'f1'], [['BERT', 91.5, None], ['random', 50.0, 48.9]])
    """
    columns = list(dict.fromkeys(name for values in records.values() for name in values))
    rows = [[name, *map(values.get, columns)] for name, values in records.items()]
    return [title, *columns], rows


def replace_underscores(records: Records) -> Records:
    """Replaces underscores in record names with spaces, because the names are keyword arguments."""
    return {name.replace("_", " "): values for name, values in records.items()}


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:.2f}" if isinstance(cell, float) else " ".join(str(cell).splitlines())


def _escaped(cell: Cell) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", _text(cell))


def _width(text: str) -> int:
    """Returns the number of terminal columns that a text occupies."""
    return sum(
        0
        if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me")
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in unicodedata.normalize("NFC", text)
    )

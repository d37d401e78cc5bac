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
    widths = [max(map(display_width, column)) for column in zip(*lines, strict=True)]
    aligned = [
        [
            cell + spaces if index < numbers_from else spaces + cell
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
            for spaces in [" " * (width - display_width(cell))]
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


def wrapped_columns(names: Sequence[str], columns: Sequence[Sequence[str]], width: int) -> str:
    """Formats columns next to each other, and continues below if they are wider than `width`.

    Rows without any text in a part are omitted.

    Args:
        names: The row headers. They are repeated in each part.
        columns: The columns, each with one cell per header.
        width: Maximum number of terminal columns.

    Example:

    >>> print(wrapped_columns(["token", "id"], [["a", "7"], ["film", "12"], ["##s", "9"]], 16))
    token  a  film
    id     7  12
    <BLANKLINE>
    token  ##s
    id     9
    """
    parts: list[list[Sequence[str]]] = [[names]]
    used = head = max(map(display_width, names))
    for column in columns:
        needed = 2 + max(map(display_width, column))
        if used + needed > width and len(parts[-1]) > 1:
            parts.append([names])
            used = head
        parts[-1].append(column)
        used += needed
    return "\n\n".join(
        text_table(heads, rows, numbers_from=len(heads))
        for heads, *rows in (
            [row for row in zip(*part, strict=True) if any(row[1:])] for part in parts
        )
    )


def display_width(text: str) -> int:
    """Returns the number of terminal columns that a text occupies."""
    # Medial and final Hangul letters are drawn into the column of an initial letter.
    return sum(
        0
        if unicodedata.combining(character)
        or unicodedata.category(character) in ("Cf", "Me")
        or "\u1160" <= character <= "\u11ff"
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in unicodedata.normalize("NFC", text)
    )

# SPDX-License-Identifier: Apache-2.0
"""Reads CSV and TSV: RFC 4180, files saved by Excel, and TSV without quotes.

We use the module csv instead of pyarrow or pandas. They drop inner quotes that are not doubled,
turn the label `01` into a number and the text `NA` into a missing value, and do not report the line
number of invalid rows.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Literal

from keras_bert.data.text_files import (
    LINES_SAMPLED,
    UNREADABLE,
    UTF_8,
    WESTERN,
    byte_lines,
    is_utf_8,
    likely_encodings,
    read_lines,
    sample_lines,
)

from .row_values import BadRows, excerpt, row_error

# Whether double quotes in TSV enclose cells and are doubled inside, as written by Excel and pandas
# ("csv"), or are text ("none")
Quoting = Literal["auto", "csv", "none"]
# The largest limit that the module csv supports on all platforms. Its default is 131,072.
_LONGEST_CELL = 2**31 - 1
# A first line that sets the separator, for Excel
_NAMED_SEPARATOR = re.compile(r'"?sep=(.)"?\r?\n?')


def read_separated(
    path: Path,
    format: str,
    quoting: Quoting = "auto",
    columns: Collection[str] = (),
    bad: BadRows | None = None,
    encoding: str = UTF_8,
) -> Iterator[tuple[int, list[str]]]:
    """Yields the first line number and the cells of each row.

    Rows of blank cells are rows. Empty lines are skipped, except between rows with a single column.
    A file that is not UTF-8 is read as Windows-1252 if it is likely in this encoding, as are CSV
    files saved by Excel, unless a different `encoding` is given.

    Raises:
        ValueError: If the file is invalid.
    """
    bad = bad or BadRows()
    csv.field_size_limit(_LONGEST_CELL)
    encoding = _western_or_utf_8(path) if encoding == UTF_8 else encoding

    def lines() -> Iterator[str]:
        return read_lines(path, encoding)

    if format == "csv":
        rows = _csv_rows(path, lines, *_separator(lines, columns), bad)
    elif quoting == "csv" or (quoting == "auto" and _is_quoted(path, lines)):
        rows = _csv_rows(path, lines, "\t", 0, bad)
    else:
        plain = (line.rstrip("\r\n") for line in lines())
        rows = ((n, line.split("\t") if line else []) for n, line in enumerate(plain, start=1))
    empty_lines: list[int] = []
    width = 0
    for number, cells in rows:
        is_empty = len(cells) < 2 and not "".join(cells).strip()
        if is_empty and (width != 1 or not cells):
            empty_lines.append(number)
            continue
        width = width or len(cells)
        if width == 1:
            yield from ((empty, [""]) for empty in empty_lines)
        empty_lines.clear()
        yield number, cells


def _csv_rows(
    path: Path, lines: Callable[[], Iterator[str]], separator: str, offset: int, bad: BadRows
) -> Iterator[tuple[int, list[str]]]:
    """Skips `offset` lines. Yields the first line number and the cells of each row."""
    reader = csv.reader(itertools.islice(lines(), offset, None), delimiter=separator, strict=True)
    while True:
        start = offset + reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            hint = (
                "Perhaps an unquoted field contains a carriage return"
                if "new-line" in str(error)
                else "Perhaps a quote is not closed, or is not doubled inside a quoted field"
            )
            message = f"the row that starts here must be valid CSV. Received: {error}. {hint}"
            problem = row_error(path, f"line {start}", message)
            problem.__cause__ = error
            bad.add(problem)
            # An unclosed quote has consumed the rows after it, so restart at the next line.
            offset = start
            rest = itertools.islice(lines(), offset, None)
            reader = csv.reader(rest, delimiter=separator, strict=True)
        else:
            yield start, cells


def _separator(lines: Callable[[], Iterator[str]], columns: Collection[str]) -> tuple[str, int]:
    """Returns a CSV file's separator, and the number of lines before its first row.

    A first line such as `sep=;` sets the separator. Otherwise, it is a semicolon if only semicolons
    divide the first row, and this row is not the single requested column. Excel writes semicolons
    if the comma is the decimal mark. In all other cases, the separator is a comma.
    """
    if first_line := _NAMED_SEPARATOR.fullmatch(next(lines(), "")):
        return first_line[1], 1
    comma_cells, semicolon_cells = (_first_row(lines(), separator) for separator in ",;")
    is_wanted = bool(columns) and {str(column) for column in columns} <= {"0", "".join(comma_cells)}
    return (";" if len(comma_cells) < 2 <= len(semicolon_cells) and not is_wanted else ","), 0


def _first_row(lines: Iterator[str], separator: str) -> list[str]:
    try:
        return next(filter(None, csv.reader(lines, delimiter=separator, strict=True)), [])
    except csv.Error:
        return []


def _western_or_utf_8(path: Path) -> str:
    """Returns Windows-1252 if no non-ASCII line is UTF-8 and it is the most likely encoding."""
    examples: list[tuple[int, bytes]] = []
    others_are_utf_8 = False
    with open(path, "rb") as file, contextlib.suppress(*UNREADABLE):  # The reader raises them.
        lines, _ = byte_lines(file, path)
        numbered = ((n, line) for n, line in enumerate(lines, start=1) if not line.isascii())
        examples += itertools.islice(numbered, LINES_SAMPLED)
        if not examples or any(is_utf_8(line) for _, line in examples):
            return UTF_8
        sample = sample_lines(line for _, line in examples)
        if next(iter(likely_encodings(sample)), "") != WESTERN:
            return UTF_8
        others_are_utf_8 = any(is_utf_8(line) for _, line in numbered)
    if others_are_utf_8 or not examples:
        return UTF_8
    number, line = examples[0]
    warnings.warn(
        f"{path} is not UTF-8, and is read as Windows-1252, in which line {number} is "
        f"{excerpt(line.decode(WESTERN, 'replace').strip())}. If that is wrong, pass the file's "
        "--encoding",
        stacklevel=2,
    )
    return WESTERN


# A cell in double quotes, where inner quotes are doubled, or a cell without double quotes
_CELL = r'(?:"[^"]*+(?:""[^"]*+)*+"|[^"\t\r\n]*+)'
_CELLS = re.compile(rf"(?:\A|\t)({_CELL})")
_ROW = re.compile(rf"{_CELL}(?:\t{_CELL})*+")
_EMPTY_LINE = re.compile(r'[^\S\t]*|"\s*"')
_LOOKS_QUOTED = re.compile(r'(?<![^\t])"[^"\t]*+(?:""[^"\t]*+)++"(?![^\t\r\n])')
_CHOOSE_QUOTING = (
    "The quotes are read as text. Pass --quoting=none to confirm that, or --quoting=csv if they "
    "enclose cells, as written by Excel and pandas"
)


def _is_quoted(path: Path, lines: Callable[[], Iterator[str]]) -> bool:
    """Returns whether double quotes in a TSV file enclose cells, rather than being text.

    This requires that all quotes enclose cells or are doubled inside. It also requires that some
    quotes are doubled, that all cells in a column are quoted, or that only this reading gives all
    rows the same number of cells. If some cells look quoted but this is uncertain, quotes are text,
    with a warning.
    """
    num_rows, num_quoted, is_doubled, has_separators = 0, 0, False, False
    quoted_columns: set[int] | None = None
    line_widths, row_widths = set(), set()
    for row in _rows_in_quotes(lines()):
        if _EMPTY_LINE.fullmatch(row):
            continue
        if not _ROW.fullmatch(row):
            _warn_of_quotes(path, lines())
            return False
        cells = _CELLS.findall(row)
        texts = {index: cell[1:-1] for index, cell in enumerate(cells) if cell.startswith('"')}
        num_rows += 1
        num_quoted += len(texts)
        is_doubled |= any('"' in cell for cell in texts.values())
        has_separators |= any(set("\t\n\r") & set(cell) for cell in texts.values())
        quoted_columns = {*texts} if quoted_columns is None else quoted_columns & texts.keys()
        line_widths |= {line.count("\t") + 1 for line in row.split("\n") if line.rstrip("\r")}
        row_widths.add(len(cells))
    # If all lines have the same number of cells, they are hardly parts of multi-line cells.
    are_rows = len(line_widths) == 1 and line_widths != {1}
    if not num_quoted or (are_rows and len(row_widths) > 1):
        return False
    if (quoted_columns and num_rows > 1) or len(row_widths) == 1 < len(line_widths):
        return True
    if is_doubled and not (are_rows and has_separators):
        return True
    warnings.warn(
        f"{path}: {num_quoted} cells are in double quotes, which may be text. {_CHOOSE_QUOTING}",
        stacklevel=2,
    )
    return False


def _rows_in_quotes(lines: Iterator[str]) -> Iterator[str]:
    """Yields lines. Lines between which a quote is open are joined."""
    row: list[str] = []
    is_open = False
    for line in lines:
        row.append(line.rstrip("\r\n"))
        is_open ^= line.count('"') % 2 == 1
        if not is_open:
            yield "\n".join(row)
            row.clear()
    if row:
        yield "\n".join(row)


def _warn_of_quotes(path: Path, lines: Iterator[str]) -> None:
    """Warns if some cells look quoted, although other quotes in the file are text."""
    line_numbers = [number for number, line in enumerate(lines, 1) if _LOOKS_QUOTED.search(line)]
    if line_numbers:
        warnings.warn(
            f"{path}: in {len(line_numbers)} lines, such as line {line_numbers[0]}, quotes enclose "
            f"a cell and are doubled inside, but in other lines they do not. {_CHOOSE_QUOTING}",
            stacklevel=2,
        )

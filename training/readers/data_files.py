# SPDX-License-Identifier: Apache-2.0
"""Reads rows from data files of any format, each with its place in the file.

Each error contains the file and the place (in text files the physical line, from 1 as in an
editor), and quotes a short excerpt. A row of blank cells counts as a row, so that predictions align
with the rows in a table.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from keras_bert import checks
from keras_bert.data.text_files import UTF_8, plain_name, read_lines

from . import arrow_files
from .column_names import HEADER_NAMES, without_annotators
from .json_objects import read_objects
from .row_values import BadRows, as_id, excerpt, field, is_number, row_error
from .separated_values import Quoting, read_separated

Header = Literal["auto", "yes", "no"]

# Maps a suffix to its format
FORMATS = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "arrow",
    ".arrow": "arrow",
    ".xlsx": "xlsx",
}
# How to convert two files with texts and labels, which are not supported
TWO_FILES = (
    ". If texts and labels are on the lines of two files, this makes one file of them: paste "
    "texts.txt labels.txt > train.tsv. Read it with --header=no --text=0 --label=1 --quoting=none"
)
# Formats with rows of cells, where the first row may be a header. Other formats have fields.
_TABLES = ("tsv", "csv", "xlsx")
# Flags that only some formats support, and these formats
FORMATS_OF = {"header": _TABLES, "quoting": ("tsv",), "encoding": ("tsv", "csv", "jsonl")}
# Suffixes of files with one word per line. They are not tables of texts.
TAGGING_SUFFIXES = (".conll", ".conllu", ".bio", ".iob")
# The role of a column with all labels. With one column per label, the roles are `labels.NAME`.
LABELS = "labels"


class MissingColumnError(ValueError):
    """Raised if a file lacks a requested column."""


class Row(NamedTuple):
    """One example: the place where it starts, and a string for each role."""

    place: str
    cells: dict[str, str]


def exists(path: Path) -> bool:
    """Returns whether a path is a data file, a directory of data files, or one of its splits."""
    return path.is_file() or arrow_files.is_dataset(path)


def infer_format(path: Path, encoding: str = UTF_8) -> str:
    """Infers the format from the suffix, and ignores compression suffixes such as .gz.

    Raises:
        ValueError: If the suffix is unknown.
    """
    suffix = data_suffix(path)
    if suffix == ".txt" and "\t" in next(read_lines(path, encoding), ""):  # For example, SICK.
        return "tsv"
    if suffix not in FORMATS and arrow_files.is_dataset(path):
        return "arrow"
    if suffix not in FORMATS:
        raise ValueError(
            f"the suffix of {path} must be one of {', '.join(FORMATS)}. Text files may also have "
            f".gz, .bz2, .xz or .zst. Received: {suffix!r}. Otherwise, set --format to one of "
            f"{', '.join(dict.fromkeys(FORMATS.values()))}{TWO_FILES if suffix == '.txt' else ''}"
        )
    return FORMATS[suffix]


def has_records(path: Path) -> bool:
    """Returns whether a file's rows have fields, which may contain lists."""
    return FORMATS.get(data_suffix(path)) in ("jsonl", "arrow") or arrow_files.is_dataset(path)


def data_suffix(path: Path) -> str:
    """Returns a file's suffix in lower case, without compression suffixes such as .gz."""
    return Path(plain_name(path.name)).suffix.lower()


def is_array(path: Path, encoding: str = UTF_8) -> bool:
    """Returns whether a JSON file contains an array, rather than one or more objects."""
    lines = read_lines(path, encoding)
    return next((line for line in lines if line.strip()), "").lstrip().startswith("[")


def column_names(path: Path, format: str, encoding: str = UTF_8) -> list[str]:
    """Returns the cells of a table's first row, or the names of the fields in the first object.

    Names of nested fields contain dots, such as `labels.stars`.
    """
    if format not in _TABLES:
        records = read_records(path, format, BadRows(collect=True), encoding=encoding)
        return [*_field_names(next((record for _, record in records), {}))]
    rows = read_cells(path, format, encoding=encoding)
    return next(([cell.strip() for cell in row] for _, row in rows if not _is_blank(row)), [])


def read_columns(
    path: Path,
    format: str,
    columns: Mapping[str, str],
    header: Header,
    quoting: Quoting = "auto",
    optional: Mapping[str, str] | None = None,
    blank_end: bool = True,
    bad: BadRows | None = None,
    encoding: str = UTF_8,
) -> tuple[list[Row], Header]:
    """Reads the requested columns of every row.

    Args:
        path: The file.
        format: One of the values of `FORMATS`.
        columns: Maps each role (`text`, `text_pair`, `label`, …) to the column's name or index. In
            JSON, the name may be a path into nested objects and lists, such as `labels.0.name`.
        header: Whether the first row is a header. `"auto"` infers it.
        quoting: How to read quotes in TSV. `"auto"` infers it from the file.
        optional: Maps further roles to the names of optional columns.
        blank_end: Whether to keep blank rows at the end of tables.
        bad: Collects invalid rows. By default, the first invalid row raises an error.
        encoding: The encoding of text files without a byte order mark.

    Returns:
        The rows, and whether the file has a header. `"auto"` means that the columns do not
        determine it. Then the rows include the first row of the file.

    Raises:
        MissingColumnError: If a column does not exist.
        ValueError: If the file is invalid.
    """
    optional, bad = optional or {}, bad or BadRows()
    if format not in _TABLES:
        if format not in FORMATS.values():
            raise ValueError(
                f"--format must be {', '.join(dict.fromkeys(FORMATS.values()))}. Received: "
                f"{format!r}"
            )
        return list(_rows_of_records(path, format, columns, optional, bad, encoding)), "yes"
    table = list(read_cells(path, format, quoting, columns.values(), bad, encoding))
    while table and not blank_end and _is_blank(table[-1][1]):
        del table[-1]
    if not table:
        raise ValueError(f"{path} must not be empty")
    is_named = not all(map(is_position, columns.values()))
    start = 0
    if header == "yes" or is_named:
        start = next((n for n, (_, cells) in enumerate(table) if not _is_blank(cells)), 0)
    place, first = table[start]
    names = [cell.strip() for cell in first]
    present = {role: name for role, name in optional.items() if names.count(name) == 1}
    if header == "auto" and (present or is_named or all(one in names for one in columns.values())):
        header = "yes"
    if header == "yes":
        columns = {**columns, **present}
    # A header has the right number of columns. Without a header, use the most frequent number.
    widths = Counter(len(cells) for _, cells in table)
    width = len(first) if header == "yes" else widths.most_common(1)[0][0]
    indices = {
        role: _column_index(path, place, role, column, names, width, header == "yes")
        for role, column in columns.items()
    }
    table = table[start + (header == "yes") :]
    good = bad.filter(table, lambda row: _check_width(path, row, width))
    return [
        Row(place, {role: cells[index] for role, index in indices.items()}) for place, cells in good
    ], header


def read_records(
    path: Path,
    format: str | None = None,
    bad: BadRows | None = None,
    single: Collection[str] | None = None,
    encoding: str = UTF_8,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the place and the fields of each row. In a table, the header contains the names.

    Args:
        path: The file.
        format: One of the values of `FORMATS`. By default, it is inferred from the suffix.
        bad: Collects invalid rows. By default, the first invalid row raises an error.
        single: The table columns that must not occur twice. By default, all columns. Other
            duplicate columns are dropped.
        encoding: The encoding of text files without a byte order mark.

    Raises:
        ValueError: If the file is invalid, if a column of `single` occurs twice, or if a row does
            not have the same number of columns as the header.
    """
    format, bad = format or infer_format(path, encoding), bad or BadRows()
    if format == "jsonl":
        yield from read_objects(read_lines(path, encoding), path, bad)
    elif format == "arrow":
        yield from arrow_files.read_rows(path, bad)
    else:
        table = read_cells(path, format, bad=bad, encoding=encoding)
        header, first = next((row for row in table if not _is_blank(row[1])), ("line 1", []))
        names = [cell.strip() for cell in first]
        for name in names if single is None else single:
            check_single(path, header, name, names)
        indices = [index for index, name in enumerate(names) if names.count(name) == 1]
        for place, cells in bad.filter(table, lambda row: _check_width(path, row, len(names))):
            yield place, {names[index]: cells[index] for index in indices}


def _is_blank(cells: list[str]) -> bool:
    return not any(map(str.strip, cells))


def _check_width(path: Path, row: tuple[str, list[str]], width: int) -> None:
    place, cells = row
    if len(cells) != width:
        start = excerpt(cells[0], 40)
        raise row_error(
            path,
            place,
            f"each row must have {width} columns. Received: {len(cells)} columns, starting with "
            f"{start}",
        )


def read_cells(
    path: Path,
    format: str,
    quoting: Quoting = "auto",
    columns: Collection[str] = (),
    bad: BadRows | None = None,
    encoding: str = UTF_8,
) -> Iterator[tuple[str, list[str]]]:
    """Yields the place where each table row starts, and its cells.

    Args:
        path: The file.
        format: `"tsv"`, `"csv"` or `"xlsx"`.
        quoting: How to read quotes in TSV. `"auto"` infers it from the file.
        columns: The columns to read, by name or index. By default, more than one.
        bad: Collects invalid rows. By default, the first invalid row raises an error.
        encoding: The encoding of text files without a byte order mark.

    Raises:
        ValueError: If the file is invalid.
    """
    if format == "xlsx":
        unit, rows = "row", _excel_rows(path)
    else:
        unit, rows = "line", read_separated(path, format, quoting, columns, bad, encoding)
    for number, cells in rows:
        yield f"{unit} {number}", cells


def _excel_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the number and the cells of each row in an Excel file's first sheet."""
    with checks.importing("tables", f"{path}, an Excel file,"):
        import openpyxl
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheet, *others = book.worksheets
        sheet.reset_dimensions()  # The dimensions in the file may be wrong.
        rows = [[_excel_text(value) for value in row] for row in sheet.iter_rows(values_only=True)]
        book.close()
    except Exception as error:  # openpyxl raises errors of any type for invalid files.
        raise ValueError(f"{path} cannot be read as an Excel file: {error}") from error
    if others:
        warnings.warn(
            f"{path} has {1 + len(others)} sheets. Only the first sheet, {sheet.title!r}, is read",
            stacklevel=2,
        )
    # Drop trailing columns without values. They may exist because their cells are formatted.
    width = max((n for row in rows for n, cell in enumerate(row, start=1) if cell), default=0)
    for number, row in enumerate(rows, start=1):
        yield number, (row + [""] * width)[:width]


def _excel_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    return "" if value is None else str(value)


def without_header(path: Path, rows: list[Row], header: Header) -> list[Row]:
    """Returns the rows without the first row if it is a header.

    Raises:
        ValueError: If the first row looks like a header, but `header` is `"no"`.
    """
    if header == "yes" or not _starts_with_header(rows):
        return rows
    if header == "auto":
        return rows[1:]
    first = rows[0]
    role = "label" if "label" in first.cells else "text"
    value = excerpt(first.cells[role])
    raise row_error(
        path,
        first.place,
        f"the {role} {value} looks like a column name, but --header=no was given. Pass "
        "--header=yes to read the row as a header",
    )


def _starts_with_header(rows: list[Row]) -> bool:
    """Returns whether the first row looks like a header.

    With labels, it is a header if its label occurs in no other row, and is either a common column
    name or the only label that is not a number. Without labels, its text must be a column name.
    """
    if not rows:
        return False
    if "label" not in rows[0].cells:
        return rows[0].cells.get("text", "").strip().casefold() in HEADER_NAMES["text"]
    first, *others = [row.cells["label"].strip() for row in rows]
    if not first or first in others:
        return False
    only_word = bool(others) and all(map(is_number, others)) and not is_number(first)
    return only_word or first.casefold() in HEADER_NAMES["label"]


def is_position(column: str) -> bool:
    """Returns whether a column is given by its index rather than by its name."""
    return column.isascii() and column.isdigit()


def _column_index(
    path: Path, place: str, role: str, column: str, names: list[str], width: int, header: bool
) -> int:
    """Converts a column's name or index to its index."""
    if header:
        check_single(path, place, column, names)
    if header and column in names:
        return names.index(column)
    if not is_position(column):
        raise MissingColumnError(f"{path}, {place}: {_no_such_name(role, column, names, header)}")
    if not 0 <= int(column) < width:
        raise MissingColumnError(
            f"{path}, {place}: {role} must be a column from 0 to {width - 1}. Received: {column}. "
            f"The first row is {excerpt(names, 300)}"
        )
    return int(column)


def check_single(path: Path, place: str, column: str, names: list[str]) -> None:
    """Checks that only one column has the requested name.

    Raises:
        ValueError: If multiple columns have it. The message contains the file, line and column.
    """
    if names.count(column) > 1:
        raise row_error(
            path,
            place,
            f"column names must be unique. Received: {column!r} twice. Use the column's index "
            "instead",
        )


def _no_such_name(role: str, column: str, names: list[str], header: bool) -> str:
    if not header:
        return f"{role} must be an index from 0 with --header=no. Received: column {column!r}"
    for separator, format in (("\t", "tsv"), (",", "csv")):
        if len(names) == 1 and separator in names[0]:
            return (
                f"{role} must be a column in the first row. Received: column {column!r} and the "
                f"row {excerpt(names, 300)}, a single cell that looks like {format}. Pass "
                f"--format={format}, or change the file's suffix"
            )
    return (
        f"{role} must be a column in the first row. Received: column {column!r}"
        f"{_did_you_mean(column, names)} and the row {excerpt(names, 300)}. If this row is not a "
        "header, pass --header=no and the indices of columns from 0, such as --text=0"
    )


def _did_you_mean(column: str, names: Iterable[str]) -> str:
    """Returns a hint with all columns that have similar names, or `""`."""
    by_spelling = {name.casefold(): name for name in without_annotators([*names])}
    wanted = column.casefold()
    close = {
        *difflib.get_close_matches(wanted, by_spelling, n=len(by_spelling) or 1),
        *(name for name in by_spelling if wanted in re.split(r"[\W_]+", name)),
    }
    similar = [repr(name) for folded, name in by_spelling.items() if folded in close]
    return f" (did you mean {' or '.join(similar)}?)" if similar else ""


def _rows_of_records(
    path: Path,
    format: str,
    columns: Mapping[str, str],
    optional: Mapping[str, str],
    bad: BadRows,
    encoding: str,
) -> Iterator[Row]:
    """Yields the requested fields of each record."""
    are_texts: dict[str, set[bool]] = {}
    for place, record in read_records(path, format, bad, encoding=encoding):
        cells = {
            role: as_id(record[column])
            for role, column in optional.items()
            if record.get(column) is not None
        }
        try:
            for role, column in columns.items():
                cells[role] = _cell(path, place, role, str(column), record)
        except ValueError as error:
            bad.add(error)
        else:
            if "label" in cells:
                is_text = isinstance(field(record, str(columns["label"])), str)
                are_texts.setdefault(cells["label"], set()).add(is_text)
            yield Row(place, cells)
    for label, kinds in are_texts.items():
        if label and len(kinds) > 1:
            warnings.warn(
                f"{path}: the labels {label} and {json.dumps(label)} are read as the same class",
                stacklevel=2,
            )


def _cell(path: Path, place: str, role: str, column: str, record: Mapping[str, Any]) -> str:
    """Returns a field as a cell. null and NaN, as written by pandas, become an empty cell."""
    try:
        value = field(record, column)
    except KeyError:
        names = sorted(_field_names(record))
        raise MissingColumnError(
            f"{path}, {place}: {role} must be a field of the object. Received: field {column!r}"
            f"{_did_you_mean(column, names)} and an object with {excerpt(names, 300)}"
        ) from None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, Exception):  # from a Parquet or Arrow file
        raise row_error(path, place, f"{role} cannot be read: {value}") from value
    may_be_number = role in ("label", "grade") or role.startswith(LABELS)
    if may_be_number and isinstance(value, float) and math.isinf(value):
        raise row_error(path, place, f"{role} must be a finite number. Received: {value}")
    if may_be_number and isinstance(value, bool | int | float):
        return json.dumps(value)
    if role == LABELS and isinstance(value, list):
        return json.dumps(value)
    types = "a string, a number or a boolean" if may_be_number else "a string"
    fix = f". Pass one of its fields, {role}.NAME" if isinstance(value, dict | list) else ""
    if role == "label" and isinstance(value, list):
        fix += ", or --multi_label for a list of labels"
    raise row_error(path, place, f"{role} must be {types}. Received: a {type(value).__name__}{fix}")


def _field_names(record: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in record.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _field_names(value, f"{prefix}{name}.")

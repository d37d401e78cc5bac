# SPDX-License-Identifier: Apache-2.0
"""Rows of TSV, CSV, JSON Lines and JSON files, each with the line on which it starts.

Every error names the file and the physical line, counted from 1 as in an editor, and quotes a short
excerpt. Files may be compressed by gzip; they are UTF-8, or UTF-16 with a byte order mark.

A row of blank cells is a row, so that predictions can be aligned with a table's rows. An empty line
is none, except between the rows of a single column.
"""

import csv
import difflib
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from keras_bert.data.text_files import read_lines

Header = bool | Literal["auto"]
# Whether double quotes in TSV enclose cells ("csv": doubled inside, as Excel and pandas write
# them), or are text ("none")
Quoting = Literal["auto", "csv", "none"]

# Suffix -> format
FORMATS = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
# Suffixes of files with words in columns, which are not tables of texts
TAGGING_SUFFIXES = (".conll", ".bio", ".iob")
# Values of the flag --kind
KINDS = ("auto", "text", "squad", "tagging", "choice")
_KIND_OF_SUFFIX = {
    **dict.fromkeys(FORMATS, "text"),
    ".json": "squad",
    **dict.fromkeys(TAGGING_SUFFIXES, "tagging"),
}
_BLANKS = re.compile(r"[ \t\r\n]*")
# Common names for columns of labels and of texts
_USUAL_LABELS = ("label", "class", "category", "target", "score", "rating", "sentiment")
_USUAL_TEXTS = ("text", "sentence", "sentence1", "review", "comment", "question", "question1")
_USUAL_NAMES = {
    "label": frozenset((*_USUAL_LABELS, "labels")),
    "text": frozenset((*_USUAL_TEXTS, "texts", "content", "body", "tweet", "document", "query")),
}


class Row(NamedTuple):
    """One example as strings: the line on which it starts, and a cell for each role."""

    line: int
    cells: dict[str, str]


# The largest limit of the module csv on all platforms; by default it is 131,072
_LONGEST_CELL = 2**31 - 1
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST = 3.4028234e38  # of float32
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class MissingColumnError(ValueError):
    """Raised if a file lacks a requested column."""


@dataclass
class Rows:
    """The rows of a file.

    Args:
        rows: The rows.
        header: Whether the file has a header; `"auto"` if the columns do not determine it, in
            which case its first row is the first of `rows`.
        bad: Messages about the malformed rows that were skipped.
    """

    rows: list[Row]
    header: Header
    bad: list[str]


def excerpt(value: Any, limit: int = 80) -> str:
    """Returns the `repr` of a value for a message, truncated to a length.

    Example:

    >>> excerpt("a" * 1000, 10)
    "'aaaaaaaa…"
    """
    # Long strings are truncated before `repr`, not after it.
    text = repr(value[:limit] if isinstance(value, str) else value)
    is_whole = len(text) <= limit and not (isinstance(value, str) and len(value) > limit)
    return text if is_whole else f"{text[: limit - 1]}…"


def row_error(path: Path | str, line: int, message: str) -> ValueError:
    """Returns an error that names the file and the line."""
    return ValueError(f"{path}, line {line}: {message}")


def format_of(path: Path) -> str:
    """Infers the format from the suffix, ignoring `.gz`.

    Raises:
        ValueError: If the suffix is unknown.
    """
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    suffix = name.suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(
            f"{path}: cannot infer the format from the suffix {suffix!r}, expected one of "
            f"{', '.join(FORMATS)} (optionally with .gz), or --format: tsv, csv or jsonl"
        )
    return FORMATS[suffix]


def kind_of(path: Path, kind: str = "auto") -> str:
    """Returns the kind of data in a file, one of `KINDS` without `auto`.

    Args:
        path: The file.
        kind: The value of `--kind`; `auto` infers it from the suffix, ignoring `.gz`, and of a JSON
            file from whether it is an array.

    Raises:
        ValueError: If the suffix is unknown.
    """
    if kind != "auto":
        return kind
    suffix = Path(str(path).removesuffix(".gz")).suffix.lower()
    if suffix not in _KIND_OF_SUFFIX:
        raise ValueError(
            f"cannot infer the kind of data from the name of {path}, expected one of the suffixes "
            f"{', '.join(_KIND_OF_SUFFIX)} (optionally with .gz), or --kind, one of "
            f"{', '.join(KINDS[1:])}"
        )
    return "text" if suffix == ".json" and is_array(path) else _KIND_OF_SUFFIX[suffix]


def read_columns(
    path: Path,
    format: str,
    columns: Mapping[str, str | int],
    header: Header,
    skip_bad: bool,
    quoting: Quoting = "auto",
    optional: Mapping[str, str] | None = None,
    blank_end: bool = True,
) -> Rows:
    """Reads the requested columns of every row.

    Args:
        path: The file.
        format: `"tsv"`, `"csv"` or `"jsonl"`.
        columns: Maps each role (`text`, `text_pair`, `label`, …) to the column's name or index. In
            JSON the name may be a path into nested objects and lists, such as `labels.0.name`.
        header: Whether the first row is a header; `"auto"` infers it.
        skip_bad: Whether to skip rows with another number of columns, and to list them in `bad`.
        quoting: How quotes in TSV are read; `"auto"` infers it from the file.
        optional: Maps further roles to the names of columns that are read if they exist.
        blank_end: Whether blank rows at the end of a table are rows.

    Returns:
        The rows. If their `header` is still `"auto"`, the first row of the file is included.

    Raises:
        MissingColumnError: If a column does not exist.
        ValueError: If the file is malformed.
    """
    optional = optional or {}
    if format == "jsonl":
        return Rows(list(_json_rows(path, columns, optional)), True, [])
    if format not in ("tsv", "csv"):
        raise ValueError(f"--format is {format!r}, expected tsv, csv or jsonl")
    table = list(read_cells(path, format, quoting))
    while table and not blank_end and not any(map(str.strip, table[-1][1])):
        del table[-1]
    if not table:
        raise ValueError(f"{path}: the file is empty")
    start = _first_with_text(table) if header is True or not _all_positions(columns) else 0
    first_line, first = table[start]
    names = [cell.strip() for cell in first]
    found = {role: name for role, name in optional.items() if names.count(name) == 1}
    if header == "auto" and (found or not _all_positions(columns) or _all_named(columns, names)):
        header = True
    columns = {**columns, **(found if header is True else {})}
    # A header has the right number of columns; without one, take the most frequent number.
    width = len(first) if header is True else _usual_width(table)
    indices = _column_indices(path, first_line, columns, names, width, header is True)
    rows, bad = [], []
    for line, cells in table[start + (header is True) :]:
        if len(cells) == width:
            rows.append(Row(line, {role: cells[index] for role, index in indices.items()}))
            continue
        error = _wrong_width(path, line, cells, width)
        if not skip_bad:
            raise error
        bad.append(str(error))
    return Rows(rows, header, bad)


def _first_with_text(table: list[tuple[int, list[str]]]) -> int:
    """Returns the index of the first row that is not blank; 0 if all are."""
    return next((index for index, (_, cells) in enumerate(table) if any(map(str.strip, cells))), 0)


def read_cells(
    path: Path, format: Literal["tsv", "csv"], quoting: Quoting = "auto"
) -> Iterator[tuple[int, list[str]]]:
    """Yields the line on which each row starts, and its cells.

    Args:
        path: The file.
        format: `"tsv"` or `"csv"`.
        quoting: How quotes in TSV are read; `"auto"` infers it from the file.

    Raises:
        ValueError: If the file is malformed.
    """
    is_csv = format == "csv" or quoting == "csv" or (quoting == "auto" and _is_quoted(path))
    delimiter = "," if format == "csv" else "\t"
    rows = _csv_rows(path, delimiter) if is_csv else _plain_rows(path)
    empty_lines: list[int] = []
    width = 0
    for line, cells in rows:
        is_blank = len(cells) < 2 and not "".join(cells).strip()
        if is_blank and (width != 1 or not cells):
            empty_lines.append(line)
            continue
        width = width or len(cells)
        if width == 1:
            yield from ((number, [""]) for number in empty_lines)
        empty_lines.clear()
        yield line, cells


def read_records(path: Path, format: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the line and the fields of each row of JSON, or of a table with a header.

    Args:
        path: The file.
        format: `"tsv"`, `"csv"` or `"jsonl"`; inferred from the suffix by default.

    Raises:
        ValueError: If the file is malformed, two columns have the same name, or a row differs from
            the header in its number of columns.
    """
    format = format or format_of(path)
    if format == "jsonl":
        yield from read_objects(path)
        return
    table = read_cells(path, cast(Literal["tsv", "csv"], format))
    first_line, names = read_header(table)
    for name in names:
        check_single(path, first_line, name, names)
    for line, cells in table:
        if len(cells) != len(names):
            raise _wrong_width(path, line, cells, len(names))
        yield line, dict(zip(names, cells, strict=True))


def read_header(table: Iterator[tuple[int, list[str]]]) -> tuple[int, list[str]]:
    """Returns the line and the names of the first row that is not blank; none of an empty table."""
    for line, cells in table:
        if any(map(str.strip, cells)):
            return line, [cell.strip() for cell in cells]
    return 1, []


def without_header(path: Path, found: Rows) -> list[Row]:
    """Returns the rows without the first one, if it turns out to be a header.

    Raises:
        ValueError: If the first row looks like a header, but `found.header` is False.
    """
    if found.header is True or not _starts_with_header(found.rows):
        return found.rows
    if found.header == "auto":
        return found.rows[1:]
    first = found.rows[0]
    role = "label" if "label" in first.cells else "text"
    value = excerpt(first.cells[role])
    raise row_error(
        path, first.line, f"the {role} {value} looks like a column name; try --header=yes"
    )


def _starts_with_header(rows: list[Row]) -> bool:
    """Returns whether the first row looks like a header: its label is a column name."""
    if not rows:
        return False
    if "label" not in rows[0].cells:
        return rows[0].cells.get("text", "").strip().casefold() in _USUAL_NAMES["text"]
    first, *others = [row.cells["label"].strip() for row in rows]
    if not first or first in others:
        return False
    only_word = bool(others) and all(map(is_number, others)) and not is_number(first)
    return only_word or first.casefold() in _USUAL_NAMES["label"]


def is_number(text: str) -> bool:
    """Returns whether a text is a decimal number in float32's range; not `nan`, `1_0`, `1e39`."""
    return bool(_NUMBER.fullmatch(text)) and abs(float(text)) <= _LARGEST


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the line and the content of each object in JSON Lines or in a JSON array.

    Args:
        path: The file.

    Raises:
        ValueError: If a line or an element is not a JSON object, two of its fields have the same
            name, or it contains an unpaired surrogate.
    """
    return objects_of(read_lines(path), path)


def is_array(path: Path) -> bool:
    """Returns whether a JSON file contains an array, rather than one or several objects."""
    return next((line for line in read_lines(path) if line.strip()), "").lstrip().startswith("[")


def objects_of(lines: Iterable[str], name: Path | str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Parses lines as `read_objects` does.

    Args:
        lines: The lines, with their line ends.
        name: The name of the file, for error messages.
    """
    numbered = enumerate(lines, start=1)
    for number, line in numbered:
        if line.lstrip().startswith("["):
            rest = "".join(line for _, line in numbered)
            yield from _elements(line + rest, number, name)
        elif line.strip():
            line = line.rstrip("\r\n")
            record, end = _decode(line, 0, number, name)
            if line[end:].strip():
                raise row_error(
                    name, number, f"unexpected text after the JSON: {excerpt(line[end:].strip())}"
                )
            yield number, record


def _elements(text: str, number: int, name: Path | str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the line and the object of each element of an array."""
    position = _after_blanks(text, text.index("[") + 1)
    counted, is_first = 0, True
    while text[position : position + 1] != "]":
        if not is_first:
            if text[position : position + 1] != ",":
                raise row_error(name, number, "the array is incomplete, expected a comma or ]")
            position = _after_blanks(text, position + 1)
        number += text.count("\n", counted, position)
        counted, is_first = position, False
        record, end = _decode(text, position, number, name)
        yield number, record
        position = _after_blanks(text, end)
    if text[position + 1 :].strip():
        raise row_error(
            name,
            number + text.count("\n", counted, position),
            f"unexpected text after the array: {excerpt(text[position + 1 :].strip())}",
        )


def _after_blanks(text: str, position: int) -> int:
    blanks = _BLANKS.match(text, position)
    return blanks.end() if blanks else position


def _decode(text: str, start: int, line: int, name: Path | str) -> tuple[dict[str, Any], int]:
    """Returns the JSON object at a position, and the position of its end."""
    start = _after_blanks(text, start)
    try:
        record, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        where = error.pos - (text.rfind("\n", 0, error.pos) + 1)
        line += text.count("\n", start, error.pos)
        raise row_error(name, line, f"not JSON: {error.msg} at position {where}") from error
    except (RecursionError, ValueError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise row_error(name, line, f"cannot be read: {reason}") from error
    if not isinstance(record, dict):
        raise row_error(name, line, f"found a {type(record).__name__}, expected a JSON object")
    if _SURROGATE.search(text, start, end):
        for field_name, value in record.items():
            try:
                json.dumps([field_name, value], ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                raise row_error(
                    name,
                    line,
                    f"{excerpt(field_name)} contains an unpaired surrogate, which is no character",
                ) from error
    return record, end


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"two fields have the name {excerpt(name)}")
    return record


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)


def field(record: Mapping[str, Any], column: str) -> Any:
    """Returns the value of a field, possibly nested in objects and lists: `labels.0.name`.

    Raises:
        KeyError: If the field does not exist.
    """
    if column in record:
        return record[column]
    value: Any = record
    for name in column.split("."):
        if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            raise KeyError(column)
    return value


def _field_names(record: Mapping[str, Any], prefix: str = "") -> list[str]:
    names = []
    for name, value in record.items():
        names.append(f"{prefix}{name}")
        if isinstance(value, dict):
            names += _field_names(value, f"{prefix}{name}.")
    return names


def _plain_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the line and the cells of each line of a TSV file, in which quotes are text."""
    for number, line in enumerate(read_lines(path), start=1):
        line = line.rstrip("\r\n")
        yield number, line.split("\t") if line else []


def _csv_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yields the line on which each row starts, and its cells."""
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader(read_lines(path), delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            hint = (
                "perhaps a carriage return in an unquoted field"
                if "new-line" in str(error)
                else "perhaps an unclosed quote, or one that is not doubled inside a quoted field"
            )
            raise row_error(
                path, start, f"the row that starts here is not valid CSV: {error} ({hint})"
            ) from error
        yield start, cells


# A cell in double quotes, which are doubled inside of it; and any cell with its separator
_QUOTED = r'"[^"]*+(?:""[^"]*+)*+"'
_CELL = rf'({_QUOTED}|[^"\t]*+)(?:\t|\Z)'
_ROW = re.compile(rf"(?:{_CELL})++")
_CELLS = re.compile(_CELL)
_LOOKS_QUOTED = re.compile(r'(?<![^\t])"[^"\t]*+(?:""[^"\t]*+)++"(?![^\t\r\n])')
_CHOOSE_QUOTING = (
    "they are read as text. --quoting=none confirms that, --quoting=csv reads them as the marks of "
    "cells, as Excel and pandas write them"
)


def _is_quoted(path: Path) -> bool:
    """Returns whether double quotes in a TSV file enclose cells, rather than being text.

    They do if all of them enclose cells or are doubled inside, and some are doubled, or all cells
    of a column have them, or rows have equally many cells only if they do. If some cells look like
    that, but it is not certain, quotes are text, and a warning says so.
    """
    seen: list[str] = []
    num_rows, num_quoted, is_doubled, has_separators = 0, 0, False, False
    in_every_row: set[int] | None = None
    line_widths, row_widths = set(), set()
    csv.field_size_limit(_LONGEST_CELL)
    rows = csv.reader(_recorded(read_lines(path), seen), delimiter="\t", strict=True)
    try:
        for cells in rows:
            lines = [line.rstrip("\r\n") for line in seen]
            seen.clear()
            if len(cells) < 2 and not "".join(cells).strip():
                continue
            text = "\n".join(lines)
            if not _ROW.fullmatch(text):
                raise csv.Error
            num_rows += 1
            raw = _CELLS.findall(text)[: len(cells)]
            quoted = {index for index, cell in enumerate(raw) if cell.startswith('"')}
            num_quoted += len(quoted)
            is_doubled |= any('"' in cells[index] for index in quoted)
            has_separators |= any(set("\t\n\r") & set(cells[index]) for index in quoted)
            in_every_row = quoted if in_every_row is None else in_every_row & quoted
            line_widths |= {line.count("\t") + 1 for line in lines if line}
            row_widths.add(len(cells))
    except csv.Error:
        _warn_of_quotes(path)
        return False
    # Lines with equally many cells are hardly parts of cells.
    are_rows = len(line_widths) == 1 and line_widths != {1}
    if not num_quoted or (are_rows and len(row_widths) > 1):
        return False
    if (in_every_row and num_rows > 1) or len(row_widths) == 1 < len(line_widths):
        return True
    if is_doubled and not (are_rows and has_separators):
        return True
    warnings.warn(
        f"{path}: {num_quoted} cells are in double quotes, and nothing tells whether these are "
        f"text; {_CHOOSE_QUOTING}",
        stacklevel=2,
    )
    return False


def _recorded(lines: Iterator[str], seen: list[str]) -> Iterator[str]:
    for line in lines:
        seen.append(line)
        yield line


def _warn_of_quotes(path: Path) -> None:
    """Warns if cells of a file look quoted, although other quotes in it are text."""
    found = [
        number for number, line in enumerate(read_lines(path), 1) if _LOOKS_QUOTED.search(line)
    ]
    if found:
        warnings.warn(
            f"{path}: {len(found)} lines, the first of which is {found[0]}, have quotes that "
            f"enclose a cell and are doubled inside, but other lines have quotes that do not; "
            f"{_CHOOSE_QUOTING}",
            stacklevel=2,
        )


def _is_position(column: str | int) -> bool:
    return isinstance(column, int) or (column.isascii() and column.isdigit())


def _all_positions(columns: Mapping[str, str | int]) -> bool:
    return all(_is_position(column) for column in columns.values())


def _all_named(columns: Mapping[str, str | int], names: list[str]) -> bool:
    return all(column in names for column in columns.values())


def _usual_width(table: list[tuple[int, list[str]]]) -> int:
    return Counter(len(cells) for _, cells in table).most_common(1)[0][0]


def _column_indices(
    path: Path,
    line: int,
    columns: Mapping[str, str | int],
    names: list[str],
    width: int,
    header: bool,
) -> dict[str, int]:
    """Returns the index of each role's column."""
    indices = {}
    for role, column in columns.items():
        if header:
            check_single(path, line, column, names)
        if header and column in names:
            indices[role] = names.index(column)
        elif not _is_position(column):
            raise MissingColumnError(
                f"{path}, line {line}: {_no_such_name(role, column, names, header)}"
            )
        elif not 0 <= int(column) < width:
            raise MissingColumnError(
                f"{path}, line {line}: {role} is column {column}, expected 0 to {width - 1}; "
                f"the first row is {excerpt(names, 300)}"
            )
        else:
            indices[role] = int(column)
    return indices


def _wrong_width(path: Path, line: int, cells: list[str], width: int) -> ValueError:
    start = excerpt(cells[0], 40)
    return row_error(
        path, line, f"{len(cells)} columns, expected {width}; the row starts with {start}"
    )


def check_single(path: Path, line: int, column: str | int, names: list[str]) -> None:
    """Checks that only one column has the requested name.

    Raises:
        ValueError: If several have it; the message names the file, the line and the column.
    """
    if names.count(cast(str, column)) > 1:
        raise row_error(
            path, line, f"two columns have the name {column!r}; give the column by its index"
        )


def _no_such_name(role: str, column: str | int, names: list[str], header: bool) -> str:
    if not header:
        return f"{role} is column {column!r}, expected an index from 0 with --header=no"
    if len(names) == 1 and ";" in names[0]:
        return (
            f"no column {column!r} for {role}; the first row is {excerpt(names, 300)}, a single "
            "cell with semicolons: save the file with commas between the columns"
        )
    for separator, format in (("\t", "tsv"), (",", "csv")):
        if len(names) == 1 and separator in names[0]:
            return (
                f"no column {column!r} for {role}; the first row is {excerpt(names, 300)}, a "
                f"single cell that looks like {format}: use --format={format}, or that suffix"
            )
    return (
        f"no column {column!r} for {role}{_did_you_mean(column, names)}; the first row is "
        f"{excerpt(names, 300)}. If that row is not a header, use --header=no and give columns by "
        "their index from 0, such as --text=0"
    )


def _did_you_mean(column: str | int, names: Iterable[str]) -> str:
    by_spelling = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(str(column).casefold(), by_spelling, n=1)
    return f" (did you mean {by_spelling[close[0]]!r}?)" if close else ""


def _json_rows(
    path: Path, columns: Mapping[str, str | int], optional: Mapping[str, str]
) -> Iterator[Row]:
    """Yields the requested fields of each object."""
    for number, record in read_objects(path):
        cells = {}
        for role, column in optional.items():
            if record.get(column) is not None:
                cells[role] = as_id(record[column])
        for role, column in columns.items():
            try:
                value = field(record, str(column))
            except KeyError:
                names = sorted(_field_names(record))
                raise MissingColumnError(
                    f"{path}, line {number}: no column {column!r} for {role}"
                    f"{_did_you_mean(column, names)}; the object has {excerpt(names, 300)}"
                ) from None
            cells[role] = _json_cell(path, number, role, value)
        yield Row(number, cells)


def as_id(value: Any) -> str:
    """Returns the id of a row as a string: the text of a string, otherwise JSON."""
    return value.strip() if isinstance(value, str) else json.dumps(value)


def row_ids(values: Iterable[str | None]) -> list[str | None] | None:
    """Returns the id of each row; `None` if no row has one."""
    ids = [value.strip() if value else None for value in values]
    return ids if any(ids) else None


def _json_cell(path: Path, line: int, role: str, value: Any) -> str:
    """Converts a JSON value to a cell; null and NaN, which pandas writes, to an empty string."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return value
    may_be_number = role in ("label", "grade")
    if may_be_number and isinstance(value, bool | int | float):
        return json.dumps(value)
    expected = "a string, a number or a boolean" if may_be_number else "a string"
    nested = f", or one of its fields: {role}.NAME" if isinstance(value, dict | list) else ""
    if role == "label" and isinstance(value, list):
        nested += "; a row has one label"
    raise row_error(path, line, f"{role} is a {type(value).__name__}, expected {expected}{nested}")

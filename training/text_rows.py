# SPDX-License-Identifier: Apache-2.0
"""The rows of TSV, CSV and JSON Lines files, each with the line it starts on.

Every complaint names the file and the physical line, counted from 1 as an editor counts it.
"""

import csv
import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

Header = bool | Literal["auto"]

FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Row(NamedTuple):
    """One example as the file spells it; a role without a column is None."""

    line: int
    text: str
    text_pair: str | None
    label: str | None


class MissingColumnError(ValueError):
    """A file lacks a column that was asked for."""


@dataclass
class Rows:
    """The rows of a file; `header` stays `"auto"` where the columns do not tell."""

    rows: list[Row]
    header: Header
    bad: list[str]


def row_error(path: Path, line: int, message: str) -> ValueError:
    """An error that says where in which file."""
    return ValueError(f"{path}, line {line}: {message}")


def format_of(path: Path) -> str:
    """Tells the format from the suffix, `.gz` aside.

    Raises:
        ValueError: If the suffix is not a known one.
    """
    name = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    suffix = name.suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(
            f"{path}: cannot tell the format from the suffix {suffix!r}; expected one of "
            f"{', '.join(FORMATS)} (.gz may follow), or say format='tsv', 'csv' or 'jsonl'"
        )
    return FORMATS[suffix]


def read_rows(
    path: Path, format: str, columns: Mapping[str, str | int], header: Header, skip_bad: bool
) -> Rows:
    """Reads the wanted columns of every row that is not blank.

    Args:
        path: The file, UTF-8; gzipped if it ends in `.gz`.
        format: `"tsv"`, `"csv"` or `"jsonl"`.
        columns: From the role (`text`, `text_pair`, `label`) to the column's name or number.
        header: Whether the first row names the columns; `"auto"` if that is to be found out.
        skip_bad: Whether rows with another number of columns are set aside in `bad`.

    Returns:
        The rows. Where `header` is still `"auto"`, the first row is among them.

    Raises:
        MissingColumnError: If a column is not there.
        ValueError: If the file cannot be read so.
    """
    if format == "jsonl":
        return Rows(list(_json_rows(path, columns)), True, [])
    if format not in ("tsv", "csv"):
        raise ValueError(f"format is {format!r}, expected 'tsv', 'csv' or 'jsonl'")
    table = list(_tsv_cells(path) if format == "tsv" else _csv_cells(path))
    if not table:
        raise ValueError(f"{path}: the file is empty")
    first_line, first = table[0]
    names = [cell.strip() for cell in first]
    if header == "auto" and not (_all_numbers(columns) and not _all_named(columns, names)):
        header = True
    # A header is never broken; of the rows of a file without one, any may be.
    width = len(first) if header is True else _usual_width(table)
    indices = _column_indices(path, first_line, columns, names, width, header is True)
    rows, bad = [], []
    for line, cells in table[1 if header is True else 0 :]:
        if len(cells) == width:
            rows.append(_row(line, {role: cells[index] for role, index in indices.items()}))
            continue
        error = row_error(
            path, line, f"{len(cells)} columns, expected {width}; it starts {cells[0][:40]!r}"
        )
        if not skip_bad:
            raise error
        bad.append(str(error))
    return Rows(rows, header, bad)


def read_cells(path: Path, format: Literal["tsv", "csv"]) -> Iterator[tuple[int, list[str]]]:
    """Yields the line on which each row starts, and its cells; blank rows are left out.

    Args:
        path: The file, UTF-8; gzipped if it ends in `.gz`.
        format: How cells are told apart.

    Raises:
        ValueError: If the file cannot be read so.
    """
    return _tsv_cells(path) if format == "tsv" else _csv_cells(path)


def read_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the line and the JSON object of each line that is not blank.

    Args:
        path: The file, UTF-8; gzipped if it ends in `.gz`.

    Raises:
        ValueError: If a line is no JSON object.
    """
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise row_error(path, number, f"not JSON: {error.msg} at {error.pos}") from error
        if not isinstance(record, dict):
            raise row_error(path, number, f"a {type(record).__name__}, expected a JSON object")
        yield number, record


def _row(line: int, cells: Mapping[str, str]) -> Row:
    label = cells.get("label")
    return Row(
        line,
        cells["text"],
        cells.get("text_pair"),
        None if label is None else label.strip(),
    )


def _lines(path: Path) -> Iterator[str]:
    """Yields the physical lines, line ends kept.

    The bytes are split at line feeds before they are decoded: text holds other characters that
    Python's own splitting takes for line ends.
    """
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    number = 0
    with cast(BinaryIO, opener(path, "rb")) as file:
        try:
            for number, line in enumerate(file, start=1):
                yield (line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line).decode()
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise row_error(
                path,
                number,
                f"expected UTF-8, found byte 0x{byte:02x} at position {error.start} of the line",
            ) from error
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path}: cannot be read past line {number}: {error}") from error


def _tsv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields each row's line and cells; quotes are text, as GLUE's unbalanced ones require."""
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            yield number, line.rstrip("\r\n").split("\t")


def _csv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the line on which each row starts, and its cells."""
    reader = csv.reader(_lines(path), strict=True)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise row_error(
                path,
                start,
                f"the row that starts here is not CSV: {error} "
                "(is a quote left open, or not doubled inside a quoted field?)",
            ) from error
        if any(cell.strip() for cell in cells):
            yield start, cells


def _is_number(column: str | int) -> bool:
    return isinstance(column, int) or (column.isascii() and column.isdigit())


def _all_numbers(columns: Mapping[str, str | int]) -> bool:
    return all(_is_number(column) for column in columns.values())


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
    """Finds each role's column."""
    indices = {}
    for role, column in columns.items():
        if header and names.count(cast(str, column)) > 1:
            raise row_error(path, line, f"two columns are called {column!r}; say which by number")
        if header and column in names:
            indices[role] = names.index(column)
        elif not _is_number(column):
            raise MissingColumnError(
                f"{path}, line {line}: {_no_such_name(role, column, names, header)}"
            )
        elif not 0 <= int(column) < width:
            raise MissingColumnError(
                f"{path}, line {line}: {role} is column {column}, expected 0 to {width - 1}; "
                f"the first row is {names}"
            )
        else:
            indices[role] = int(column)
    return indices


def _no_such_name(role: str, column: str | int, names: list[str], header: bool) -> str:
    if not header:
        return f"{role} is column {column!r}, expected a number from 0 where header=False"
    return (
        f"no column {column!r} for {role}; the first row is {names}. If that row is an example "
        "and no header, say header=False and give the columns by number, from 0"
    )


def _json_rows(path: Path, columns: Mapping[str, str | int]) -> Iterator[Row]:
    """Yields the wanted fields of each object."""
    for number, record in read_objects(path):
        cells = {}
        for role, column in columns.items():
            if column not in record:
                raise MissingColumnError(
                    f"{path}, line {number}: no column {column!r} for {role}; the object has "
                    f"{sorted(record)}"
                )
            cells[role] = _json_cell(path, number, role, record[column])
        yield _row(number, cells)


def _json_cell(path: Path, line: int, role: str, value: Any) -> str:
    """Spells a JSON value as a table would: null and NaN, which pandas writes, as nothing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return value
    if role == "label" and isinstance(value, bool | int | float):
        return json.dumps(value)
    expected = "a string, a number or a boolean" if role == "label" else "a string"
    raise row_error(path, line, f"{role} is a {type(value).__name__}, expected {expected}")

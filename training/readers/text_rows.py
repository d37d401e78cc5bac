# SPDX-License-Identifier: Apache-2.0
"""Rows of TSV, CSV, JSON Lines and JSON files, each with the line on which it starts.

Every error names the file and the physical line, counted from 1 as in an editor, and quotes a short
excerpt.
"""

import csv
import difflib
import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

Header = bool | Literal["auto"]

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
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
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
    path: Path, format: str, columns: Mapping[str, str | int], header: Header, skip_bad: bool
) -> Rows:
    """Reads the requested columns of every row that is not blank.

    Args:
        path: The file, UTF-8; gzipped if it ends in `.gz`.
        format: `"tsv"`, `"csv"` or `"jsonl"`.
        columns: Maps each role (`text`, `text_pair`, `label`, …) to the column's name or index. In
            JSON the name may be a path into nested objects and lists, such as `labels.0.name`.
        header: Whether the first row is a header; `"auto"` infers it.
        skip_bad: Whether to skip rows with another number of columns, and to list them in `bad`.

    Returns:
        The rows. If their `header` is still `"auto"`, the first row of the file is included.

    Raises:
        MissingColumnError: If a column does not exist.
        ValueError: If the file is malformed.
    """
    if format == "jsonl":
        return Rows(list(_json_rows(path, columns)), True, [])
    if format not in ("tsv", "csv"):
        raise ValueError(f"--format is {format!r}, expected tsv, csv or jsonl")
    table = list(_tsv_cells(path) if format == "tsv" else _csv_cells(path))
    if not table:
        raise ValueError(f"{path}: the file is empty")
    first_line, first = table[0]
    names = [cell.strip() for cell in first]
    if header == "auto" and not (_all_positions(columns) and not _all_named(columns, names)):
        header = True
    # A header has the right number of columns; without one, take the most frequent number.
    width = len(first) if header is True else _usual_width(table)
    indices = _column_indices(path, first_line, columns, names, width, header is True)
    rows, bad = [], []
    for line, cells in table[1 if header is True else 0 :]:
        if len(cells) == width:
            rows.append(Row(line, {role: cells[index] for role, index in indices.items()}))
            continue
        error = _wrong_width(path, line, cells, width)
        if not skip_bad:
            raise error
        bad.append(str(error))
    return Rows(rows, header, bad)


def read_cells(path: Path, format: Literal["tsv", "csv"]) -> Iterator[tuple[int, list[str]]]:
    """Yields the line on which each row starts, and its cells; skips blank rows.

    Args:
        path: The file, UTF-8; gzipped if it ends in `.gz`.
        format: `"tsv"` or `"csv"`.

    Raises:
        ValueError: If the file is malformed.
    """
    return _tsv_cells(path) if format == "tsv" else _csv_cells(path)


def read_records(path: Path, format: str | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the line and the fields of each row of JSON, or of a table with a header.

    Args:
        path: The file, UTF-8; gzipped if it ends in `.gz`.
        format: `"tsv"`, `"csv"` or `"jsonl"`; inferred from the suffix by default.

    Raises:
        ValueError: If the file is malformed, two columns have the same name, or a row differs from
            the header in its number of columns.
    """
    format = format or format_of(path)
    if format == "jsonl":
        yield from read_objects(path)
        return
    table = _tsv_cells(path) if format == "tsv" else _csv_cells(path)
    first_line, header = next(table, (1, []))
    names = [name.strip() for name in header]
    for name in names:
        check_single(path, first_line, name, names)
    for line, cells in table:
        if len(cells) != len(names):
            raise _wrong_width(path, line, cells, len(names))
        yield line, dict(zip(names, cells, strict=True))


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
        path: The file, UTF-8; gzipped if it ends in `.gz`.

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


def read_lines(path: Path) -> Iterator[str]:
    """Yields the physical lines of a file, with their line ends.

    The bytes are split at line feeds before they are decoded, because text may contain other
    characters that `str.splitlines` takes for line ends. A file without a line feed is split at
    carriage returns, the line ends of classic Mac OS.

    Args:
        path: The file, UTF-8; gzipped if it ends in `.gz`.

    Raises:
        ValueError: If the file is not UTF-8, or its compressed data is corrupted.
    """
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    with cast(BinaryIO, opener(path, "rb")) as file:
        yield from decoded_lines(file, path)


def decoded_lines(file: BinaryIO, name: str | Path) -> Iterator[str]:
    """Yields the lines of a binary file as `read_lines` does.

    Args:
        file: The file, or standard input.
        name: Its name, for error messages.
    """
    number = 0
    try:
        for line in _byte_lines(file):
            number += 1
            yield line.decode()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise row_error(
            name,
            number,
            f"expected UTF-8, found byte 0x{byte:02x} at position {error.start} of the line; "
            "`iconv -f LATIN1 -t UTF-8` converts text of another encoding, and "
            "`iconv -c -f UTF-8 -t UTF-8` removes single bytes that are not UTF-8",
        ) from error
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{name}: cannot be read past line {number}: {error}") from error


def _byte_lines(file: BinaryIO) -> Iterator[bytes]:
    first = file.readline().removeprefix(_BYTE_ORDER_MARK)
    if not first.endswith(b"\n"):
        yield from first.splitlines(keepends=True)  # at carriage returns, if there are any
    else:
        yield first
        yield from file


def _tsv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields each row's line and cells; quotes are plain text, since GLUE has unbalanced ones."""
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            yield number, line.rstrip("\r\n").split("\t")


def _csv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the line on which each row starts, and its cells."""
    reader = csv.reader(read_lines(path), strict=True)
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
                f"the row that starts here is not valid CSV: {error} "
                "(perhaps an unclosed quote, or one that is not doubled inside a quoted field)",
            ) from error
        if any(cell.strip() for cell in cells):
            yield start, cells


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
    return (
        f"no column {column!r} for {role}{_did_you_mean(column, names)}; the first row is "
        f"{excerpt(names, 300)}. If that row is not a header, use --header=no and give columns by "
        "their index from 0, such as --text=0"
    )


def _did_you_mean(column: str | int, names: Iterable[str]) -> str:
    by_spelling = {name.casefold(): name for name in names}
    close = difflib.get_close_matches(str(column).casefold(), by_spelling, n=1)
    return f" (did you mean {by_spelling[close[0]]!r}?)" if close else ""


def _json_rows(path: Path, columns: Mapping[str, str | int]) -> Iterator[Row]:
    """Yields the requested fields of each object."""
    for number, record in read_objects(path):
        cells = {}
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


def _json_cell(path: Path, line: int, role: str, value: Any) -> str:
    """Converts a JSON value to a cell; null and NaN, which pandas writes, to an empty string."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return value
    may_be_number = role in ("label", "id", "grade")
    if may_be_number and isinstance(value, bool | int | float):
        return json.dumps(value)
    expected = "a string, a number or a boolean" if may_be_number else "a string"
    nested = f", or one of its fields: {role}.NAME" if isinstance(value, dict | list) else ""
    raise row_error(path, line, f"{role} is a {type(value).__name__}, expected {expected}{nested}")

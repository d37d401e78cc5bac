# SPDX-License-Identifier: Apache-2.0
"""Reads objects from JSON Lines and JSON arrays, each with its place in the file."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .row_values import BadRows, excerpt, row_error

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

# How to convert lists, which are not supported
_CONVERT_LISTS = (
    ". If the file has lists with a text and a label, this makes objects of them: "
    """python -c "import json; [print(json.dumps({{'text': text, 'label': label}})) """
    """for text, label in {rows}]" > train.jsonl"""
)


def read_objects(
    lines: Iterable[str], name: Path | str, bad: BadRows | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the place (line, or row in an array) and the content of each object.

    Raises:
        ValueError: If a line is not JSON or not an object, two of its fields have the same name,
            or it contains an unpaired surrogate.
    """
    bad = bad or BadRows()
    pairs = enumerate(lines, start=1)
    for number, line in pairs:
        if not line.strip():
            continue
        is_array = line.lstrip().startswith("[")
        text = line + "".join(line for _, line in pairs) if is_array else line.rstrip("\r\n")
        try:
            value = _parsed(text, number, name)
        except ValueError as error:
            bad.add(error)
            continue
        rows = [(f"line {number}", value)]
        if is_array:
            rows = [(f"row {row}", record) for row, record in enumerate(value, start=1)]
        # Only escapes can be unpaired surrogates, because the file itself is UTF-8.
        has_surrogates = bool(_SURROGATE.search(text))
        yield from bad.filter(rows, functools.partial(_check, name, has_surrogates))


def _parsed(text: str, first_line: int, name: Path | str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        place = f"line {first_line + error.lineno - 1}"
        message = f"not JSON: {error.msg} at position {error.colno - 1}"
        if text.lstrip().startswith("[") and error.msg == "Extra data":
            message += _CONVERT_LISTS.format(rows=f"map(json.loads, open('{name}'))")
        raise row_error(name, place, message) from error
    except (RecursionError, ValueError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise row_error(name, f"line {first_line}", f"cannot be read: {reason}") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"field names must be unique. Received: {excerpt(name)} twice")
    return record


def _check(name: Path | str, has_surrogates: bool, row: tuple[str, Any]) -> None:
    """Raises an error if a value is not an object, or has an unpaired surrogate."""
    place, record = row
    if not isinstance(record, dict):
        message = f"each row must be a JSON object. Received: a {type(record).__name__}"
        if isinstance(record, list):
            message += _CONVERT_LISTS.format(rows=f"json.load(open('{name}'))")
        raise row_error(name, place, message)
    if not has_surrogates:
        return
    for field_name, value in record.items():
        try:
            json.dumps([field_name, value], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            message = f"{excerpt(field_name)} must not contain an unpaired surrogate"
            raise row_error(name, place, message) from error

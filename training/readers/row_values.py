# SPDX-License-Identifier: Apache-2.0
"""Helpers for the values in rows, and for errors about rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy as np

Item = TypeVar("Item")

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST = 3.4028234e38  # the largest float32


class BadRows:
    """Errors about invalid rows. Raises the first error, or collects all messages."""

    def __init__(self, collect: bool = False) -> None:
        self.collect = collect
        self.messages: list[str] = []

    def add(self, error: ValueError) -> None:
        """Raises the error about a row, or collects its message."""
        if not self.collect:
            raise error
        self.messages.append(str(error))

    def filter(self, rows: Iterable[Item], check: Callable[[Item], None]) -> Iterator[Item]:
        """Yields valid rows: `check` does not raise a `ValueError` for them."""
        for row in rows:
            try:
                check(row)
            except ValueError as error:
                self.add(error)
            else:
                yield row


def excerpt(value: Any, limit: int = 80) -> str:
    """Formats a value for a message, as its `repr` truncated to `limit` characters.

    Example:

    >>> excerpt("a" * 1000, 10)
    "'aaaaaaaa…"
    """
    # Truncate long strings before `repr`, not after it, to save time.
    text = repr(value[:limit] if isinstance(value, str) else value)
    is_whole = len(text) <= limit and not (isinstance(value, str) and len(value) > limit)
    return text if is_whole else f"{text[: limit - 1]}…"


def normalize_text(text: str) -> str:
    """Normalizes case, spaces and compatibility characters, so that similar texts are equal."""
    from keras_bert.text.composition import normalize_form

    return " ".join(normalize_form("NFKC", text).casefold().split())


def row_error(path: Path | str, place: str, message: str) -> ValueError:
    """Returns an error that contains the file and the place, such as `line 3`."""
    return ValueError(f"{path}, {place}: {message}")


def is_number(text: str) -> bool:
    """Returns whether a text is a finite decimal number in float32's range, unlike `1_0`."""
    return bool(_NUMBER.fullmatch(text)) and abs(float(text)) <= _LARGEST


def required_labels(labels: np.ndarray | None, path: str) -> np.ndarray:
    """Returns a file's labels, which must exist.

    Raises:
        ValueError: If the file has no labels.
    """
    if labels is None:
        raise ValueError(f"{path} must have labels to compute scores")
    return labels


def as_id(value: Any) -> str:
    """Converts an ID to a string. Strings are stripped, other values are converted to JSON.

    Values that JSON does not support, such as dates, are converted with `str`.
    """
    try:
        return value.strip() if isinstance(value, str) else json.dumps(value)
    except TypeError:
        return str(value)


def row_ids(values: Iterable[str | None]) -> list[str | None] | None:
    """Returns the ID of each row, or `None` if no row has an ID."""
    ids = [value.strip() if value else None for value in values]
    return ids if any(ids) else None


def field(record: Mapping[str, Any], column: str) -> Any:
    """Returns a field's value. Fields may be nested in objects and lists: `labels.0.name`.

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

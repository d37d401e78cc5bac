# SPDX-License-Identifier: Apache-2.0
"""Values of rows, and errors about rows."""

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
        """Yields the rows for which a function does not raise a `ValueError`."""
        for row in rows:
            try:
                check(row)
            except ValueError as error:
                self.add(error)
            else:
                yield row


def excerpt(value: Any, limit: int = 80) -> str:
    """Returns the `repr` of a value for a message, truncated to `limit` characters.

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
    """Returns whether a text is a decimal number in float32's range; not `nan`, `1_0`, `1e39`."""
    return bool(_NUMBER.fullmatch(text)) and abs(float(text)) <= _LARGEST


def required_labels(labels: np.ndarray | None, path: str) -> np.ndarray:
    """Returns the labels of a file.

    Raises:
        ValueError: If the file has no labels.
    """
    if labels is None:
        raise ValueError(f"{path} has no labels to score against")
    return labels


def as_id(value: Any) -> str:
    """Returns the ID of a row as a string: strings as they are, other values as JSON.

    Values that JSON does not support, such as dates, are converted by `str`.
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

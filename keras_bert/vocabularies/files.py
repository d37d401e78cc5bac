# SPDX-License-Identifier: Apache-2.0
"""Reads and writes small files, with error messages that contain the file name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

MAX_BYTES = 1 << 28
"""The maximum size of config and vocabulary files, ten times as large as any released file."""


def read_bytes(path: Path) -> bytes:
    """Reads a small file."""
    try:
        with path.open("rb") as file:
            return read_small(file, f"{path}: the file")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} does not exist.") from error
    except OSError as error:
        raise type(error)(f"{path}: the file cannot be read: {error.strerror}.") from error


def read_small(file: IO[bytes], name: str) -> bytes:
    """Reads an opened file of at most `MAX_BYTES`."""
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{name} must have at most {MAX_BYTES:,} bytes. Received a larger file.")
    return content


def read_text(path: Path) -> str:
    """Reads a text file in UTF-8 without its byte order mark. Line ends are not converted."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: the file must be UTF-8. Received: invalid byte {error.start} ({error.reason})"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a file that contains a JSON object."""
    text = read_text(path)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{path}: the file must contain JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ValueError(
            f"{path}: the file must contain a JSON object. Received: {type(value).__name__}"
        )
    return value


def write_json(path: Path, value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Writes an indented JSON object or array."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def parse_json(text: str | bytes) -> Any:
    """Parses JSON. Unlike in Python's own parser, all numbers must be finite."""
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_finite)
    except RecursionError as error:
        raise ValueError(f"it is nested too deeply ({error})") from error


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text} is not finite")
    return number

# SPDX-License-Identifier: Apache-2.0
"""Reading of small files, with error messages that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_text(path: Path) -> str:
    """Reads a text file in UTF-8, without its byte order mark; line ends are not converted.

    Raises:
        OSError: If the file cannot be read, `FileNotFoundError` if it does not exist.
        ValueError: If it is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path} does not exist.") from error
    except OSError as error:
        raise type(error)(f"{path}: the file cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: the file must be UTF-8; byte {error.start} is not ({error.reason})."
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a file that contains a JSON object.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If the file does not contain a JSON object.
    """
    text = read_text(path)
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: the file must contain JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ValueError(
            f"{path}: the file must contain a JSON object, received {type(value).__name__}."
        )
    return value

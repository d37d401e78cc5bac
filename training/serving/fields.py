# SPDX-License-Identifier: Apache-2.0
"""JSON of clients: requests are read and checked, and answers are bounded."""

from __future__ import annotations

import dataclasses
import json
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from keras_bert.text.characters import check_characters

from ..readers.values import excerpt

_JSON_TYPES: dict[type, str] = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
_MAX_BYTES_OF_ANSWER = 32 * 2**20


class RequestError(ValueError):
    """Raised for a request that is malformed; the message says what was received and expected."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def read_object(body: bytes, example: str) -> dict[str, Any]:
    """Reads an object.

    Raises:
        RequestError: If it is not JSON, or not an object.
    """
    request = _parsed(body)
    if not isinstance(request, dict):
        raise RequestError(
            f"the request is {described(request)}; expected an object, such as {example}"
        )
    return request


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a request.

    Args:
        read: Checks a value and returns it; is called with the value and its name.
        default: The value where there is none, or null.
        is_required: Whether there must be one.
    """

    read: Callable[[Any, str], Any]
    default: Any = None
    is_required: bool = False


def read_fields(request: Mapping[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """Reads the fields of an object, and refuses others.

    Raises:
        RequestError: If a field is missing, unknown or malformed.
    """
    for name in request:
        if name not in fields:
            raise RequestError(
                f"{excerpt(name)} is not supported; expected {', '.join(fields)}", name
            )
    values = {}
    for name, field in fields.items():
        value = request.get(name)
        if value is None and field.is_required:
            raise RequestError(f"{name} is missing", name)
        values[name] = field.default if value is None else field.read(value, name)
    return values


def read_object_of(fields: Mapping[str, Field]) -> Callable[[Any, str], dict[str, Any]]:
    """Returns a function that reads an object of some fields."""

    def read(value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise RequestError(f"{name} is {described(value)}; expected an object", name)
        return read_fields(value, fields)

    return read


def read_boolean(value: Any, name: str) -> bool:
    """Reads a boolean."""
    if not isinstance(value, bool):
        raise RequestError(f"{name} is {described(value)}; expected true or false", name)
    return value


def read_count(value: Any, name: str) -> int:
    """Reads a positive integer."""
    if type(value) is not int or value < 1:
        raise RequestError(f"{name} is {described(value)}; expected a positive integer", name)
    return value


def read_text(value: Any, name: str) -> str:
    """Reads a string of characters that UTF-8 can represent."""
    if not isinstance(value, str):
        raise RequestError(f"{name} is {described(value)}; expected a string", name.split("[")[0])
    try:
        check_characters(value, name)
    except ValueError as error:
        raise RequestError(str(error), name.split("[")[0]) from error
    return value


def read_texts(value: Any, name: str) -> list[str]:
    """Reads a list of one or more strings."""
    if not isinstance(value, list) or not value:
        raise RequestError(
            f"{name} is {described(value)}; expected a list of one or more strings", name
        )
    return [read_text(text, f"{name}[{index}]") for index, text in enumerate(value)]


def one_of(*names: str) -> Callable[[Any, str], Any]:
    """Returns a function that reads one of some strings."""

    def read(value: Any, name: str) -> Any:
        if value not in names:
            raise RequestError(f"{name} is {described(value)}; expected {' or '.join(names)}", name)
        return value

    return read


def check_number(number: int, max_rows: int, name: str) -> None:
    """Checks the number of texts in a request.

    Raises:
        RequestError: If there are too many.
    """
    if number > max_rows:
        raise RequestError(f"{name} has {number} elements; expected at most {max_rows}", name)


def encoded(content: Any) -> bytes:
    """Returns the JSON of an answer.

    Raises:
        RequestError: If it has more than 32 MiB.
        ValueError: If a number is not finite.
    """
    body = json.dumps(content, ensure_ascii=False, allow_nan=False).encode()
    if len(body) > _MAX_BYTES_OF_ANSWER:
        raise RequestError(
            f"the answer has {len(body)} bytes; expected at most {_MAX_BYTES_OF_ANSWER}: send "
            "fewer or shorter rows"
        )
    return body


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except RequestError:
        raise
    except UnicodeDecodeError as error:
        raise RequestError(
            f"the body is not UTF-8: byte {error.start} is 0x{body[error.start]:02x}; expected "
            'JSON in UTF-8, with {"b64": "…"} for strings of other bytes'
        ) from error
    except RecursionError as error:
        raise RequestError("the JSON is nested too deeply") from error
    except ValueError as error:
        state = "empty" if not body else f"{excerpt(body.decode())}, which is not JSON: {error}"
        raise RequestError(f"the body is {state}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise RequestError(f"the body is not JSON: it has {name}; expected numbers that are finite")


def described(value: Any) -> str:
    """Returns the type of a value in JSON, and the value, for a message."""
    kind = _JSON_TYPES[type(value)]
    if value is None:
        return kind
    if not value and isinstance(value, (list, dict)):
        return f"an empty {kind.split()[-1]}"
    # (Of nested values, `repr` would show all, and recurse.)
    text = reprlib.repr(value) if isinstance(value, (list, dict)) else excerpt(value)
    return f"{kind}, {text}"

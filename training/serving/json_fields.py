# SPDX-License-Identifier: Apache-2.0
"""Reads and validates clients' JSON, and writes responses of limited size."""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from keras_bert.text.characters import check_characters

from ..readers.row_values import excerpt

_JSON_TYPES: dict[type, str] = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}
MAX_BYTES_OF_ANSWER = 64 * 2**20
# Maximum number of bytes per number in a response, such as -0.000123456789 and a comma
MAX_BYTES_OF_NUMBER = 16
# Maximum number of bytes per label in a response, such as {"score":-0.000123456789,"label":""} and
# a comma, without the label itself
MAX_BYTES_OF_LABEL = 48


class RequestError(ValueError):
    """Raised for an invalid request. The message includes the rule and the received value.

    Args:
        message: The message.
        field: Name of the invalid field.
        is_empty: Whether the field has no elements. Some protocols have a separate error for that.
    """

    def __init__(self, message: str, field: str = "", *, is_empty: bool = False) -> None:
        super().__init__(message)
        self.field = field
        self.is_empty = is_empty


def read_object(body: bytes, example: str) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        RequestError: If the body is not JSON, or not an object.
    """
    request = _parsed(body)
    if not isinstance(request, dict):
        raise RequestError(
            f"the request must be an object, such as {example}. Received: {describe_json(request)}"
        )
    return request


@dataclasses.dataclass(frozen=True)
class Field:
    """A request field.

    Args:
        read: Validates and returns the value, given the value and the field's name.
        default: The value if the field is missing or null.
        is_required: Whether a missing or null field is an error.
        synonyms: Other names of the field in clients' requests.
    """

    read: Callable[[Any, str], Any]
    default: Any = None
    is_required: bool = False
    synonyms: tuple[str, ...] = ()


def read_fields(request: Mapping[str, Any], fields: Mapping[str, Field]) -> dict[str, Any]:
    """Reads an object's fields. A null field counts as missing.

    Raises:
        RequestError: If a field is missing, unknown, invalid, or given under two names.
    """
    known = {other: name for name, field in fields.items() for other in (name, *field.synonyms)}
    values = {name: field.default for name, field in fields.items()}
    given: dict[str, str] = {}
    for key, value in request.items():
        if value is None:
            continue
        if key not in known:
            raise RequestError(
                f"fields must be among {', '.join(fields)}. Received: {excerpt(key)}", key
            )
        name = known[key]
        if name in given:
            raise RequestError(
                f"only one of {given[name]} and {key} may be given. Received: both", key
            )
        given[name] = key
        values[name] = fields[name].read(value, key)
    for name, field in fields.items():
        if field.is_required and name not in given:
            raise RequestError(f"{name} is missing", name)
    return values


def read_object_of(fields: Mapping[str, Field]) -> Callable[[Any, str], dict[str, Any]]:
    """Returns a function that reads an object with these fields."""

    def read(value: Any, name: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise RequestError(f"{name} must be an object. Received: {describe_json(value)}", name)
        return read_fields(value, fields)

    return read


def read_boolean(value: Any, name: str) -> bool:
    """Reads a boolean."""
    if not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false. Received: {describe_json(value)}", name)
    return value


def read_count(value: Any, name: str) -> int:
    """Reads a positive integer."""
    if type(value) is not int or value < 1:
        raise RequestError(
            f"{name} must be a positive integer. Received: {describe_json(value)}", name
        )
    return value


def read_text(value: Any, name: str) -> str:
    """Reads a string of characters that UTF-8 can represent."""
    if not isinstance(value, str):
        raise RequestError(
            f"{name} must be a string. Received: {describe_json(value)}", name.split("[")[0]
        )
    try:
        check_characters(value, name)
    except ValueError as error:
        raise RequestError(str(error), name.split("[")[0]) from error
    return value


def read_texts(value: Any, name: str) -> list[str]:
    """Reads a list of one or more strings."""
    if not isinstance(value, list) or not value:
        raise RequestError(
            f"{name} must be a list of one or more strings. Received: {describe_json(value)}",
            name,
            is_empty=value == [],
        )
    return [read_text(text, f"{name}[{index}]") for index, text in enumerate(value)]


def read_names(value: Any, name: str) -> list[str]:
    """Reads a possibly empty list of strings."""
    return read_texts(value, name) if value != [] else []


def one_of(*names: str) -> Callable[[Any, str], Any]:
    """Returns a function that reads one of these strings."""

    def read(value: Any, name: str) -> Any:
        if value not in names:
            raise RequestError(
                f"{name} must be {' or '.join(names)}. Received: {describe_json(value)}", name
            )
        return value

    return read


def check_not_empty(rows: Iterable[Iterable[Any]], name: str) -> None:
    """Checks that each element has a non-empty text, as OpenAI and TEI do.

    Raises:
        RequestError: If an element is empty.
    """
    for index, row in enumerate(rows):
        if not any(row):
            raise RequestError(f"{name}[{index}] must not be empty", name, is_empty=True)


def check_number(number: int, max_rows: int, name: str) -> None:
    """Checks the number of texts in a request.

    Raises:
        RequestError: If the request has too many texts.
    """
    if number > max_rows:
        raise RequestError(
            f"{name} must have at most {max_rows} elements. Received: {number}", name
        )


def encode_json(content: Any) -> bytes:
    """Encodes a response as JSON.

    Raises:
        RequestError: If the JSON has more than 64 MiB.
        ValueError: If a number is not finite.
    """
    body = _json(content).encode()
    if len(body) > MAX_BYTES_OF_ANSWER:
        raise RequestError(
            f"the response must have at most {MAX_BYTES_OF_ANSWER} bytes. Received: {len(body)}. "
            "Send fewer or shorter examples",
        )
    return body


def _json(value: Any) -> str:
    """Returns JSON, with each number in the shortest form that gives the same float32."""
    if isinstance(value, dict):
        items = (f"{_json(str(name))}:{_json(item)}" for name, item in value.items())
        return "{" + ",".join(items) + "}"
    if isinstance(value, (float, np.floating)):
        number = np.float32(value)
        if not math.isfinite(number):
            raise ValueError("a number is not finite")
        return str(number)
    if isinstance(value, (list, np.ndarray)):
        if len(value) and isinstance(value[0], (float, np.floating)):
            numbers = np.asarray(value, "float32")
            if not np.all(np.isfinite(numbers)):
                raise ValueError("a number is not finite")
            return f"[{','.join(map(str, numbers))}]"
        if isinstance(value, list) and value and isinstance(value[0], (str, int)):
            # One call is 30 times faster than a call per element.
            return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return "[" + ",".join(map(_json, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), parse_constant=_reject_constant)
    except RequestError:
        raise
    except UnicodeDecodeError as error:
        raise RequestError(
            f"the body must be UTF-8. Received: 0x{body[error.start]:02x} (byte {error.start}). "
            'Send other bytes as {"b64": "…"}'
        ) from error
    except RecursionError as error:
        raise RequestError("the JSON is nested too deeply") from error
    except ValueError as error:
        state = "an empty body" if not body else f"{excerpt(body.decode())} ({error})"
        raise RequestError(f"the body must be JSON. Received: {state}") from error


def _reject_constant(name: str) -> NoReturn:
    raise RequestError(f"numbers must be finite. Received: {name}")


def describe_json(value: Any) -> str:
    """Formats a value with its JSON type, for an error message."""
    kind = _JSON_TYPES[type(value)]
    if value is None:
        return kind
    if not value and isinstance(value, (list, dict)):
        return f"an empty {kind.split()[-1]}"
    # repr would show nested values in full, and may exceed the recursion limit.
    text = reprlib.repr(value) if isinstance(value, (list, dict)) else excerpt(value)
    return f"{kind}, {text}"

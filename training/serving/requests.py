# SPDX-License-Identifier: Apache-2.0
"""Reads requests and writes responses in the format of TensorFlow Serving's REST API.

A request has either `instances`, a list of examples, or `inputs`, a list per input. The response
has `predictions` or `outputs`, accordingly. If a signature has only one input, the request may omit
its name. If it has only one output, the response omits its name.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .json_fields import (
    MAX_BYTES_OF_ANSWER,
    RequestError,
    describe_json,
    encode_json,
    read_object,
    read_text,
)
from .signatures import CHOICES, DEFAULT_SIGNATURE, INT32, STRING, Row, Signature, Tensor

_KEYS = ("instances", "inputs")
_LOWEST_INT32, _HIGHEST_INT32 = -(2**31), 2**31 - 1
# Minimum number of bytes per element of a list in a response, such as 0 and a comma
_MIN_BYTES_OF_ELEMENT = 2
# Maximum total length of an object's names in an error message
_LONGEST_NAMES = 80
# Padding values for list outputs, by element type
_FILLER: dict[type, Any] = {str: "", int: 0, float: 0.0}


@dataclasses.dataclass(frozen=True)
class PredictRequest:
    """A request.

    Args:
        signature: Name of the signature.
        rows: The inputs of each example.
        is_columns: Whether the request has `inputs` rather than `instances`. The response has the
            same form.
    """

    signature: str
    rows: list[Row]
    is_columns: bool


def read_request(body: bytes, signatures: Mapping[str, Signature], max_rows: int) -> PredictRequest:
    """Reads and validates a request.

    Raises:
        RequestError: If the request is invalid.
    """
    request = read_object(body, '{"instances": […]}')
    name = request.get("signature_name", DEFAULT_SIGNATURE) or DEFAULT_SIGNATURE
    if not isinstance(name, str) or name not in signatures:
        raise RequestError(
            f"signature_name must be one of {', '.join(sorted(signatures))}. Received: "
            f"{describe_json(name)}"
        )
    keys = [key for key in _KEYS if key in request]
    if len(keys) != 1:
        raise RequestError(
            "the request must have either instances, a list of examples, or inputs, a list per "
            f"field. Received: {_names(request)}"
        )
    inputs = signatures[name].inputs
    is_columns = keys[0] == "inputs"
    rows = (_rows_of_columns if is_columns else _rows_of_instances)(
        request[keys[0]], inputs, max_rows
    )
    return PredictRequest(name, rows, is_columns)


def write_answer(request: PredictRequest, answers: Sequence[Row]) -> bytes:
    """Returns a response's JSON. The lists in an output are padded to the same length.

    Args:
        request: The request.
        answers: The outputs for each example.

    Raises:
        RequestError: If the JSON has more than 64 MiB.
        ValueError: If a number is not finite.
    """
    names = sorted(answers[0])
    lists = (
        [answer[name] for answer in answers if isinstance(answer[name], list)] for name in names
    )
    longest = sum(max(map(len, values), default=1) for values in lists)
    if longest * len(answers) * _MIN_BYTES_OF_ELEMENT > MAX_BYTES_OF_ANSWER:
        raise RequestError(
            f"the response must have at most {MAX_BYTES_OF_ANSWER} bytes. Received: {len(answers)} "
            f"examples, whose outputs are padded to {longest} elements each. Send fewer examples, "
            "or separate requests for long and short texts"
        )
    columns = {name: _padded([answer[name] for answer in answers]) for name in names}
    if request.is_columns:
        return encode_json({"outputs": columns[names[0]] if len(names) == 1 else columns})
    if len(names) == 1:
        return encode_json({"predictions": columns[names[0]]})
    rows = zip(*columns.values(), strict=True)
    return encode_json({"predictions": [dict(zip(names, row, strict=True)) for row in rows]})


def _padded(values: list[Any]) -> list[Any]:
    """Pads lists of strings or numbers to the length of the longest list."""
    lists = [value for value in values if isinstance(value, list)]
    filler = next((_FILLER.get(type(value[0])) for value in lists if value), None)
    if filler is None:
        return values
    longest = max(map(len, lists))
    return [[*value, *[filler] * (longest - len(value))] for value in values]


def _rows_of_instances(instances: Any, inputs: Mapping[str, Tensor], max_rows: int) -> list[Row]:
    if not isinstance(instances, list) or not instances:
        raise RequestError(
            f"instances must be a non-empty list of examples. Received: {describe_json(instances)}"
        )
    only = next(iter(inputs)) if len(inputs) == 1 else None
    columns: dict[str, list[Any]] = {name: [] for name in inputs}
    bare = set()
    for index, instance in enumerate(instances):
        is_object = isinstance(instance, dict) and instance.keys() != {"b64"}
        row = instance
        if only is not None and not is_object:
            row = {only: instance}
            bare.add(index)
        if not isinstance(row, dict) or row.keys() != inputs.keys():
            has = f"an object with {_names(row)}" if is_object else describe_json(instance)
            raise RequestError(
                f"instances[{index}] must be an object with {', '.join(inputs)}"
                + (", or only the value" if only else "")
                + f". Received: {has}"
            )
        for name, values in columns.items():
            values.append(row[name])

    def place(name: str, index: int) -> str:
        return f"instances[{index}]{'' if index in bare else f'.{name}'}"

    return _rows(columns, inputs, max_rows, place)


def _rows_of_columns(columns: Any, inputs: Mapping[str, Tensor], max_rows: int) -> list[Row]:
    is_object = isinstance(columns, dict) and columns.keys() != {"b64"}
    if len(inputs) == 1 and not is_object:
        columns = dict.fromkeys(inputs, columns)
    if not isinstance(columns, dict) or columns.keys() != inputs.keys():
        has = f"an object with {_names(columns)}" if is_object else describe_json(columns)
        raise RequestError(
            f"inputs must be an object with {', '.join(inputs)}, each a list with one element per "
            f"example. Received: {has}"
        )
    for name, column in columns.items():
        if not isinstance(column, list) or not column:
            raise RequestError(
                f"inputs.{name} must be a non-empty list with one element per example. "
                f"Received: {describe_json(column)}",
            )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise RequestError(f"all inputs must have the same number of examples. Received: {lengths}")
    return _rows(columns, inputs, max_rows, lambda name, index: f"inputs.{name}[{index}]")


def _rows(
    columns: Mapping[str, list[Any]],
    inputs: Mapping[str, Tensor],
    max_rows: int,
    place: Callable[[str, int], str],
) -> list[Row]:
    """Returns a list of examples, given the columns. `place` formats a value's place."""
    number = len(next(iter(columns.values())))
    _check_number(range(number), max_rows)
    for name in _lists_of_texts(inputs):
        _check_number(columns[name], max_rows, name)
    rows = [
        {
            name: _value(columns[name][index], tensor, place(name, index))
            for name, tensor in inputs.items()
        }
        for index in range(number)
    ]
    for name, first in rows[0].items():
        # As in a tensor, an input's lists must have the same length in all examples.
        for index, row in enumerate(rows):
            if isinstance(first, list) and len(row[name]) != len(first):
                raise RequestError(
                    f"{place(name, index)} must have the same length as {place(name, 0)}, "
                    f"{len(first)}. Received: {len(row[name])}. Pad lists with empty strings, or "
                    "with the id of [PAD]",
                )
    return rows


def _lists_of_texts(inputs: Mapping[str, Tensor]) -> list[str]:
    """Returns the inputs with multiple texts per example. Each text counts toward the limit."""
    return [name for name, tensor in inputs.items() if name == CHOICES or len(tensor.shape) == 3]


def _check_number(rows: Sequence[Any], max_rows: int, name: str = "") -> None:
    """Checks the number of examples or, with `name`, the number of texts in this input."""
    number = sum(len(x) if name and isinstance(x, list) else 1 for x in rows)
    if number > max_rows:
        texts = f"texts in {name}" if name else "examples"
        raise RequestError(f"the request must have at most {max_rows} {texts}. Received: {number}")


def _value(value: Any, tensor: Tensor, where: str, axis: int = 1) -> Any:
    """Returns a validated input value as a Python value. Base64 is decoded to bytes."""
    if axis < len(tensor.shape):
        if not isinstance(value, list):
            raise RequestError(f"{where} must be a list. Received: {describe_json(value)}")
        values = [_value(x, tensor, f"{where}[{i}]", axis + 1) for i, x in enumerate(value)]
        if values and isinstance(values[0], list) and len(set(map(len, values))) > 1:
            raise RequestError(f"the lists in {where} differ in length")
        return values
    if tensor.dtype == STRING:
        if isinstance(value, dict) and value.keys() == {"b64"}:
            return _decoded(value["b64"], where)
        return read_text(value, where)
    if tensor.dtype == INT32:
        if type(value) is int and _LOWEST_INT32 <= value <= _HIGHEST_INT32:
            return value
        raise RequestError(
            f"{where} must be an integer of 32 bits. Received: {describe_json(value)}"
        )
    if type(value) in (int, float):
        return value
    raise RequestError(f"{where} must be a number. Received: {describe_json(value)}")


def _decoded(text: Any, where: str) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        pass
    raise RequestError(f"{where}.b64 must be base64. Received: {describe_json(text)}")


def _names(value: Mapping[str, Any]) -> str:
    names = ", ".join(value)
    return f"{names[:_LONGEST_NAMES]}…" if len(names) > _LONGEST_NAMES else names or "nothing"

# SPDX-License-Identifier: Apache-2.0
"""The JSON of TensorFlow Serving's REST API: requests to rows, and outputs to answers.

A request has `instances` (a list of rows) and is answered with `predictions`, or `inputs` (a list
for each column) and is answered with `outputs`. If a signature has one input, the request may leave
its name out; if it has one output, the answer leaves its name out.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .fields import RequestError, described, encoded, read_object, read_text
from .signatures import CHOICES, DEFAULT_SIGNATURE, INT32, STRING, Row, Signature, Tensor

_KEYS = ("instances", "inputs")
_LOWEST_INT32, _HIGHEST_INT32 = -(2**31), 2**31 - 1
# Maximum characters of an object's names in a message
_LONGEST_NAMES = 80
# Padding values for lists in an output, by the type of their elements
_FILLER: dict[type, Any] = {str: "", int: 0, float: 0.0}


@dataclasses.dataclass(frozen=True)
class PredictRequest:
    """A request.

    Args:
        signature: The name of the signature.
        rows: The inputs of each row.
        is_columns: Whether the request has columns, and so must the answer.
    """

    signature: str
    rows: list[Row]
    is_columns: bool


def read_request(body: bytes, signatures: Mapping[str, Signature], max_rows: int) -> PredictRequest:
    """Reads and checks a request.

    Raises:
        RequestError: If the request is malformed.
    """
    request = read_object(body, '{"instances": […]}')
    name = request.get("signature_name", DEFAULT_SIGNATURE) or DEFAULT_SIGNATURE
    if not isinstance(name, str) or name not in signatures:
        raise RequestError(
            f"signature_name is {described(name)}; the model has {', '.join(sorted(signatures))}"
        )
    keys = [key for key in _KEYS if key in request]
    if len(keys) != 1:
        raise RequestError(
            f"the request has {_names(request)}; expected either instances, a list of rows, or "
            "inputs, columns of them"
        )
    inputs = signatures[name].inputs
    is_columns = keys[0] == "inputs"
    rows = (_rows_of_columns if is_columns else _rows_of_instances)(
        request[keys[0]], inputs, max_rows
    )
    return PredictRequest(name, rows, is_columns)


def write_answer(request: PredictRequest, answers: Sequence[Row], count: str = "") -> bytes:
    """Returns the JSON of an answer.

    Args:
        request: The request.
        answers: The outputs of each row.
        count: The output with the length of each row's lists, to pad them; empty for no padding.

    Raises:
        RequestError: If the JSON has more than 32 MiB.
        ValueError: If a number is not finite.
    """
    if count:
        answers = _filled_up(answers, count)
    names = sorted(answers[0])
    is_bare = len(names) == 1
    if request.is_columns:
        columns: Any = {name: [answer[name] for answer in answers] for name in names}
        content = {"outputs": columns[names[0]] if is_bare else columns}
    else:
        content = {"predictions": [a[names[0]] for a in answers] if is_bare else list(answers)}
    return encoded(content)


def _filled_up(answers: Sequence[Row], count: str) -> list[Row]:
    """Cuts the lists of each row to the length `count`, and pads them to the longest row's."""
    longest = max(answer[count] for answer in answers)
    fillers = {
        name: _FILLER[type(value[0])]
        for answer in answers
        for name, value in answer.items()
        if isinstance(value, list) and value
    }
    return [
        {
            name: value[: answer[count]] + [fillers.get(name)] * (longest - answer[count])
            if isinstance(value, list)
            else value
            for name, value in answer.items()
        }
        for answer in answers
    ]


def _rows_of_instances(instances: Any, inputs: Mapping[str, Tensor], max_rows: int) -> list[Row]:
    if not isinstance(instances, list) or not instances:
        raise RequestError(
            f"instances is {described(instances)}; expected a list of one or more rows"
        )
    only = next(iter(inputs)) if len(inputs) == 1 else None
    _check_number(instances, max_rows)
    for name in _lists_of_texts(inputs):
        _check_number(
            [x.get(name) if isinstance(x, dict) else x for x in instances], max_rows, name
        )
    rows: list[Row] = []
    for index, instance in enumerate(instances):
        where = f"instances[{index}]"
        is_object = isinstance(instance, dict) and instance.keys() != {"b64"}
        if only is not None and not is_object:
            rows.append({only: _value(instance, inputs[only], where)})
            continue
        if not isinstance(instance, dict) or instance.keys() != inputs.keys():
            has = _names(instance) if is_object else described(instance)
            raise RequestError(
                f"{where} {'has' if is_object else 'is'} {has}; expected an object of "
                f"{', '.join(inputs)}" + (", or its value alone" if only else "")
            )
        rows.append(
            {
                name: _value(instance[name], tensor, f"{where}.{name}")
                for name, tensor in inputs.items()
            }
        )
    _check_shapes(rows, lambda index, name: f"{name} of instances[{index}]")
    return rows


def _rows_of_columns(columns: Any, inputs: Mapping[str, Tensor], max_rows: int) -> list[Row]:
    is_object = isinstance(columns, dict) and columns.keys() != {"b64"}
    if len(inputs) == 1 and not is_object:
        columns = dict.fromkeys(inputs, columns)
    if not isinstance(columns, dict) or columns.keys() != inputs.keys():
        has = f"has {_names(columns)}" if is_object else f"is {described(columns)}"
        raise RequestError(
            f"inputs {has}; expected an object of {', '.join(inputs)}, each a list with an element "
            "for each row"
        )
    for name, column in columns.items():
        if not isinstance(column, list) or not column:
            raise RequestError(
                f"inputs.{name} is {described(column)}; expected a list with an element for each "
                "row, one at least"
            )
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise RequestError(f"the inputs differ in their number of rows: {lengths}")
    number = next(iter(lengths.values()))
    _check_number(range(number), max_rows)
    for name in _lists_of_texts(inputs):
        _check_number(columns[name], max_rows, name)
    rows = [
        {
            name: _value(columns[name][index], tensor, f"inputs.{name}[{index}]")
            for name, tensor in inputs.items()
        }
        for index in range(number)
    ]
    _check_shapes(rows, lambda index, name: f"inputs.{name}[{index}]")
    return rows


def _lists_of_texts(inputs: Mapping[str, Tensor]) -> list[str]:
    """Returns the inputs with several texts per row; each text costs as much as a row."""
    return [name for name, tensor in inputs.items() if name == CHOICES or len(tensor.shape) == 3]


def _check_number(rows: Sequence[Any], max_rows: int, name: str = "") -> None:
    """Checks the number of rows, or with `name` the number of that input's texts in all rows."""
    number = sum(len(x) if name and isinstance(x, list) else 1 for x in rows)
    if number > max_rows:
        texts = f"{name} of {number} texts in all" if name else f"{number} rows"
        raise RequestError(f"the request has {texts}; expected at most {max_rows}")


def _check_shapes(rows: Sequence[Row], place: Callable[[int, str], str]) -> None:
    """Checks that the lists of an input have the same length in all rows, as a tensor requires."""
    for name, first in rows[0].items():
        if not isinstance(first, list):
            continue
        for index, row in enumerate(rows):
            if len(row[name]) != len(first):
                raise RequestError(
                    f"{place(index, name)} has {len(row[name])} elements, and {place(0, name)} has "
                    f"{len(first)}; expected as many in all rows of a request: fill them up with "
                    "empty strings, or with the id of [PAD]"
                )


def _value(value: Any, tensor: Tensor, where: str, axis: int = 1) -> Any:
    """Checks a value of an input, and returns it as a Python value; base64 becomes bytes."""
    if axis < len(tensor.shape):
        if not isinstance(value, list):
            raise RequestError(f"{where} is {described(value)}; expected a list")
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
        raise RequestError(f"{where} is {described(value)}; expected an integer of 32 bits")
    if type(value) in (int, float):
        return value
    raise RequestError(f"{where} is {described(value)}; expected a number")


def _decoded(text: Any, where: str) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        pass
    raise RequestError(f"{where}.b64 is {described(text)}; expected base64")


def _names(value: Mapping[str, Any]) -> str:
    names = ", ".join(value)
    return f"{names[:_LONGEST_NAMES]}…" if len(names) > _LONGEST_NAMES else names or "nothing"

# SPDX-License-Identifier: Apache-2.0
"""Shapes of inputs: what several layers check, and ask for."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor


def too_long(length: int, max_sequence_length: int) -> str:
    """Returns the error message for an input that is longer than `max_sequence_length`."""
    return (
        f"The input is {length} tokens long; this model has positions for at most "
        f"{max_sequence_length} (max_sequence_length). Truncate it, or split it into windows."
    )


def check_same_shape(name: str, received: Any, expected: Any) -> None:
    """Checks that two static shapes `(batch, length)` are compatible.

    Args:
        name: The name of the input, for the error message.
        received: The shape of the input, with `None` for unknown dimensions.
        expected: The shape of `token_ids`.

    Raises:
        ValueError: If the ranks or two known dimensions differ.
    """
    received, expected = tuple(received), tuple(expected)
    matches = len(received) == len(expected) and all(
        a is None or b is None or a == b for a, b in zip(received, expected, strict=True)
    )
    if not matches:
        raise ValueError(
            f"`{name}` has shape {received}; it must have the shape of token_ids, {expected}."
        )


def length_of(inputs: Tensor) -> Tensor:
    """Returns the length of inputs `(batch, length, ...)`, a tensor if it is not static."""
    if inputs.shape[1] is not None:
        return inputs.shape[1]
    plain = dispatch.tensorflow_plain()
    return ops.shape(inputs)[1] if plain is None else plain.length_of(inputs)


def reshape_like(x: Tensor, other: Tensor) -> Tensor:
    """Returns `x` in the shape of `other`."""
    plain = dispatch.tensorflow_plain()
    return ops.reshape(x, ops.shape(other)) if plain is None else plain.reshape_like(x, other)

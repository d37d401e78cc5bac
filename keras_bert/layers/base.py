# SPDX-License-Identifier: Apache-2.0
"""Base class for layers that save their arguments, and checks of input shapes."""

from __future__ import annotations

import inspect
from typing import Any

import keras

from keras_bert import checks


class Layer(keras.layers.Layer):
    """A layer that stores each argument of its class in an attribute of the same name."""

    def get_config(self) -> dict[str, Any]:
        # A user's subclass may have more arguments.
        classes = [cls for cls in type(self).__mro__ if issubclass(cls, Layer) and cls is not Layer]
        names = {name for cls in classes for name in inspect.signature(cls.__init__).parameters}
        config = {name: getattr(self, name) for name in sorted(names) if hasattr(self, name)}
        options: dict[str, Any] = checks.plain({**config, **super().get_config()})
        return options


def check_length(length: int | None, max_sequence_length: int) -> None:
    """Checks that an input is not longer than `max_sequence_length`, if its length is known."""
    if length is not None and length > max_sequence_length:
        raise ValueError(
            f"The input must have at most {max_sequence_length} tokens (max_sequence_length). "
            f"Received: {length} tokens. Truncate the input, or split it into windows."
        )


def check_same_shape(name: str, received: Any, expected: Any) -> None:
    """Checks that an input's static shape `(batch, length)` is compatible with `token_ids`."""
    received, expected = tuple(received), tuple(expected)
    matches = len(received) == len(expected) and all(
        a is None or b is None or a == b for a, b in zip(received, expected, strict=True)
    )
    if not matches:
        raise ValueError(
            f"{name} must have the same shape as token_ids, {expected}. Received: {received}"
        )

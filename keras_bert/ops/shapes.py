# SPDX-License-Identifier: Apache-2.0
"""Shapes that a graph may not know, asked for by as few operations as the backend allows."""

from __future__ import annotations

from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor


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

# SPDX-License-Identifier: Apache-2.0
"""Shapes that a graph may not know, asked for by as few operations as the backend allows."""

from __future__ import annotations

from collections.abc import Sequence

from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor


@dispatch.fused
def length_of(inputs: Tensor) -> Tensor:
    """Returns the length of inputs `(batch, length, ...)`, a tensor if it is not static."""
    return ops.shape(inputs)[1]


@dispatch.fused
def reshape_like(x: Tensor, other: Tensor) -> Tensor:
    """Returns `x` in the shape of `other`."""
    return ops.reshape(x, ops.shape(other))


@dispatch.fused
def split(x: Tensor, sizes: Sequence[Tensor]) -> Sequence[Tensor]:
    """Splits the first axis into chunks of sizes that a graph need not know."""
    # By PyTorch: Keras' function makes a tensor of the sizes, on the device, and reads it.
    chunks: Sequence[Tensor] = x.split(sizes)
    return chunks

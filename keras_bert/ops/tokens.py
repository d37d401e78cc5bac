# SPDX-License-Identifier: Apache-2.0
"""Lookup of vectors, by position and in tables, and logits over the vocabulary."""

from __future__ import annotations

from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor


def tokens_at(x: Tensor, positions: Tensor, training: bool = False) -> Tensor:
    """Gathers the vectors at positions `(batch, slots)` of each row: `(batch, slots, dim)`."""
    positions = ops.cast(positions, "int32")
    fast = dispatch.tensorflow_cpu_kernels(training) or dispatch.tensorflow_plain()
    if fast is not None:
        return fast.tokens_at(x, positions)
    return ops.take_along_axis(x, positions[:, :, None], axis=1)


def take(table: Tensor, indices: Tensor, training: bool = False) -> Tensor:
    """Looks up rows of a table `(rows, dim)`: `(*indices.shape, dim)`."""
    fast = dispatch.tensorflow_cpu_kernels(training) or dispatch.tensorflow_plain()
    if fast is not None:
        return fast.take(table, indices)
    return ops.take(table, indices, axis=0)


def take_of_few(table: Tensor, indices: Tensor, training: bool = False) -> Tensor:
    """Looks up rows of a table of a few rows, as `take` does.

    The gradient is a product with one-hot vectors, while the gradient of `take` adds up all vectors
    of the upstream gradient in a few rows, one after the other.
    """
    kernels = dispatch.tensorflow_cpu_kernels(training)
    if kernels is not None:
        return kernels.take_of_few(table, indices)
    plain = dispatch.tensorflow_plain()
    if plain is not None and not training:
        return plain.take(table, indices)
    return ops.matmul(ops.one_hot(indices, table.shape[0], dtype=table.dtype), table)


def token_logits(x: Tensor, table: Tensor) -> Tensor:
    """Multiplies vectors by a transposed embedding table: `(batch, slots, vocabulary)`."""
    plain = dispatch.tensorflow_plain()
    if plain is not None:
        return plain.token_logits(x, table)
    return ops.matmul(x, ops.transpose(table))

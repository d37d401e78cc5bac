# SPDX-License-Identifier: Apache-2.0
"""Lookup of vectors, by position and in tables, and logits over the vocabulary."""

from __future__ import annotations

from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor


@dispatch.fused
def tokens_at(x: Tensor, positions: Tensor, *, training: bool = False) -> Tensor:
    """Gathers the vectors at positions `(batch, slots)` of each row: `(batch, slots, dim)`."""
    return ops.take_along_axis(x, ops.cast(positions, "int32")[:, :, None], axis=1)


@dispatch.fused
def take(table: Tensor, indices: Tensor, *, training: bool = False) -> Tensor:
    """Looks up rows of a table `(rows, dim)`: `(*indices.shape, dim)`."""
    return ops.take(table, indices, axis=0)


@dispatch.fused
def take_of_few(table: Tensor, indices: Tensor, *, training: bool = False) -> Tensor:
    """Looks up rows of a table of a few rows, as `take` does.

    In training, the gradient is a product with one-hot vectors, while the gradient of `take` adds
    up all vectors of the upstream gradient in a few rows, one after the other.
    """
    if not training:
        return take(table, indices)
    return ops.matmul(ops.one_hot(indices, table.shape[0], dtype=table.dtype), table)


@dispatch.fused
def take_once(
    x: Tensor, indices: Tensor, inverse_indices: Tensor, *, training: bool = False
) -> Tensor:
    """Takes rows of `(rows, dim)`, of which only the results at `inverse_indices` have gradients.

    There, the results are the rows in their original order.
    """
    return take(x, indices)


@dispatch.fused
def token_logits(x: Tensor, table: Tensor) -> Tensor:
    """Multiplies vectors by a transposed embedding table: `(batch, slots, vocabulary)`."""
    return ops.matmul(x, ops.transpose(table))

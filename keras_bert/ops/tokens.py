# SPDX-License-Identifier: Apache-2.0
"""Gathering of token vectors by position, and logits over the vocabulary."""

from __future__ import annotations

from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor


def tokens_at(x: Tensor, positions: Tensor) -> Tensor:
    """Gathers the vectors at given positions of each row.

    Args:
        x: Tensor of shape `(batch, length, dim)`.
        positions: Int tensor of shape `(batch, slots)`, in `[0, length)`.

    Returns:
        A tensor of shape `(batch, slots, dim)` in the dtype of `x`.
    """
    positions = ops.cast(positions, "int32")
    plain = dispatch.tensorflow_plain()
    if plain is not None:
        return plain.tokens_at(x, positions)
    return ops.take_along_axis(x, positions[:, :, None], axis=1)


def token_logits(x: Tensor, table: Tensor) -> Tensor:
    """Multiplies vectors by a transposed embedding table.

    Args:
        x: Tensor of shape `(batch, slots, dim)`.
        table: Tensor of shape `(vocabulary, dim)`, in the dtype of `x`.

    Returns:
        A tensor of shape `(batch, slots, vocabulary)` in the dtype of `x`.
    """
    plain = dispatch.tensorflow_plain()
    if plain is not None:
        return plain.token_logits(x, table)
    return ops.matmul(x, ops.transpose(table))

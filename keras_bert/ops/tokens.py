# SPDX-License-Identifier: Apache-2.0
"""Some tokens' vectors out of every row, and vectors against the table of all tokens."""

from __future__ import annotations

from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor


def tokens_at(x: Tensor, positions: Tensor) -> Tensor:
    """The vectors of the tokens at some positions of each row.

    Args:
        x: `(batch, length, dim)`.
        positions: int `(batch, slots)`, each at least 0 and below `length`.

    Returns:
        `(batch, slots, dim)` in the dtype of `x`.
    """
    positions = ops.cast(positions, "int32")
    plain = dispatch.tensorflow_plain()
    if plain is not None:
        return plain.tokens_at(x, positions)
    return ops.take_along_axis(x, positions[:, :, None], axis=1)


def token_logits(x: Tensor, table: Tensor) -> Tensor:
    """The product of vectors with the transposed table of all tokens.

    Args:
        x: `(batch, slots, dim)`.
        table: `(vocabulary, dim)`, in the dtype of `x`.

    Returns:
        `(batch, slots, vocabulary)`.
    """
    plain = dispatch.tensorflow_plain()
    if plain is not None:
        return plain.token_logits(x, table)
    return ops.matmul(x, ops.transpose(table))

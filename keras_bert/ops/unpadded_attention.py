# SPDX-License-Identifier: Apache-2.0
"""Attention of tokens that are end to end, where a kernel computes each row by itself.

Elsewhere attention computes the groups of `keras_bert.ops.unpadded`.
"""

from __future__ import annotations

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention import QueryKeyValue, query_key_value_parts, repeated_heads
from keras_bert.ops.attention_kernels import ROWS, fused_kernel
from keras_bert.ops.unpadded import Rows


def has_kernel_for_rows(query_key_value: QueryKeyValue) -> bool:
    """Returns whether there is one for tensors of this dtype, on this device."""
    query, key, _ = query_key_value_parts(query_key_value)
    return fused_kernel(query, key, ROWS, dropout=0.0) is not None


def attention_of_rows(
    query_key_value: QueryKeyValue,
    rows: Rows,
    *,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    training: bool = False,
) -> Tensor:
    """Computes `keras_bert.ops.attention` of each row to itself, on PyTorch.

    Args:
        query_key_value: See `keras_bert.ops.attention`; of one row that has the tokens of all,
            `(1, tokens, ...)`.
        rows: What `keras_bert.ops.unpadded.unpadded_rows` returned.
        dropout: Dropout rate, in `[0, 1)`; applied only if `training`.
        seed: A `keras.random.SeedGenerator`, required if dropout is active.
        training: Whether dropout is active.

    Returns:
        A tensor of shape `(1, tokens, heads, head_dim)` in the dtype of the input.
    """
    from keras_bert.ops.attention_torch import nested_attention

    query, key, value = query_key_value_parts(query_key_value)
    num_heads = query.shape[2]
    return nested_attention(
        query,
        repeated_heads(key, num_heads),
        repeated_heads(value, num_heads),
        rows,
        dropout=dropout if training else 0.0,
        seed=seed,
    )

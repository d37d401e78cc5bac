# SPDX-License-Identifier: Apache-2.0
"""Attention of tokens that are end to end, where a kernel computes each row by itself.

Elsewhere attention computes the groups of `keras_bert.ops.unpadded`.
"""

from __future__ import annotations

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention import QueryKeyValue, query_key_value_parts, repeated_heads
from keras_bert.ops.attention_kernels import fused_kernel
from keras_bert.ops.unpadded import Rows


def has_kernel_for_rows(query_key_value: QueryKeyValue, mask: str, dropout: float) -> bool:
    """Returns whether there is one for tensors of this dtype, on this device.

    Args:
        query_key_value: See `keras_bert.ops.attention`.
        mask: `ROWS`, or the `WINDOW` of each row, of `keras_bert.ops.attention_kernels`.
        dropout: Dropout rate on the probabilities.
    """
    query, key, _ = query_key_value_parts(query_key_value)
    return fused_kernel(query, key, mask, dropout) is not None


def attention_of_rows(query_key_value: QueryKeyValue, rows: Rows) -> Tensor:
    """Computes `keras_bert.ops.attention` of each row to itself, on PyTorch.

    Args:
        query_key_value: See `keras_bert.ops.attention`; of one row that has the tokens of all,
            `(1, tokens, ...)`.
        rows: What `keras_bert.ops.unpadded.unpadded_rows` returned.

    Returns:
        A tensor of shape `(1, tokens, heads, head_dim)` in the dtype of the input.
    """
    from keras_bert.ops import attention_torch

    query, key, value = query_key_value_parts(query_key_value)
    key, value = (repeated_heads(part, query.shape[2]) for part in (key, value))
    return attention_torch.attention_of_rows(query, key, value, rows)

# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention, fused by the backend whenever nothing has to look inside."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_bert.ops import dispatch

# Added to the scores of masked keys: far below any score, finite in every float dtype, so that
# a row without a single key gives an even average instead of NaN.
MASKED_SCORE = -1e9


def attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    dropout: float = 0.0,
    seed: Any = None,
    training: bool = False,
) -> Any:
    """`softmax(Q K^T / sqrt(d)) V`, with dropout on the probabilities while training.

    Args:
        query: `(batch, length, heads, head_dim)`.
        key: `(batch, source, heads, head_dim)`.
        value: `(batch, source, heads, head_dim)`.
        mask: Boolean, broadcastable to `(batch, heads, length, source)`, True where a query may
            look; `None` where it may look everywhere.
        dropout: Rate; applied only when `training`.
        seed: A `keras.random.SeedGenerator`, needed where dropout is active.
        training: Whether dropout is active and gradients will be wanted.

    Returns:
        `(batch, length, heads, head_dim)` in the dtype of `query`.

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2.1.
    """
    rate = dropout if training else 0.0
    kernels = dispatch.tensorflow_cpu_kernels(training)
    if kernels is not None:
        return kernels.attention(query, key, value, mask, dropout=rate, seed=seed)
    if rate == 0.0:
        return ops.dot_product_attention(query, key, value, mask=mask)
    return attention_with_scores(query, key, value, mask, dropout=rate, seed=seed)[0]


def attention_with_scores(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    dropout: float = 0.0,
    seed: Any = None,
) -> tuple[Any, Any]:
    """`attention`, with the probabilities: the definition that the fused versions are held to.

    Returns:
        The output `(batch, length, heads, head_dim)`, and the probabilities before dropout
        `(batch, heads, length, source)`, in the dtype of `query`.
    """
    dtype = query.dtype
    scores = ops.einsum("btnh,bsnh->bnts", query, key)
    scores = ops.cast(scores, "float32") / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = ops.where(mask, scores, MASKED_SCORE)
    probabilities = ops.cast(ops.softmax(scores, axis=-1), dtype)
    kept = keras.random.dropout(probabilities, dropout, seed=seed) if dropout else probabilities
    return ops.einsum("bnts,bsnh->btnh", kept, value), probabilities

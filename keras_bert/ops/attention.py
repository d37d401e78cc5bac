# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product self-attention, fused by the backend whenever nothing has to look inside."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.masked_score import masked_score


def attention(
    query_key_value: Any,
    mask: Any = None,
    *,
    dropout: float = 0.0,
    seed: Any = None,
    training: bool = False,
) -> Any:
    """`softmax(Q K^T / sqrt(d)) V`, with dropout on the probabilities while training.

    Args:
        query_key_value: `(batch, length, 3, heads, head_dim)`, as one product gives the three.
        mask: Boolean, broadcastable to `(batch, heads, length, length)`, True where a query may
            look; `None` where it may look everywhere.
        dropout: Rate; applied only when `training`.
        seed: A `keras.random.SeedGenerator`, needed where dropout is active.
        training: Whether dropout is active and gradients will be wanted.

    Returns:
        `(batch, length, heads, head_dim)` in the dtype of the input.

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2.1.
    """
    rate = dropout if training else 0.0
    kernels = dispatch.tensorflow_cpu_kernels(training)
    if kernels is not None:
        return kernels.attention(query_key_value, mask, dropout=rate, seed=seed)
    if rate:
        return attention_with_scores(query_key_value, mask, dropout=rate, seed=seed)[0]
    plain = dispatch.tensorflow_plain()
    if plain is not None:
        return plain.attention(query_key_value, mask)
    query, key, value = _split(query_key_value)
    return ops.dot_product_attention(query, key, value, mask=mask)


def attention_with_scores(
    query_key_value: Any,
    mask: Any = None,
    *,
    dropout: float = 0.0,
    seed: Any = None,
) -> tuple[Any, Any]:
    """`attention`, with the probabilities: the definition that the fused versions are held to.

    Returns:
        The output `(batch, length, heads, head_dim)`, and the probabilities before dropout
        `(batch, heads, length, length)`, in the dtype of the input.
    """
    query, key, value = _split(query_key_value)
    scores = ops.einsum("btnh,bsnh->bnts", query, key)
    scores = ops.cast(scores, "float32") / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = ops.where(mask, scores, masked_score("float32"))
    probabilities = ops.cast(ops.softmax(scores, axis=-1), query.dtype)
    kept = keras.random.dropout(probabilities, dropout, seed=seed) if dropout else probabilities
    return ops.einsum("bnts,bsnh->btnh", kept, value), probabilities


def _split(query_key_value: Any) -> tuple[Any, Any, Any]:
    """Query, key and value, each `(batch, length, heads, head_dim)`."""
    return query_key_value[:, :, 0], query_key_value[:, :, 1], query_key_value[:, :, 2]

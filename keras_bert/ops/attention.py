# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product self-attention, fused by the backend unless the scores are returned."""

from __future__ import annotations

import math

from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention_mask import masked_score
from keras_bert.ops.dropout import portable_dropout


def attention(
    query_key_value: Tensor,
    mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    training: bool = False,
) -> Tensor:
    """Computes `softmax(Q K^T / sqrt(d)) V`, with dropout on the probabilities during training.

    Args:
        query_key_value: Float tensor of shape `(batch, length, 3, heads, head_dim)`, the result of
            one matrix product.
        mask: Bool tensor, broadcastable to `(batch, heads, length, length)`, True where a query may
            attend to a key; `None` for no mask.
        dropout: Dropout rate, in `[0, 1)`; applied only if `training`.
        seed: A `keras.random.SeedGenerator`, required if dropout is active.
        training: Whether dropout is active and gradients will be computed.

    Returns:
        A tensor of shape `(batch, length, heads, head_dim)` in the dtype of the input.

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2.1.
    """
    rate = dropout if training else 0.0
    kernels = dispatch.tensorflow_cpu_kernels(training)
    if kernels is not None:
        return kernels.attention(query_key_value, mask, dropout=rate, seed=seed)
    if (
        rate or dispatch.is_jax_on_cpu()
    ):  # JAX fuses nothing there, and its backward pass takes longer
        return attention_with_scores(query_key_value, mask, dropout=rate, seed=seed)[0]
    plain = dispatch.tensorflow_plain()
    if plain is not None:
        return plain.attention(query_key_value, mask)
    query, key, value = (query_key_value[:, :, part] for part in range(3))
    return ops.dot_product_attention(query, key, value, mask=mask)


def attention_with_scores(
    query_key_value: Tensor,
    mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes `attention` and returns the attention probabilities too.

    It is also the portable definition, with which tests compare fused versions.

    Args:
        query_key_value: See `attention`.
        mask: See `attention`.
        dropout: Dropout rate, in `[0, 1)`; always applied.
        seed: See `attention`.

    Returns:
        A tuple of the output `(batch, length, heads, head_dim)` and the probabilities before
        dropout `(batch, heads, length, length)`, in the dtype of the input.
    """
    # (batch, length, 3, heads, head_dim) -> three of (batch, heads, length, head_dim): one
    # transposition for both batched matrix products
    query, key, value = ops.unstack(ops.transpose(query_key_value, (2, 0, 3, 1, 4)), 3)
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    scores = ops.cast(scores, "float32") / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = ops.where(mask, scores, masked_score("float32"))
    # Keras warns about a softmax over one element, as in a row of one token.
    alone = scores.shape[-1] == 1
    probabilities = ops.ones_like(scores) if alone else ops.softmax(scores, axis=-1)
    probabilities = ops.cast(probabilities, query.dtype)
    kept = portable_dropout(probabilities, dropout, seed=seed)
    return ops.transpose(ops.matmul(kept, value), (0, 2, 1, 3)), probabilities

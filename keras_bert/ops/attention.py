# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product self-attention, by a kernel of the device unless the scores are returned."""

from __future__ import annotations

import math
from typing import TypeAlias

import keras
from keras import ops

from keras_bert.ops import dispatch, hashed_dropout
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention_kernels import fused_kernel, kind_of
from keras_bert.ops.attention_mask import masked_score
from keras_bert.ops.dropout import portable_dropout

# The packed result of one product, `(batch, length, 3, heads, head_dim)`; or three tensors `(batch,
# length, heads, head_dim)`, of which keys and values may have fewer heads.
QueryKeyValue: TypeAlias = "Tensor | tuple[Tensor, Tensor, Tensor]"


def attention(
    query_key_value: QueryKeyValue,
    mask: Tensor | None = None,
    *,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    training: bool = False,
    max_length: int | None = None,
) -> Tensor:
    """Computes `softmax(Q K^T / sqrt(d)) V`, with dropout on the probabilities during training.

    Args:
        query_key_value: Float tensor of shape `(batch, length, 3, heads, head_dim)`, the result of
            one matrix product; or a tuple of the queries `(batch, length, heads, head_dim)` and of
            the keys and values `(batch, length, key_value_heads, head_dim)`, whose number of heads
            divides that of the queries: consecutive heads share a key and a value.
        mask: Bool tensor, broadcastable to `(batch, heads, length, length)`, True where a query may
            attend to a key; `None` for no mask.
        dropout: Dropout rate, in `[0, 1)`; applied only if `training`.
        seed: A `keras.random.SeedGenerator`, required if dropout is active.
        training: Whether dropout is active and gradients will be computed.
        max_length: The longest rows that are expected; `None` for any. Where a graph does not know
            the length, training with TensorFlow on a CPU computes rows of 2,048 tokens and more in
            less memory, if they are expected: the choice is a branch in the graph.

    Returns:
        A tensor of shape `(batch, length, heads, head_dim)` in the dtype of the input.

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2.1;
        [GQA](https://arxiv.org/abs/2305.13245), section 2.2.
    """
    rate = dropout if training else 0.0
    if dispatch.tensorflow_cpu_kernels(training) is not None:
        from keras_bert.ops import tensorflow_attention

        query, key, value = _by_heads(query_key_value)
        context = tensorflow_attention.attention(
            query, key, value, mask, dropout=rate, seed=seed, max_length=max_length
        )
        return _by_tokens(context)
    plain = dispatch.tensorflow_plain()
    if plain is not None and not rate:
        return _by_tokens(plain.attention(*_by_heads(query_key_value), mask))
    three = query_key_value_parts(query_key_value)
    kernel = fused_kernel(*three[:2], kind_of(mask), rate)
    # On a CPU, the operations of dropout take no longer than PyTorch's function with it.
    if kernel == "sdpa" or (keras.backend.backend() == "torch" and not rate):
        from keras_bert.ops import attention_torch

        query, key, value = _by_heads(query_key_value)
        context = attention_torch.attention(query, key, value, mask, dropout=rate, seed=seed)
        return _by_tokens(context)
    if kernel == "cudnn":
        from keras_bert.ops import attention_cudnn

        return attention_cudnn.attention(*three, mask)
    memory = dispatch.jax_memory()
    if memory is not None and memory.attends_in_blocks(three[0].shape[1]):
        dropout_key = hashed_dropout.make_key(rate, seed)
        heads = _by_heads(query_key_value)
        return _by_tokens(memory.attention_in_blocks(*heads, mask, rate, dropout_key))
    # JAX fuses nothing on a CPU, and its backward pass takes longer
    if rate or dispatch.is_jax_on_cpu():
        return attention_with_scores(query_key_value, mask, dropout=rate, seed=seed)[0]
    return ops.dot_product_attention(*three, mask=mask)


def attention_with_scores(
    query_key_value: QueryKeyValue,
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
    query, key, value = _by_heads(query_key_value)
    # In float16, the products of queries that are not scaled yet could overflow.
    scores = ops.matmul(query * (1 / math.sqrt(query.shape[-1])), ops.swapaxes(key, -1, -2))
    scores = ops.cast(scores, "float32")
    if mask is not None:
        scores = ops.where(mask, scores, masked_score("float32"))
    # Keras warns about a softmax over one element, as in a row of one token.
    alone = scores.shape[-1] == 1
    probabilities = ops.ones_like(scores) if alone else ops.softmax(scores, axis=-1)
    probabilities = ops.cast(probabilities, query.dtype)
    kept = portable_dropout(probabilities, dropout, seed=seed)
    return _by_tokens(ops.matmul(kept, value)), probabilities


def query_key_value_parts(query_key_value: QueryKeyValue) -> tuple[Tensor, Tensor, Tensor]:
    """Returns queries, keys and values, each of shape `(batch, length, heads, head_dim)`."""
    if isinstance(query_key_value, tuple):
        return query_key_value
    query, key, value = (query_key_value[:, :, part] for part in range(3))
    return query, key, value


def _by_heads(query_key_value: QueryKeyValue) -> list[Tensor]:
    """Returns queries, keys and values, each of shape `(batch, heads, length, head_dim)`."""
    if not isinstance(query_key_value, tuple):
        # One transposition for all three
        three: list[Tensor] = ops.unstack(ops.transpose(query_key_value, (2, 0, 3, 1, 4)), 3)
        return three
    num_heads = query_key_value[0].shape[2]
    parts = (repeated_heads(tensor, num_heads) for tensor in query_key_value)
    return [ops.transpose(part, (0, 2, 1, 3)) for part in parts]


def repeated_heads(x: Tensor, num_heads: int) -> Tensor:
    """Repeats each head of `(batch, length, heads, head_dim)` until there are `num_heads`."""
    heads = x.shape[2]
    return x if heads == num_heads else ops.repeat(x, num_heads // heads, axis=2)


def _by_tokens(context: Tensor) -> Tensor:
    """Transposes `(batch, heads, length, head_dim)` to `(batch, length, heads, head_dim)`."""
    return ops.transpose(context, (0, 2, 1, 3))

# SPDX-License-Identifier: Apache-2.0
"""Attention in training with TensorFlow on a CPU.

The probabilities are stored for the backward pass. Of long rows, which have more of them than a
step has of anything else, the scores of a block of queries are computed at a time, and again in the
backward pass: memory grows with the length then, and not with its square.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.hashed_dropout import drop, make_key
from keras_bert.ops.tensorflow_cpu import compiled, dropped, traced_once, wide
from keras_bert.ops.tensorflow_plain import (
    attention_probabilities,
    is_compiled_as_a_whole,
    mask_of_each_row,
)

# Queries in a block: their scores with 8,192 keys take 16 MiB for each head.
BLOCK_SIZE = 512
# Rows of fewer tokens are not cut into blocks: they need less memory than the rest of a step.
MIN_LENGTH = 2048


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *, dropout: float, seed: Tensor
) -> Tensor:
    """`keras_bert.ops.attention` in training, of tensors `(batch, heads, length, head_dim)`."""
    head_dim, length = query.shape[-1], query.shape[2]
    masks_queries = mask is not None and mask.shape[2] != 1
    masks = () if mask is None else (mask_of_each_row(mask, query),)
    inputs = (key, value, make_key(dropout, seed))
    whole, in_blocks = _attention(dropout, head_dim), _in_blocks(dropout, head_dim, masks_queries)
    # XLA compiles both branches of a `cond`: what one stores for the backward pass would need the
    # same shape as if it were taken.
    if length is None and not is_compiled_as_a_whole():
        context = tf.cond(
            tf.shape(query)[2] < MIN_LENGTH,
            lambda: whole(query, *inputs, *masks),
            lambda: in_blocks(query, *inputs, *masks),
        )
    else:
        compute = whole if length is None or length < MIN_LENGTH else in_blocks
        context = compute(query, *inputs, *masks)
    # The blocks' shape is not known to the graph.
    return tf.ensure_shape(context, query.shape)


class Attended(NamedTuple):
    """The result of attention, and the function that computes its gradients.

    Attributes:
        context: `(batch, heads, queries, head_dim)`.
        gradients: A function of the gradient of the context that returns those of the queries, the
            keys and the values.
    """

    context: Tensor
    gradients: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


def _attended(
    dropout: float, queries: Tensor, keys: Tensor, values: Tensor, seed: Tensor, *masks: Tensor
) -> Attended:
    """Computes attention of tensors `(batch, heads, length, head_dim)`.

    Args:
        dropout: Dropout rate on the probabilities.
        queries: The queries.
        keys: The keys, which may have another length.
        values: The values, of the shape of the keys.
        seed: The key of the dropout, uint32 `(2,)`.
        *masks: At most one mask, bool `(batch, 1, length or 1, length of the keys)`.
    """
    probabilities = attention_probabilities(queries, keys, *(masks or (None,)))
    kept = dropped(dropout)(probabilities, seed) if dropout else probabilities

    def gradients(upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        along_kept = tf.matmul(upstream, values, transpose_b=True)
        scale = 1 / math.sqrt(queries.shape[-1])
        along_scores = _softmax_gradient(dropout, scale)(probabilities, along_kept, seed)
        return (
            tf.matmul(along_scores, keys),
            tf.matmul(along_scores, queries, transpose_a=True),
            tf.matmul(kept, upstream, transpose_a=True),
        )

    return Attended(tf.matmul(kept, values), gradients)


@functools.cache
def _attention(dropout: float, head_dim: int) -> Callable[..., Any]:
    @traced_once
    @tf.custom_gradient
    def compute(
        queries: Tensor, keys: Tensor, values: Tensor, seed: Tensor, *masks: Tensor
    ) -> tuple[Any, Callable[[Any], Any]]:
        queries = tf.ensure_shape(queries, (None, None, None, head_dim))
        context, gradients = _attended(dropout, queries, keys, values, seed, *masks)

        def gradient(upstream: Tensor) -> tuple[Any, ...]:
            return (*gradients(upstream), None, *(None for _ in masks))

        return context, gradient

    return compute


@functools.cache
def _in_blocks(dropout: float, head_dim: int, masks_queries: bool) -> Callable[..., Any]:
    """Returns a function like that of `_attention`.

    Args:
        dropout: Dropout rate on the probabilities.
        head_dim: Dimension of a head.
        masks_queries: Whether a mask has a row for each query, and not one for all of them.

    Reference:
        [Self-attention does not need O(n²) memory](https://arxiv.org/abs/2112.05682), section 3.
    """

    @traced_once
    @tf.custom_gradient
    def compute(
        queries: Tensor, keys: Tensor, values: Tensor, seed: Tensor, *masks: Tensor
    ) -> tuple[Any, Callable[[Any], Any]]:
        queries = tf.ensure_shape(queries, (None, None, None, head_dim))
        length = tf.shape(queries)[2]
        number = (length + BLOCK_SIZE - 1) // BLOCK_SIZE
        query_blocks = _cut(queries, number)
        mask_blocks = tuple(_cut(mask, number) for mask in masks) if masks_queries else ()

        def attended(index: Tensor) -> Attended:
            of_block = seed + tf.stack([tf.constant(0, "uint32"), tf.cast(index, "uint32")])
            block_masks = tuple(mask[index] for mask in mask_blocks) or masks
            return _attended(dropout, query_blocks[index], keys, values, of_block, *block_masks)

        def attend(index: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
            return index + 1, _with_block(contexts, index, attended(index).context)

        def gradient(upstream: Tensor) -> tuple[Any, ...]:
            upstream_blocks = _cut(upstream, number)

            def add_gradients(
                index: Tensor, of_queries: Tensor, of_keys: Tensor, of_values: Tensor
            ) -> tuple[Tensor, ...]:
                of_block, *others = attended(index).gradients(upstream_blocks[index])
                of_keys, of_values = (
                    total + tf.cast(part, total.dtype)
                    for total, part in zip((of_keys, of_values), others, strict=True)
                )
                return index + 1, _with_block(of_queries, index, of_block), of_keys, of_values

            # Sums of many blocks, in float32 or wider
            zeros = (tf.zeros_like(wide(tensor)) for tensor in (keys, values))
            of_queries, *others = _for_each(
                number, add_gradients, tf.zeros_like(query_blocks), *zeros
            )
            return (
                _joined(of_queries, length),
                *(tf.cast(total, keys.dtype) for total in others),
                None,
                *(None for _ in masks),
            )

        (contexts,) = _for_each(number, attend, tf.zeros_like(query_blocks))
        return _joined(contexts, length), gradient

    return compute


def _for_each(number: Tensor, body: Callable[..., Any], *state: Tensor) -> tuple[Tensor, ...]:
    """Calls a function for each block, one after the other, with its index and the state."""
    start = (tf.constant(0), *state)
    _, *state = tf.while_loop(lambda index, *_: index < number, body, start, parallel_iterations=1)
    return tuple(state)


def _cut(x: Tensor, number: Tensor) -> Tensor:
    """Cuts `(batch, heads, length, width)` into `(number, batch, heads, size, width)`."""
    batch, heads, length, width = tf.unstack(tf.shape(x))
    size = (length + number - 1) // number
    x = tf.pad(x, [(0, 0), (0, 0), (0, number * size - length), (0, 0)])
    return tf.transpose(tf.reshape(x, (batch, heads, number, size, width)), (2, 0, 1, 3, 4))


def _joined(blocks: Tensor, length: Tensor) -> Tensor:
    """Joins what `_cut` returned."""
    number, batch, heads, size, width = tf.unstack(tf.shape(blocks))
    x = tf.reshape(tf.transpose(blocks, (1, 2, 0, 3, 4)), (batch, heads, number * size, width))
    return x[:, :, :length]


def _with_block(blocks: Tensor, index: Tensor, block: Tensor) -> Tensor:
    return tf.tensor_scatter_nd_update(blocks, [[index]], block[tf.newaxis])


@functools.cache
def _softmax_gradient(rate: float, scale: float) -> Callable[..., Any]:
    @compiled
    def softmax_gradient(probabilities: Tensor, upstream: Tensor, key: Tensor) -> Tensor:
        probability = wide(probabilities)
        product = probability * drop(wide(upstream), rate, key)
        total = tf.reduce_sum(product, -1, keepdims=True)
        return tf.cast((product - probability * total) * scale, probabilities.dtype)

    return softmax_gradient

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
from keras_bert.ops.tensorflow_cpu import compiled, dropped, open_spec, wide
from keras_bert.ops.tensorflow_graphs import traced_once
from keras_bert.ops.tensorflow_plain import (
    attention_probabilities,
    is_compiled_as_a_whole,
    mask_of_each_row,
)

# Queries in a block: their scores with 8,192 keys take 16 MiB for each head.
BLOCK_SIZE = 512
# Rows of fewer tokens are not cut into blocks: they need less memory than the rest of a step.
MIN_LENGTH = 2048


class _Inputs(NamedTuple):
    """What attention is computed of.

    Attributes:
        queries: `(batch, heads, queries, head_dim)`.
        keys: `(batch, heads, keys, head_dim)`.
        values: Of the shape of the keys.
        seed: The key of the dropout, uint32 `(2,)`.
        mask: bool `(batch, 1, queries or 1, keys)`, or `None`.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    seed: Tensor
    mask: Tensor | None = None


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    *,
    dropout: float,
    seed: Tensor,
    max_length: int | None = None,
) -> Tensor:
    """`keras_bert.ops.attention` in training, of tensors `(batch, heads, length, head_dim)`."""
    head_dim, length = query.shape[-1], query.shape[2]
    masks_queries = mask is not None and mask.shape[2] != 1
    masks = () if mask is None else (mask_of_each_row(mask, query),)
    is_long = None if length is None else length >= MIN_LENGTH
    if is_long is None and max_length is not None and max_length < MIN_LENGTH:
        is_long = False
    # XLA compiles both branches of a `cond`: what one stores for the backward pass would need the
    # same shape as if it were taken.
    if is_compiled_as_a_whole():
        is_long = bool(is_long)
    compute = _attention(dropout, head_dim, masks_queries, is_long)
    context = compute(query, key, value, make_key(dropout, seed), *masks)
    # The blocks' shape is not known to the graph.
    return tf.ensure_shape(context, query.shape)


@functools.cache
def _attention(
    dropout: float, head_dim: int, masks_queries: bool, is_long: bool | None
) -> Callable[..., Any]:
    """Returns the function of the inputs, which is traced once for all layers of all models.

    The choice between the two ways to compute it is a part of the function and of its gradient: in
    each layer it would take half of the time before the first step of training.

    Args:
        dropout: Dropout rate on the probabilities.
        head_dim: Dimension of a head.
        masks_queries: Whether a mask has a row for each query, and not one for all of them.
        is_long: Whether to compute blocks of queries; `None` if only a batch tells their number.
    """

    @functools.partial(traced_once, spec=open_spec)
    @tf.custom_gradient
    def compute(queries: Tensor, *others: Tensor) -> tuple[Any, Callable[[Any], Any]]:
        inputs = _Inputs(tf.ensure_shape(queries, (None, None, None, head_dim)), *others)

        def choose(in_blocks: Callable[[], Any], at_once: Callable[[], Any]) -> Any:
            if is_long is None:
                return tf.cond(tf.shape(queries)[2] >= MIN_LENGTH, in_blocks, at_once)
            return in_blocks() if is_long else at_once()

        def in_blocks() -> tuple[Tensor, Tensor, Tensor]:
            nothing = tf.zeros((0, 0, 0, 0), queries.dtype)
            return _attend_in_blocks(dropout, inputs, masks_queries), nothing, nothing

        context, *stored = choose(in_blocks, lambda: _attend(dropout, inputs))

        def gradient(upstream: Tensor) -> tuple[Any, ...]:
            gradients = choose(
                lambda: _gradients_in_blocks(dropout, inputs, masks_queries, upstream),
                lambda: _gradients(dropout, inputs, upstream, *stored),
            )
            return (*gradients, *(None for _ in others[2:]))

        return context, gradient

    return compute


def _attend(dropout: float, inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the context, of the shape of the queries, and what `_gradients` needs besides.

    These are the probabilities, `(batch, heads, queries, keys)`, before and after their dropout.
    """
    probabilities = attention_probabilities(inputs.queries, inputs.keys, inputs.mask)
    kept = dropped(dropout)(probabilities, inputs.seed) if dropout else probabilities
    return tf.matmul(kept, inputs.values), probabilities, kept


def _gradients(
    dropout: float, inputs: _Inputs, upstream: Tensor, probabilities: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the gradients of queries, keys and values from that of the context."""
    along_kept = tf.matmul(upstream, inputs.values, transpose_b=True)
    scale = 1 / math.sqrt(inputs.queries.shape[-1])
    along_scores = _softmax_gradient(dropout, scale)(probabilities, along_kept, inputs.seed)
    return (
        tf.matmul(along_scores, inputs.keys),
        tf.matmul(along_scores, inputs.queries, transpose_a=True),
        tf.matmul(kept, upstream, transpose_a=True),
    )


# === Blocks of queries ===
# [Self-attention does not need O(n²) memory](https://arxiv.org/abs/2112.05682), section 3


def _attend_in_blocks(dropout: float, inputs: _Inputs, masks_queries: bool) -> Tensor:
    """Computes the context alone: of the blocks nothing is stored for the gradients."""
    number, block = _blocks(inputs, masks_queries)

    def attend(index: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        context, *_ = _attend(dropout, block(index))
        return index + 1, _with_block(contexts, index, context)

    (contexts,) = _for_each(number, attend, tf.zeros_like(_cut(inputs.queries, number)))
    return _joined(contexts, tf.shape(inputs.queries)[2])


def _gradients_in_blocks(
    dropout: float, inputs: _Inputs, masks_queries: bool, upstream: Tensor
) -> tuple[Tensor, ...]:
    """Computes what `_gradients` does, and what is stored for it, again for each block."""
    number, block = _blocks(inputs, masks_queries)
    upstream_blocks = _cut(upstream, number)

    def add_gradients(
        index: Tensor, of_queries: Tensor, of_keys: Tensor, of_values: Tensor
    ) -> tuple[Tensor, ...]:
        _, *stored = _attend(dropout, block(index))
        of_block, *others = _gradients(dropout, block(index), upstream_blocks[index], *stored)
        of_keys, of_values = (
            total + tf.cast(part, total.dtype)
            for total, part in zip((of_keys, of_values), others, strict=True)
        )
        return index + 1, _with_block(of_queries, index, of_block), of_keys, of_values

    # Sums of many blocks, in float32 or wider
    zeros = (tf.zeros_like(wide(tensor)) for tensor in (inputs.keys, inputs.values))
    of_queries, *totals = _for_each(number, add_gradients, tf.zeros_like(upstream_blocks), *zeros)
    others = (tf.cast(total, inputs.keys.dtype) for total in totals)
    return _joined(of_queries, tf.shape(inputs.queries)[2]), *others


def _blocks(inputs: _Inputs, masks_queries: bool) -> tuple[Tensor, Callable[[Tensor], _Inputs]]:
    """Returns the number of blocks, and the function of an index that returns a block's inputs."""
    queries, keys, values, seed, mask = inputs
    number = (tf.shape(queries)[2] + BLOCK_SIZE - 1) // BLOCK_SIZE
    query_blocks = _cut(queries, number)
    mask_blocks = _cut(mask, number) if masks_queries else None

    def block(index: Tensor) -> _Inputs:
        of_block = seed + tf.stack([tf.constant(0, "uint32"), tf.cast(index, "uint32")])
        block_mask = mask if mask_blocks is None else mask_blocks[index]
        return _Inputs(query_blocks[index], keys, values, of_block, block_mask)

    return number, block


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

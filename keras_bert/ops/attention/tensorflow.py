# SPDX-License-Identifier: Apache-2.0
"""TensorFlow attention with operations for its graph optimizer, and for training on a CPU.

Training on a CPU stores the probabilities for the backward pass. In long sequences, they would take
more memory than anything else. So the scores of long sequences are computed for one chunk of
queries at a time, and again in the backward pass. Memory then grows linearly with the length
instead of quadratically.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention.kernels import CHUNK_SIZE, MIN_CHUNKED_LENGTH
from keras_bert.ops.hashed_dropout import drop, fold_in, make_key
from keras_bert.ops.tensorflow_cpu import dropout_function, open_spec, upcast, xla_function
from keras_bert.ops.tensorflow_graphs import trace_once
from keras_bert.ops.tensorflow_plain import is_compiled_as_a_whole


def plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Computes attention on `(batch, heads, length, head_dim)` with matmuls, without dropout.

    Exported graphs contain it, so it does not require XLA.
    """
    return tf.matmul(_probabilities(query, key, mask), value)


def _probabilities(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """Computes the softmax of scaled and masked scores, `(batch, heads, length, length)`."""
    scale = tf.constant(1 / math.sqrt(query.shape[-1]), query.dtype)
    if query.dtype == tf.float16:  # The matmul could overflow if the queries were not scaled first.
        scores = tf.matmul(query * scale, key, transpose_b=True)
    else:
        # In this order, the graph optimizer fuses the matmul, the scale and the mask.
        scores = tf.matmul(query, key, transpose_b=True) * scale
    return tf.nn.softmax(scores if mask is None else scores + tf.cast(mask, scores.dtype))


# === Training on a CPU ===


class _Inputs(NamedTuple):
    """Inputs of attention.

    Attributes:
        queries: `(batch, heads, queries, head_dim)`.
        keys: `(batch, heads, keys, head_dim)`.
        values: `(batch, heads, keys, head_dim)`.
        seed: The dropout key, uint32 `(2,)`.
        mask: Float `(batch, 1, queries or 1, keys)` to be added to the scores, or `None`.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    seed: Tensor
    mask: Tensor | None = None


def fused_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    dropout: float,
    seed: Tensor,
    max_length: int | None = None,
) -> Tensor:
    """Computes attention on `(batch, heads, length, head_dim)` in training.

    The mask, float `(batch, 1, length or 1, length)`, is added to the scores. It has no gradient.
    """
    head_dim, length = query.shape[-1], query.shape[2]
    masks_queries = mask is not None and mask.shape[2] != 1
    masks = () if mask is None else (mask,)
    is_long = None if length is None else length >= MIN_CHUNKED_LENGTH
    if is_long is None and max_length is not None and max_length < MIN_CHUNKED_LENGTH:
        is_long = False
    # XLA compiles both branches of a `cond`. It requires that both store tensors of the same shapes
    # for the backward pass.
    if is_compiled_as_a_whole():
        is_long = bool(is_long)
    compute = _attention(dropout, head_dim, masks_queries, is_long)
    context = compute(query, key, value, make_key(dropout, seed), *masks)
    # The graph does not infer the shape of the chunks.
    return tf.ensure_shape(context, query.shape)


@functools.cache
def _attention(
    dropout: float, head_dim: int, masks_queries: bool, is_long: bool | None
) -> Callable[..., Any]:
    """Returns the attention function, traced once for all layers of all models.

    The function and its gradient contain the choice between the two implementations. If each layer
    made the choice, it would take half of the time before the first training step. `masks_queries`
    is whether the mask differs between queries. `is_long` is whether to compute chunks of queries,
    or `None` if it depends on the batch.
    """

    @functools.partial(trace_once, spec=open_spec)
    @tf.custom_gradient
    def compute(queries: Tensor, *others: Tensor) -> tuple[Any, Callable[[Any], Any]]:
        inputs = _Inputs(tf.ensure_shape(queries, (None, None, None, head_dim)), *others)

        def choose(compute_in_chunks: Callable[[], Any], compute_at_once: Callable[[], Any]) -> Any:
            if is_long is None:
                return tf.cond(
                    tf.shape(queries)[2] >= MIN_CHUNKED_LENGTH, compute_in_chunks, compute_at_once
                )
            return compute_in_chunks() if is_long else compute_at_once()

        def compute_in_chunks() -> tuple[Tensor, Tensor, Tensor]:
            nothing = tf.zeros((0, 0, 0, 0), queries.dtype)
            return _attend_in_chunks(dropout, inputs, masks_queries), nothing, nothing

        context, *stored = choose(compute_in_chunks, lambda: _attend(dropout, inputs))

        def gradient(upstream: Tensor) -> tuple[Any, ...]:
            gradients = choose(
                lambda: _gradients_in_chunks(dropout, inputs, masks_queries, upstream),
                lambda: _gradients(dropout, inputs, upstream, *stored),
            )
            return (*gradients, *(None for _ in others[2:]))

        return context, gradient

    return compute


def _attend(dropout: float, inputs: _Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the context and the probabilities that `_gradients` needs.

    The context has the shape of the queries. The probabilities, `(batch, heads, queries, keys)`,
    are returned before and after dropout.
    """
    probabilities = _probabilities(inputs.queries, inputs.keys, inputs.mask)
    weights = dropout_function(dropout)(probabilities, inputs.seed) if dropout else probabilities
    return tf.matmul(weights, inputs.values), probabilities, weights


def _gradients(
    dropout: float, inputs: _Inputs, upstream: Tensor, probabilities: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the gradients of queries, keys and values from the context's gradient."""
    along_weights = tf.matmul(upstream, inputs.values, transpose_b=True)
    scale = 1 / math.sqrt(inputs.queries.shape[-1])
    along_scores = _softmax_gradient(dropout, scale)(probabilities, along_weights, inputs.seed)
    return (
        tf.matmul(along_scores, inputs.keys),
        tf.matmul(along_scores, inputs.queries, transpose_a=True),
        tf.matmul(weights, upstream, transpose_a=True),
    )


# === Chunks of queries ===
# [Self-attention does not need O(n²) memory](https://arxiv.org/abs/2112.05682), section 3


def _attend_in_chunks(dropout: float, inputs: _Inputs, masks_queries: bool) -> Tensor:
    """Computes the context chunk by chunk, without storing probabilities for the gradients."""
    number, chunk = _chunks(inputs, masks_queries)

    def attend(index: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        context, *_ = _attend(dropout, chunk(index))
        return index + 1, _with_chunk(contexts, index, context)

    (contexts,) = _for_each(number, attend, tf.zeros_like(_split(inputs.queries, number)))
    return _joined(contexts, tf.shape(inputs.queries)[2])


def _gradients_in_chunks(
    dropout: float, inputs: _Inputs, masks_queries: bool, upstream: Tensor
) -> tuple[Tensor, ...]:
    """Computes the gradients chunk by chunk, recomputing the probabilities."""
    number, chunk = _chunks(inputs, masks_queries)
    upstream_chunks = _split(upstream, number)

    def add_gradients(
        index: Tensor, query_grads: Tensor, key_grads: Tensor, value_grads: Tensor
    ) -> tuple[Tensor, ...]:
        _, *stored = _attend(dropout, chunk(index))
        chunk_grads, *others = _gradients(dropout, chunk(index), upstream_chunks[index], *stored)
        key_grads, value_grads = (
            total + tf.cast(part, total.dtype)
            for total, part in zip((key_grads, value_grads), others, strict=True)
        )
        return index + 1, _with_chunk(query_grads, index, chunk_grads), key_grads, value_grads

    # Sums over many chunks are computed in float32 or wider.
    zeros = (tf.zeros_like(upcast(tensor)) for tensor in (inputs.keys, inputs.values))
    query_grads, *totals = _for_each(number, add_gradients, tf.zeros_like(upstream_chunks), *zeros)
    others = (tf.cast(total, inputs.keys.dtype) for total in totals)
    return _joined(query_grads, tf.shape(inputs.queries)[2]), *others


def _chunks(inputs: _Inputs, masks_queries: bool) -> tuple[Tensor, Callable[[Tensor], _Inputs]]:
    """Returns the number of chunks, and a function from a chunk's index to its inputs."""
    queries, keys, values, seed, mask = inputs
    number = (tf.shape(queries)[2] + CHUNK_SIZE - 1) // CHUNK_SIZE
    query_chunks = _split(queries, number)
    mask_chunks = _split(mask, number) if masks_queries else None

    def chunk(index: Tensor) -> _Inputs:
        chunk_mask = mask if mask_chunks is None else mask_chunks[index]
        return _Inputs(query_chunks[index], keys, values, fold_in(seed, index), chunk_mask)

    return number, chunk


def _for_each(number: Tensor, body: Callable[..., Any], *state: Tensor) -> tuple[Tensor, ...]:
    """Calls `body` for each chunk in order, with the chunk's index and the state."""
    start = (tf.constant(0), *state)
    _, *state = tf.while_loop(lambda index, *_: index < number, body, start, parallel_iterations=1)
    return tuple(state)


def _split(x: Tensor, number: Tensor) -> Tensor:
    """Splits `(batch, heads, length, width)` into `(number, batch, heads, size, width)`."""
    batch, heads, length, width = tf.unstack(tf.shape(x))
    size = (length + number - 1) // number
    x = tf.pad(x, [(0, 0), (0, 0), (0, number * size - length), (0, 0)])
    return tf.transpose(tf.reshape(x, (batch, heads, number, size, width)), (2, 0, 1, 3, 4))


def _joined(chunks: Tensor, length: Tensor) -> Tensor:
    """Joins the chunks from `_split` and removes the padding at the end."""
    number, batch, heads, size, width = tf.unstack(tf.shape(chunks))
    x = tf.reshape(tf.transpose(chunks, (1, 2, 0, 3, 4)), (batch, heads, number * size, width))
    return x[:, :, :length]


def _with_chunk(chunks: Tensor, index: Tensor, chunk: Tensor) -> Tensor:
    return tf.tensor_scatter_nd_update(chunks, [[index]], chunk[tf.newaxis])


@functools.cache
def _softmax_gradient(rate: float, scale: float) -> Callable[..., Any]:
    @xla_function
    def softmax_gradient(probabilities: Tensor, upstream: Tensor, key: Tensor) -> Tensor:
        probability = upcast(probabilities)
        product = probability * drop(upcast(upstream), rate, key)
        total = tf.reduce_sum(product, -1, keepdims=True)
        return tf.cast((product - probability * total) * scale, probabilities.dtype)

    return softmax_gradient

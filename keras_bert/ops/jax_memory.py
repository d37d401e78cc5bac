# SPDX-License-Identifier: Apache-2.0
"""Training with less memory on JAX: attention in blocks, and rematerialization on a CPU.

XLA's CPU compiler undoes what `jax.checkpoint` does: it removes the barriers that keep a second
computation apart from the first, and shares the results of the first after all. It does not look
into the branches of a condition, nor into the body of a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from keras_bert.ops import hashed_dropout
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention_mask import masked_score

# Queries in a block: their scores with 8,192 keys take 16 MiB for each head.
BLOCK_SIZE = 512
# Rows of fewer tokens are one block: they need less memory than the rest of a step.
MIN_LENGTH = 2048


def rematerialize(function: Callable[[Tensor], Any], x: Tensor) -> Any:
    """Computes `function(x)`, and again in the backward pass, where it waits for the gradient.

    Args:
        function: A function of a tensor, which may read other tensors.
        x: Float tensor.
    """
    converted, constants = jax.closure_convert(function, x)

    @jax.custom_vjp
    def compute(x: Any, *constants: Any) -> Any:
        return converted(x, *constants)

    def forward(x: Any, *constants: Any) -> Any:
        return converted(x, *constants), (x, constants)

    def backward(saved: Any, upstream: Any) -> Any:
        x, constants = saved

        def gradients() -> Any:
            return jax.vjp(converted, x, *constants)[1](upstream)

        def zeros() -> Any:
            return jax.tree.map(jnp.zeros_like, (x, *constants))

        # Always true, also of NaN, which only the running program knows
        (first, *_) = jax.tree.leaves(upstream)
        always = jnp.logical_not(jnp.tanh(first.ravel()[0].astype("float32")) > 2)
        return jax.lax.cond(always, gradients, zeros)

    compute.defvjp(forward, backward)
    return compute(x, *constants)


def attends_in_blocks(length: Any) -> bool:
    """Returns whether attention to this number of tokens is computed in blocks."""
    return isinstance(length, int) and length >= MIN_LENGTH


def attention_in_blocks(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    dropout: float = 0.0,
    dropout_key: Any = None,
) -> Any:
    """`keras_bert.ops.attention`, whose memory is proportional to the length.

    The scores of a block of queries are computed at a time, and again in the backward pass.
    Dropout drops what it does in all scores at once.

    Args:
        query: `(batch, heads, length, head_dim)`, like `key` and `value`.
        key: See `query`.
        value: See `query`.
        mask: Bool, broadcastable to `(batch, heads, length, length)`; `None` for no mask.
        dropout: Dropout rate on the probabilities, in `[0, 1)`.
        dropout_key: What `keras_bert.ops.hashed_dropout.make_key` returned.

    Returns:
        A tensor of the shape and dtype of `query`.

    Reference:
        [Self-attention does not need O(n²) memory](https://arxiv.org/abs/2112.05682), section 3.
    """
    length = query.shape[2]
    padding = -length % BLOCK_SIZE
    masks_queries = mask is not None and mask.shape[-2] != 1

    def blocks(x: Any) -> Any:
        x = jnp.pad(x, [(0, 0), (0, 0), (0, padding), (0, 0)])
        parts = x.reshape(*x.shape[:2], -1, BLOCK_SIZE, x.shape[-1])
        return jnp.moveaxis(parts, 2, 0)

    @jax.checkpoint
    def attended(block: tuple[Any, ...]) -> Any:
        first, queries, *masks = block
        # In float16, the products of queries that are not scaled yet could overflow.
        scores = jnp.matmul(queries * query.shape[-1] ** -0.5, key.swapaxes(-1, -2))
        scores = scores.astype("float32")
        if mask is not None:
            (block_mask,) = masks or (mask,)
            scores = jnp.where(block_mask, scores, masked_score("float32"))
        probabilities = jax.nn.softmax(scores).astype(value.dtype)
        if dropout:
            positions = _positions(probabilities.shape, first, length)
            probabilities = hashed_dropout.drop(probabilities, dropout, dropout_key, positions)
        return jnp.matmul(probabilities, value)

    firsts = jnp.arange(0, length, BLOCK_SIZE, dtype="uint32")
    inputs = (firsts, blocks(query), *([blocks(mask)] if masks_queries else []))
    contexts = jax.lax.map(attended, inputs)
    joined = jnp.moveaxis(contexts, 0, 2).reshape(*query.shape[:2], -1, value.shape[-1])
    return joined[:, :, :length]


def _positions(shape: tuple[int, ...], first: Any, length: int) -> Any:
    """Returns the position of each score of a block among all scores, uint32, of this shape.

    Args:
        shape: `(batch, heads, queries, keys)`.
        first: The index of the first query, uint32.
        length: The number of queries of a row.
    """
    batch, heads, queries, keys = (jax.lax.broadcasted_iota("uint32", shape, i) for i in range(4))
    return ((batch * shape[1] + heads) * length + first + queries) * shape[3] + keys

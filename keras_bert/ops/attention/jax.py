# SPDX-License-Identifier: Apache-2.0
"""JAX attention kernels that do not store all scores, with cuDNN or in chunks of queries."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from keras_bert.ops import hashed_dropout
from keras_bert.ops.attention.kernels import CHUNK_SIZE
from keras_bert.ops.masks import apply_mask

_fused = functools.partial(jax.nn.dot_product_attention, implementation="cudnn")


def cudnn(query: Any, key: Any, value: Any, mask: Any = None, window: int | None = None) -> Any:
    """Computes attention with cuDNN, without dropout.

    cuDNN only accepts the number of keys per sequence. If masked keys come before or between other
    keys, they are moved to the end, since attention does not depend on the order of keys. A mask
    over pairs of tokens is added to the scores. It takes memory for each pair, but not for each
    head.

    Queries are float16 or bfloat16 `(batch, length, heads, head_dim)`. Keys and values may have
    fewer heads. The mask is bool and broadcasts to `(batch, heads, length, length)`. `window` is
    the maximum distance from a query back to a key. With a window, attention is causal and there is
    no mask.

    Reference:
        [FlashAttention](https://arxiv.org/abs/2205.14135), section 3.1.
    """
    if window is not None:
        return _fused(query, key, value, is_causal=True, local_window_size=(window, 0))
    options: dict[str, Any] = {}
    if mask is not None and mask.shape[1:3] == (1, 1):
        is_key = jnp.broadcast_to(mask[:, 0, 0], key.shape[:2])
        order = jnp.argsort(~is_key, axis=1, stable=True)
        key, value = _in_order(key, order), _in_order(value, order)
        # A sequence without keys attends to its first token, so its output is finite.
        lengths = jnp.maximum(is_key.sum(axis=1, dtype="int32"), 1)
        options["key_value_seq_lengths"] = lengths
        # Every query is used. The maximum makes this tensor sharded over devices like the batch.
        options["query_seq_lengths"] = jnp.maximum(lengths, query.shape[1])
    elif mask is not None:
        options["mask"] = jnp.broadcast_to(mask, (*mask.shape[:2], query.shape[1], key.shape[1]))
    return _fused(query, key, value, **options)


@jax.vmap
def _in_order(x: Any, order: Any) -> Any:
    # Each index occurs once in the order, so the gradient can be written instead of summed.
    return x.at[order].get(mode="promise_in_bounds", unique_indices=True)


def chunked(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    dropout: float = 0.0,
    seed: Any = None,
) -> Any:
    """Computes attention with memory proportional to the length.

    It computes the scores for one chunk of queries at a time, and again in the backward pass.
    Dropout drops the same elements as without chunks.

    Queries, keys and values are `(batch, heads, length, head_dim)`. The mask broadcasts to `(batch,
    heads, length, length)`. It is bool, or float to be added to the scores.

    Reference:
        [Self-attention does not need O(n²) memory](https://arxiv.org/abs/2112.05682), section 3.
    """
    dropout_key = hashed_dropout.make_key(dropout, seed)
    length = query.shape[2]
    padding = -length % CHUNK_SIZE
    masks_queries = mask is not None and mask.shape[-2] != 1

    def chunks(x: Any) -> Any:
        x = jnp.pad(x, [(0, 0), (0, 0), (0, padding), (0, 0)])
        parts = x.reshape(*x.shape[:2], -1, CHUNK_SIZE, x.shape[-1])
        return jnp.moveaxis(parts, 2, 0)

    @jax.checkpoint
    def attended(chunk: tuple[Any, ...]) -> Any:
        first, queries, *masks = chunk
        # In float16, the matmul could overflow if the queries were not scaled first.
        scores = jnp.matmul(queries * query.shape[-1] ** -0.5, key.swapaxes(-1, -2))
        scores = scores.astype("float32")
        if mask is not None:
            (chunk_mask,) = masks or (mask,)
            scores = apply_mask(scores, chunk_mask)
        probabilities = jax.nn.softmax(scores).astype(value.dtype)
        if dropout:
            positions = _positions(probabilities.shape, first, length)
            probabilities = hashed_dropout.drop(probabilities, dropout, dropout_key, positions)
        return jnp.matmul(probabilities, value)

    firsts = jnp.arange(0, length, CHUNK_SIZE, dtype="uint32")
    inputs = (firsts, chunks(query), *([chunks(mask)] if masks_queries else []))
    contexts = jax.lax.map(attended, inputs)
    joined = jnp.moveaxis(contexts, 0, 2).reshape(*query.shape[:2], -1, value.shape[-1])
    return joined[:, :, :length]


def _positions(shape: tuple[int, ...], first: Any, length: int) -> Any:
    """Returns the flat index, uint32, of each score in a chunk among all scores.

    The shape is `(batch, heads, queries, keys)`. `first` is the uint32 index of the chunk's first
    query, and `length` is the number of queries per sequence.
    """
    batch, heads, queries, keys = (jax.lax.broadcasted_iota("uint32", shape, i) for i in range(4))
    return ((batch * shape[1] + heads) * length + first + queries) * shape[3] + keys

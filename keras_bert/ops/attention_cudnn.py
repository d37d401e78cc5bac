# SPDX-License-Identifier: Apache-2.0
"""Attention by cuDNN on JAX, which stores no scores, and computes no keys that are padding."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

_fused = functools.partial(jax.nn.dot_product_attention, implementation="cudnn")


def attention(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
    """`keras_bert.ops.attention` without dropout.

    cuDNN takes the number of keys of each row. A mask may have masked keys between others, or
    before them: they are moved behind the others, since the order of keys does not matter. A mask
    of pairs of tokens is added to the scores, and so takes memory for each pair, but not for each
    head.

    Args:
        query: `(batch, length, heads, head_dim)`, float16 or bfloat16.
        key: `(batch, length, key_value_heads, head_dim)`.
        value: `(batch, length, key_value_heads, head_dim)`.
        mask: Bool, broadcastable to `(batch, heads, length, length)`; `None` for no mask.

    Returns:
        A tensor of the shape and dtype of `query`.

    Reference:
        [FlashAttention](https://arxiv.org/abs/2205.14135), section 3.1.
    """
    options: dict[str, Any] = {}
    if mask is not None and mask.shape[1:3] == (1, 1):
        is_key = jnp.broadcast_to(mask[:, 0, 0], key.shape[:2])
        order = jnp.argsort(~is_key, axis=1, stable=True)
        key, value = _in_order(key, order), _in_order(value, order)
        # A row without a key attends to its first one, and so stays finite.
        lengths = jnp.maximum(is_key.sum(axis=1, dtype="int32"), 1)
        options["key_value_seq_lengths"] = lengths
        # All queries, by an operation that shares lengths among devices as the batch is shared
        options["query_seq_lengths"] = jnp.maximum(lengths, query.shape[1])
    elif mask is not None:
        options["mask"] = jnp.broadcast_to(mask, (*mask.shape[:2], query.shape[1], key.shape[1]))
    return _fused(query, key, value, **options)


def causal_window(query: Any, key: Any, value: Any, window: int) -> Any:
    """`keras_bert.ops.local_attention` to the left, without masks and dropout."""
    return _fused(query, key, value, is_causal=True, local_window_size=(window, 0))


@jax.vmap
def _in_order(x: Any, order: Any) -> Any:
    # Each index is once in the order. So the gradient is written, and not added up.
    return x.at[order].get(mode="promise_in_bounds", unique_indices=True)

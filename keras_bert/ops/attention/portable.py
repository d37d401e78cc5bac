# SPDX-License-Identifier: Apache-2.0
"""Reference implementation of scaled dot-product attention, for tests and as a fallback."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from keras import ops

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.masks import apply_mask
from keras_bert.ops.reference import reference_dropout

# Either the result of one matmul, `(batch, length, 3, heads, head_dim)`, or three tensors `(batch,
# length, heads, head_dim)`. In three tensors, keys and values may have fewer heads. One tensor can
# be transposed, or gathered into groups, in one operation.
QueryKeyValue: TypeAlias = "Tensor | tuple[Tensor, Tensor, Tensor]"
# Function of queries and keys, each `(batch, heads, length, head_dim)`. Its result is added to the
# scores.
Bias: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"


def attention_with_scores(
    query_key_value: QueryKeyValue,
    mask: Tensor | None = None,
    *,
    bias: Bias | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes `softmax(Q K^T / sqrt(d) + bias) V` and returns it with the attention probabilities.

    Args:
        query_key_value: Float tensor of shape `(batch, length, 3, heads, head_dim)`, the result of
            one matmul. Alternatively, a tuple of queries `(batch, length, heads, head_dim)`, keys
            and values `(batch, length, key_value_heads, head_dim)`. `key_value_heads` must divide
            `heads`, and consecutive query heads share a key and a value head.
        mask: Broadcastable to `(batch, heads, length, length)`. Either bool, True if a query may
            attend to a key, or float to be added to the scores. `None` for no mask.
        bias: Function of queries and keys, each `(batch, heads, length, head_dim)`. Returns a
            tensor to be added to the scores, broadcastable to `(batch, heads, length, length)`.
        dropout: Dropout rate on the probabilities, in `[0, 1)`. Always applied.
        seed: A `keras.random.SeedGenerator`, required if dropout is active.

    Returns:
        A tuple of the output `(batch, length, heads, head_dim)` and the probabilities before
        dropout `(batch, heads, length, length)`, in the input's dtype.

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2.1;
        [GQA](https://arxiv.org/abs/2305.13245), section 2.2.
    """
    query, key, value = to_heads_first(query_key_value)
    # In float16, the matmul could overflow if the queries were not scaled first.
    scores = ops.matmul(query * (1 / math.sqrt(query.shape[-1])), ops.swapaxes(key, -1, -2))
    scores = ops.cast(scores, "float32")
    if bias is not None:
        scores = scores + ops.cast(bias(query, key), "float32")
    scores = apply_mask(scores, mask)
    # Keras warns about a softmax over a single element, so length 1 is a special case.
    alone = scores.shape[-1] == 1
    probabilities = ops.ones_like(scores) if alone else ops.softmax(scores, axis=-1)
    probabilities = ops.cast(probabilities, query.dtype)
    dropped = reference_dropout(probabilities, dropout, seed=seed)
    return to_tokens_first(ops.matmul(dropped, value)), probabilities


def query_key_value_parts(query_key_value: QueryKeyValue) -> tuple[Tensor, Tensor, Tensor]:
    """Returns queries, keys and values `(batch, length, heads, head_dim)`.

    In a tuple, keys and values may have fewer heads.
    """
    if isinstance(query_key_value, tuple):
        return query_key_value
    query, key, value = ops.unstack(query_key_value, 3, axis=2)
    return query, key, value


def to_heads_first(query_key_value: QueryKeyValue) -> list[Tensor]:
    """Returns queries, keys and values, each of shape `(batch, heads, length, head_dim)`."""
    if not isinstance(query_key_value, tuple):
        # One transpose for all three tensors.
        three: list[Tensor] = ops.unstack(ops.transpose(query_key_value, (2, 0, 3, 1, 4)), 3)
        return three
    num_heads = query_key_value[0].shape[2]
    parts = (repeated_heads(tensor, num_heads) for tensor in query_key_value)
    return [ops.transpose(part, (0, 2, 1, 3)) for part in parts]


def to_tokens_first(context: Tensor) -> Tensor:
    """Transposes `(batch, heads, length, head_dim)` to `(batch, length, heads, head_dim)`."""
    return ops.transpose(context, (0, 2, 1, 3))


def repeated_heads(x: Tensor, num_heads: int) -> Tensor:
    """Repeats each head of `(batch, length, heads, head_dim)` to get `num_heads` heads."""
    heads = x.shape[2]
    return x if heads == num_heads else ops.repeat(x, num_heads // heads, axis=2)

# SPDX-License-Identifier: Apache-2.0
"""Texts and ids in the shapes in which people have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf


def to_tensor(values: Any, dtype: tf.DType) -> tf.Tensor | tf.RaggedTensor:
    """A tensor of a list, an array or a tensor; a ragged one where rows differ in length."""
    if isinstance(values, tf.RaggedTensor):
        # One type of row splits throughout, that of the tokenizer's own
        return tf.cast(values, dtype).with_row_splits_dtype(tf.int64)
    if isinstance(values, tf.Tensor):
        return tf.cast(values, dtype)
    try:
        return tf.convert_to_tensor(values, dtype)
    except ValueError:
        # Rows of different lengths
        return tf.ragged.constant(values, dtype)


def on_any_shape(
    text: Any, function: Callable[[tf.Tensor], tuple[tf.RaggedTensor, ...]]
) -> tuple[tf.Tensor | tf.RaggedTensor, ...]:
    """Calls a function of `(texts,)` with texts of any shape, and gives its results that shape."""
    texts = to_tensor(text, tf.string)
    rank = texts.shape.rank
    if rank is None:
        raise ValueError("The text's number of dimensions is unknown; set it by tf.ensure_shape.")
    with tf.device("CPU:0"):
        if rank == 0:
            return tuple(part[0] for part in function(texts[tf.newaxis]))
        if rank == 1:
            return function(texts)
        if not isinstance(texts, tf.RaggedTensor):
            texts = tf.RaggedTensor.from_tensor(texts, ragged_rank=rank - 1)
        return tuple(
            texts.with_flat_values(part) for part in on_any_shape(texts.flat_values, function)
        )


def to_rows(token_ids: Any) -> tuple[tf.RaggedTensor, bool]:
    """Ids as ragged int32 `(batch, None)`, and whether they are a batch and not a single row.

    Raises:
        ValueError: If they have other dimensions than `(tokens,)` or `(batch, tokens)`.
    """
    ids = to_tensor(token_ids, tf.int32)
    if ids.shape.rank not in (1, 2):
        raise ValueError(f"token_ids has shape {ids.shape}; expected (tokens,) or (batch, tokens).")
    if isinstance(ids, tf.RaggedTensor):
        return ids, True
    is_batch = ids.shape.rank == 2
    return tf.RaggedTensor.from_tensor(ids if is_batch else ids[tf.newaxis]), is_batch

# SPDX-License-Identifier: Apache-2.0
"""Attention masks: which queries attend to which keys."""

from __future__ import annotations

import functools

import keras
from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.windows import Blocks, in_sliding_window


def masked_score(dtype: str) -> float:
    """Returns the score of masked keys: far below all others, but finite.

    A query with no other than masked keys then gets the average of their values, and not NaN.
    """
    return -3e4 if dtype == "float16" else -1e9


def attention_mask(
    shape: tuple[Tensor, Tensor],
    padding_mask: Tensor | None,
    sequence_ids: Tensor | None,
    causal: bool = False,
    window: int | None = None,
) -> Tensor | None:
    """Returns the mask of all pairs of tokens of a row, of the inputs of a `BatchLayout`.

    It is a bool tensor that broadcasts to `(batch, 1, length, length)`, True where a query may
    attend to a key; `None` if all may.
    """
    masks = []
    if causal or window is not None:
        positions = ops.arange(shape[1])
        distances = positions[:, None] - positions
        masks.append(in_sliding_window(distances, window, causal)[None, None])
    if padding_mask is not None:
        # (batch, length) -> (batch, 1, 1, length): only keys are masked
        masks.append(ops.cast(padding_mask, "bool")[:, None, None, :])
    if sequence_ids is not None:
        masks.append(ops.equal(sequence_ids[:, None, :, None], sequence_ids[:, None, None, :]))
    return functools.reduce(ops.logical_and, masks) if masks else None


def blocks_mask(
    shape: tuple[Tensor, Tensor],
    padding_mask: Tensor | None,
    sequence_ids: Tensor | None,
    causal: bool,
    window: int,
) -> Tensor | None:
    """Returns the mask of the blocks into which windows cut the rows; see `attention_mask`.

    It broadcasts to `(batch * blocks, 1, queries, keys)`, and is `None` if all queries of all
    blocks attend to all of its keys.
    """
    batch, length = shape
    blocks = Blocks.of(length, window, causal)
    near = blocks.near()
    masks = [] if near is None else [near[None]]
    if padding_mask is not None:
        is_token = blocks.cut_with_neighbors(ops.cast(padding_mask, "int32"))
        masks.append(ops.cast(is_token, "bool")[:, None, :])
    if sequence_ids is not None:
        # No id is 0 then, as before and after the row
        ids = ops.cast(sequence_ids, "int32") + 1
        others = blocks.cut_with_neighbors(ids)
        masks.append(ops.equal(blocks.cut(ids)[:, :, None], others[:, None, :]))
    elif padding_mask is None and not blocks.is_one:
        ones = ops.ones((1, blocks.length), "int32")
        is_token = ops.cast(blocks.cut_with_neighbors(ones), "bool")
        # (number, ...) -> (batch * number, ...)
        masks.append(ops.tile(is_token, (batch, 1))[:, None, :])
    return functools.reduce(ops.logical_and, masks)[:, None] if masks else None


def kernel_form(mask: Tensor | None, batch: Tensor, dtype: str) -> Tensor | None:
    """Returns a mask as the kernels of this backend take it.

    JAX's take bool. PyTorch's and TensorFlow's add it to the scores, of this dtype: a bool mask
    would be NaN for a row without a single key in some kernels of PyTorch, and would be converted
    in every layer. The batch is the number of rows, or of blocks of all rows.
    """
    if mask is None or keras.backend.backend() == "jax":
        return mask
    mask = ops.where(mask, ops.cast(0.0, dtype), ops.cast(masked_score(dtype), dtype))
    if dispatch.tensorflow_plain() is not None and mask.shape[0] == 1:
        # The fused kernel of the product and the mask would broadcast it hundreds of times slower.
        mask = ops.tile(mask, (batch, 1, 1, 1))
    return mask


def masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Returns scores with a mask of bool, or of numbers to add."""
    if mask is None:
        return scores
    dtype = keras.backend.standardize_dtype(scores.dtype)
    if keras.backend.standardize_dtype(mask.dtype) == "bool":
        return ops.where(mask, scores, ops.cast(masked_score(dtype), dtype))
    return scores + ops.cast(mask, dtype)

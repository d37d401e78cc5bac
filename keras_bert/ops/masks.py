# SPDX-License-Identifier: Apache-2.0
"""Computes attention masks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.local_attention import WindowBlocks, is_in_sliding_window
from keras_bert.ops.reference import length_of


def masked_score(dtype: str) -> float:
    """Returns the score of masked keys, far below all other scores, but finite.

    If all of a query's keys are masked, its output is then the average of the values instead of
    NaN.
    """
    return -3e4 if dtype == "float16" else -1e9


class AttentionPattern(NamedTuple):
    """Which tokens attend to each other, depending on their positions.

    Attributes:
        causal: Whether tokens attend only to themselves and to the tokens before them.
        window: Maximum distance between two tokens that attend to each other. `None` for no limit.
        in_blocks: Whether a window's mask is split into blocks, `(batch * blocks, 1, queries,
            keys)`, see `WindowBlocks`. Otherwise it covers all pairs, `(batch, 1, length, length)`.
    """

    causal: bool = False
    window: int | None = None
    in_blocks: bool = True

    @property
    def name(self) -> str:
        """The key of the pattern's masks in `BatchLayout.masks`."""
        names = ["causal"] * self.causal
        if self.window is not None:
            names.append(f"{'blocks' if self.in_blocks else 'pairs'}_{self.window}")
        return "_".join(names) or "full"


def kernel_mask(
    x: Tensor,
    padding_mask: Tensor | None,
    sequence_ids: Tensor | None,
    pattern: AttentionPattern,
    dtype: str,
) -> Tensor | None:
    """Returns an attention pattern's mask in the form that this backend's kernels expect.

    JAX kernels expect bool, True if a query may attend to a key. PyTorch and TensorFlow kernels add
    the mask to the scores. With a bool mask, some PyTorch kernels would return NaN for a sequence
    without keys, and every layer would have to convert the mask.

    Args:
        x: The tokens, `(batch, length, ...)`.
        padding_mask: See `keras_bert.ops.BatchLayout`.
        sequence_ids: See `keras_bert.ops.BatchLayout`.
        pattern: Which tokens attend to each other.
        dtype: The dtype of the scores.

    Returns:
        A tensor that broadcasts to `(batch, 1, length, length)`, or in blocks, to `(batch * blocks,
        1, queries, keys)`. `None` if all tokens attend to all tokens.
    """
    shape = ops.shape(x)[0], length_of(x)
    inputs = (shape, padding_mask, sequence_ids, pattern.causal)
    if pattern.window is not None and pattern.in_blocks:
        mask = _blocks_mask(*inputs, pattern.window)
    else:
        mask = _pairs_mask(*inputs, pattern.window)
    if mask is None or keras.backend.backend() == "jax":
        return mask
    mask = ops.where(mask, ops.cast(0.0, dtype), ops.cast(masked_score(dtype), dtype))
    if keras.backend.backend() == "tensorflow" and mask.shape[0] == 1:
        # Broadcasting in the fused kernel of matmul and mask is hundreds of times slower.
        mask = ops.tile(mask, (shape[0], 1, 1, 1))
    return mask


def _pairs_mask(
    shape: Sequence[Tensor],
    padding_mask: Tensor,
    sequence_ids: Tensor,
    causal: bool,
    window: int | None,
) -> Tensor | None:
    """Returns the bool mask over all token pairs in a sequence."""
    masks = []
    if causal or window is not None:
        positions = ops.arange(shape[1])
        distances = positions[:, None] - positions
        masks.append(is_in_sliding_window(distances, window, causal)[None, None])
    if padding_mask is not None:
        # (batch, length) -> (batch, 1, 1, length), so only keys are masked.
        masks.append(ops.cast(padding_mask, "bool")[:, None, None, :])
    if sequence_ids is not None:
        masks.append(ops.equal(sequence_ids[:, None, :, None], sequence_ids[:, None, None, :]))
    return functools.reduce(ops.logical_and, masks) if masks else None


def _blocks_mask(
    shape: Sequence[Tensor], padding_mask: Tensor, sequence_ids: Tensor, causal: bool, window: int
) -> Tensor | None:
    """Returns the bool mask over token pairs in each block."""
    batch, length = shape
    blocks = WindowBlocks.from_length(length, window, causal)
    near = blocks.window_mask()
    masks = [] if near is None else [near[None]]
    if padding_mask is not None:
        is_token = blocks.split_with_neighbors(ops.cast(padding_mask, "int32"))
        masks.append(ops.cast(is_token, "bool")[:, None, :])
    if sequence_ids is not None:
        # Add 1, because the zeros before and after the sequence must differ from all IDs.
        ids = ops.cast(sequence_ids, "int32") + 1
        others = blocks.split_with_neighbors(ids)
        masks.append(ops.equal(blocks.split_into_blocks(ids)[:, :, None], others[:, None, :]))
    elif padding_mask is None and not blocks.is_single_block:
        ones = ops.ones((1, blocks.length), "int32")
        is_token = ops.cast(blocks.split_with_neighbors(ones), "bool")
        # (number, ...) -> (batch * number, ...)
        masks.append(ops.tile(is_token, (batch, 1))[:, None, :])
    return functools.reduce(ops.logical_and, masks)[:, None] if masks else None


def apply_mask(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Applies a bool mask to scores, or adds a float mask."""
    if mask is None:
        return scores
    dtype = keras.backend.standardize_dtype(scores.dtype)
    if keras.backend.standardize_dtype(mask.dtype) == "bool":
        return ops.where(mask, scores, ops.cast(masked_score(dtype), dtype))
    return scores + ops.cast(mask, dtype)

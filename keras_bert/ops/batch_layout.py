# SPDX-License-Identifier: Apache-2.0
"""Defines the batch layout: the arrangement of tokens, and which tokens attend to each other.

A batch is *padded*, *packed* (each row contains multiple sequences) or *unpadded* (the tokens of
all sequences are concatenated without padding). See `keras_bert.layers.BatchLayoutBuilder` for an
example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.masks import AttentionPattern, kernel_mask
from keras_bert.ops.reference import cos_sin_of, length_of
from keras_bert.ops.varlen import NUM_GROUPS, Varlen


class BatchLayout(NamedTuple):
    """The arrangement of tokens, which tokens attend to each other, and their RoPE angles.

    All fields are tensors or `None`, so Keras layers can accept and return a `BatchLayout`.

    Attributes:
        padding_mask: Bool or int `(batch, length)`, False at padding. `None` for an unpadded batch
            and for a batch without padding.
        sequence_ids: Non-negative int `(batch, length)` for packed batches. Tokens attend only to
            tokens with the same ID.
        varlen: Where the tokens of each sequence are in an unpadded batch. All fields are `None` in
            other batches.
        output_positions: int `(batch, slots)`, the last encoder layer's output positions. `None`
            for all positions.
        position_ids: int `(batch, length)`, the position of each token in its sequence. `None` for
            0, 1, 2, ... in every row.
        relative: The output of `keras_bert.layers.RelativeEmbeddings`, for relative positions.
        cos_sin: Cached results of `rope`, by `rope_name`.
        masks: Cached results of `mask`, by pattern name.
    """

    padding_mask: Tensor = None
    sequence_ids: Tensor = None
    varlen: Varlen = Varlen()
    output_positions: Tensor = None
    position_ids: Tensor = None
    relative: Tensor = None
    cos_sin: dict[str, Tensor] = {}  # noqa: RUF012 (never mutated)
    masks: dict[str, Sequence[Tensor]] = {}  # noqa: RUF012

    @property
    def is_unpadded(self) -> bool:
        """Whether the tokens of all sequences are concatenated without padding."""
        return self.varlen.token_indices is not None

    @property
    def form(self) -> str:
        """`"padded"`, `"packed"` or `"unpadded"`."""
        if self.is_unpadded:
            return "unpadded"
        return "padded" if self.sequence_ids is None else "packed"

    def rope(self, x: Tensor, head_dim: int, base: float, scale: float = 1.0) -> Tensor:
        """Returns the cosines and sines of RoPE for queries and keys `(batch, length, ...)`.

        The result is float32 `(batch, length, 2, head_dim / 2)`, see `keras_bert.ops.cos_sin_of`.
        Without `position_ids`, all rows have the same positions, and `batch` is 1.
        """
        name = rope_name(base, scale)
        if name in self.cos_sin:
            return self.cos_sin[name]
        positions = self.position_ids
        if positions is None:
            positions = ops.arange(length_of(x), dtype="int32")[None]
        return cos_sin_of(positions, head_dim, base, scale)

    def mask(
        self, x: Tensor, pattern: AttentionPattern, dtype: str | None = None
    ) -> Sequence[Tensor]:
        """Returns the attention masks of `x` `(batch, length, ...)`, see `kernel_mask`.

        An unpadded batch has one mask per group, and `None` for each empty group. For other
        batches, only the first element is a mask. `dtype` is the scores' dtype, by default the
        dtype of `x`.
        """
        if pattern.name in self.masks:
            return self.masks[pattern.name]
        dtype = dtype or keras.backend.standardize_dtype(x.dtype)
        if not self.is_unpadded:
            mask = kernel_mask(x, self.padding_mask, self.sequence_ids, pattern, dtype)
            return mask, *(None,) * (NUM_GROUPS - 1)
        return tuple(
            None if is_key is None else kernel_mask(is_key, is_key, None, pattern, dtype)
            for is_key in self.varlen.key_masks
        )


def rope_name(base: float, scale: float) -> str:
    """Returns a name for RoPE's frequencies, the key of `BatchLayout.cos_sin`."""
    return f"base_{float(base)!r}_scale_{float(scale)!r}"

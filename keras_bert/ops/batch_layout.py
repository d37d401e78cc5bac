# SPDX-License-Identifier: Apache-2.0
"""Defines the batch layout: the arrangement of tokens, and which tokens attend to each other.

A batch is *padded*, *packed* (each row contains multiple sequences) or *unpadded* (the tokens of
all sequences are concatenated without padding). See `keras_bert.layers.BatchLayoutBuilder` for an
example.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.masks import AttentionPattern, kernel_mask
from keras_bert.ops.reference import cos_sin_of, length_of
from keras_bert.ops.varlen import NUM_GROUPS, Varlen


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class BatchLayout:
    """The arrangement of tokens, which tokens attend to each other, and their RoPE angles.

    In a functional model, one symbolic tensor represents the whole layout. Keras requires that
    layers receive it as a keyword argument.

    Attributes:
        padding_mask: Bool or int `(batch, length)`, False at padding. `None` for an unpadded batch
            and for a batch without padding.
        sequence_ids: Non-negative int `(batch, length)` for packed batches. Tokens attend only to
            tokens with the same ID.
        varlen: Where the tokens of each sequence are in an unpadded batch. `None` for other
            batches.
        position_ids: int `(batch, length)`, the position of each token in its sequence. `None` for
            0, 1, 2, ... in every row.
        cos_sin: Cached results of `rope`, by `rope_name`.
        masks: Cached results of `mask`, by pattern name.
    """

    padding_mask: Tensor = None
    sequence_ids: Tensor = None
    varlen: Varlen | None = None
    position_ids: Tensor = None
    cos_sin: Mapping[str, Tensor] = dataclasses.field(default_factory=dict)
    masks: Mapping[str, Sequence[Tensor]] = dataclasses.field(default_factory=dict)

    @property
    def form(self) -> str:
        """`"padded"`, `"packed"` or `"unpadded"`."""
        if self.varlen is not None:
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
        if self.varlen is None:
            mask = kernel_mask(x, self.padding_mask, self.sequence_ids, pattern, dtype)
            return mask, *(None,) * (NUM_GROUPS - 1)
        return tuple(
            None if is_key is None else kernel_mask(is_key, is_key, None, pattern, dtype)
            for is_key in self.varlen.key_masks
        )


def rope_name(base: float, scale: float) -> str:
    """Returns a name for RoPE's frequencies, the key of `BatchLayout.cos_sin`."""
    return f"base_{float(base)!r}_scale_{float(scale)!r}"

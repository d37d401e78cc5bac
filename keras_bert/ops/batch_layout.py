# SPDX-License-Identifier: Apache-2.0
"""How the tokens of a batch are arranged, and who attends to whom: one value for each batch.

A batch is *padded*, *packed* (a row has several sequences), or *unpadded* (the tokens of all rows
are concatenated to one row without padding). `keras_bert.layers.BatchLayoutBuilder` has an example.
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
    """How the tokens of a batch are arranged, who attends to whom, and the RoPE of their positions.

    All values in it are tensors or `None`, so that Keras' layers can take and return it.

    Attributes:
        padding_mask: Bool or int `(batch, length)`, False at tokens that are not attended to;
            `None` for a batch without padding, and for an unpadded one.
        sequence_ids: int `(batch, length)`, not negative, of a packed batch: tokens attend only to
            tokens with the same id.
        varlen: Where the tokens of the rows are in an unpadded batch; all `None` in others.
        output_positions: int `(batch, slots)`, the positions of the tokens for which the last block
            computes outputs; `None` for all tokens.
        position_ids: int `(batch, length)`, the position of each token in its sequence; `None` for
            0, 1, 2, ... in every row.
        relative: The output of `keras_bert.layers.RelativeEmbeddings`, with relative positions.
        cos_sin: The cached results of `rope`, by `rope_name`.
        masks: The cached results of `mask`, by the name of the pattern.
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
        """Whether the tokens of all rows are concatenated to one row without padding."""
        return self.varlen.token_indices is not None

    @property
    def form(self) -> str:
        """`"padded"`, `"packed"` or `"unpadded"`."""
        if self.is_unpadded:
            return "unpadded"
        return "padded" if self.sequence_ids is None else "packed"

    def rope(self, x: Tensor, head_dim: int, base: float, scale: float = 1.0) -> Tensor:
        """Returns the cosines and sines of RoPE for queries and keys `(batch, length, ...)`.

        They are float32 `(batch, length, 2, head_dim / 2)`, see `keras_bert.ops.cos_sin_of`.
        Without `position_ids` all rows are alike, and `batch` is 1.
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
        """Returns the masks of `x` `(batch, length, ...)`, see `keras_bert.ops.masks.kernel_mask`.

        An unpadded batch has a mask for each of its groups, and `None` for a group without rows.
        Other batches have one mask, the first. `dtype` is that of the scores, by default of `x`.
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
    """Returns the name of RoPE's frequencies, the key of their cos and sin in a layout."""
    return f"base_{float(base)!r}_scale_{float(scale)!r}"

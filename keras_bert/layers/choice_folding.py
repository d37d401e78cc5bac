# SPDX-License-Identifier: Apache-2.0
"""Rows of several choices: unfolded to one sequence a row for an encoder, and back to logits."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention_mask import masked_score


@keras.saving.register_keras_serializable(package="keras_bert")
class FoldChoices(keras.layers.Layer):
    """Makes each choice of a row a row of its own.

    Call arguments:
        token_ids: int `(batch, choices, length)`.
        segment_ids: int, of the same shape; `None` for all zeros.
        padding_mask: Boolean, of the same shape; `None` for all True.

    Returns:
        A dict of the three, `(batch * choices, length)`.
    """

    def call(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        padding_mask: Tensor | None = None,
    ) -> Tensor:
        segment_ids = ops.zeros_like(token_ids) if segment_ids is None else segment_ids
        mask = ops.ones_like(token_ids, dtype="bool") if padding_mask is None else padding_mask
        length = ops.shape(token_ids)[-1]
        # (batch, choices, length) -> (batch * choices, length)
        return {
            "token_ids": ops.reshape(token_ids, (-1, length)),
            "segment_ids": ops.reshape(segment_ids, (-1, length)),
            "padding_mask": ops.reshape(ops.cast(mask, "bool"), (-1, length)),
        }

    def compute_output_spec(
        self,
        token_ids: Tensor,
        segment_ids: Tensor | None = None,
        padding_mask: Tensor | None = None,
    ) -> Tensor:
        shape = (None, token_ids.shape[-1])
        return {
            "token_ids": keras.KerasTensor(shape, dtype="int32"),
            "segment_ids": keras.KerasTensor(shape, dtype="int32"),
            "padding_mask": keras.KerasTensor(shape, dtype="bool"),
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class UnfoldChoices(keras.layers.Layer):
    """Gathers the scores of each row's choices.

    A choice without tokens is masked: its logit is so far below the others that its
    probability is 0.

    Call arguments:
        scores: `(batch * choices, 1)`.
        token_ids: The ids that were folded, int `(batch, choices, length)`.
        padding_mask: Boolean, of the same shape, or `None` where every choice is one.

    Output shape:
        Logits `(batch, choices)`, float32.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})

    def call(self, scores: Tensor, token_ids: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        # (batch * choices, 1) -> (batch, choices)
        logits = ops.reshape(scores, (-1, ops.shape(token_ids)[1]))
        if padding_mask is None:
            return logits
        is_choice = ops.any(ops.cast(padding_mask, "bool"), axis=-1)
        return ops.where(is_choice, logits, masked_score("float32"))

    def compute_output_spec(
        self, scores: Tensor, token_ids: Tensor, padding_mask: Tensor | None = None
    ) -> Tensor:
        return keras.KerasTensor(token_ids.shape[:2], dtype="float32")

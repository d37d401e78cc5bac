# SPDX-License-Identifier: Apache-2.0
"""Multiple choice: folds the choices of each example into the batch, and back."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.masks import masked_score


@keras.saving.register_keras_serializable(package="keras_bert")
class FoldChoices(keras.layers.Layer):
    """Folds choices into the batch dimension, so that each choice is an example.

    Call arguments:
        token_ids: int `(batch, choices, length)`.
        segment_ids: int, of the same shape. `None` for zeros.
        padding_mask: Bool, of the same shape. `None` for no padding.

    Returns:
        A dict of `token_ids`, `segment_ids` and `padding_mask`, each of shape `(batch * choices,
        length)`.
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
    """Unfolds choice scores to one row of logits per example.

    A choice without tokens is padding. Its logit is so far below the other logits that its
    probability is 0.

    Call arguments:
        scores: Float `(batch * choices, 1)`.
        token_ids: Token IDs before folding, int `(batch, choices, length)`.
        padding_mask: Bool, of the same shape as `token_ids`. `None` for no padding.

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

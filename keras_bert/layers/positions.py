# SPDX-License-Identifier: Apache-2.0
"""Positions of tokens, counted among those that are not padding."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.layers.shapes import too_long
from keras_bert.ops.annotations import Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class PositionIds(keras.layers.Layer):
    """Counts the position of each token among the tokens of its row that are not padding.

    Args:
        pad_token_id: The id of the padding token.
        max_sequence_length: Maximum length of the input in tokens.

    Call arguments:
        token_ids: int `(batch, length)`.
        position_ids: int `(batch, length)`; if given, they are returned instead.

    Output shape:
        int32 `(batch, length)`: positions from 0, and -1 at padding.

    Raises:
        ValueError: If the input is longer than `max_sequence_length` and `position_ids` is `None`.

    Reference:
        [RoBERTa](https://arxiv.org/abs/1907.11692), the released code.
    """

    def __init__(self, pad_token_id: int, max_sequence_length: int, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "int32"})
        self.pad_token_id = pad_token_id
        self.max_sequence_length = max_sequence_length

    def call(self, token_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        if position_ids is not None:
            return ops.cast(position_ids, "int32")
        self._check_length(token_ids)
        is_real = ops.cast(ops.not_equal(token_ids, self.pad_token_id), "int32")
        return ops.cumsum(is_real, axis=1) * is_real - 1

    def _check_length(self, token_ids: Tensor) -> None:
        length = token_ids.shape[1]
        if length is not None and length > self.max_sequence_length:
            raise ValueError(too_long(length, self.max_sequence_length))

    def compute_output_spec(
        self, token_ids: Tensor, position_ids: Tensor | None = None
    ) -> keras.KerasTensor:
        if position_ids is None:
            self._check_length(token_ids)
        return keras.KerasTensor(token_ids.shape, dtype="int32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "pad_token_id": self.pad_token_id,
            "max_sequence_length": self.max_sequence_length,
        }

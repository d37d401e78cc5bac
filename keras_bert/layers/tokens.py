# SPDX-License-Identifier: Apache-2.0
"""Some tokens' vectors out of every row."""

from __future__ import annotations

from typing import Any

import keras

from keras_bert.ops import tokens_at


@keras.saving.register_keras_serializable(package="keras_bert")
class TokensAt(keras.layers.Layer):
    """The vectors of the tokens at some positions of each row.

    Call arguments:
        inputs: `(batch, length, dim)`.
        positions: int `(batch, slots)`.

    Output shape:
        `(batch, slots, dim)`.
    """

    def call(self, inputs: Any, positions: Any) -> Any:
        return tokens_at(inputs, positions)

    def compute_output_shape(self, inputs_shape: Any, positions_shape: Any) -> Any:
        return (*positions_shape, inputs_shape[-1])

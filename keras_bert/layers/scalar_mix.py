# SPDX-License-Identifier: Apache-2.0
"""Scalar mix: a learned weighted sum over multiple layers' hidden states."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class ScalarMix(keras.layers.Layer):
    """Computes `scale * sum(softmax(weights) * layers)`.

    The `weights` are initialized to 0, and the `scale` to 1.

    Input shape:
        `(batch, length, layers, hidden)`.

    Output shape:
        `(batch, length, hidden)`.

    Reference:
        [Deep contextualized word representations](https://arxiv.org/abs/1802.05365), equation 1;
        [BERT](https://arxiv.org/abs/1810.04805), section 5.3, "weighted sum".
    """

    def build(self, input_shape: Shape) -> None:
        self.mixing_weights = self.add_weight(
            name="mixing_weights", shape=(input_shape[-2],), initializer="zeros"
        )
        self.scale = self.add_weight(name="scale", shape=(), initializer="ones")

    def call(self, inputs: Tensor) -> Tensor:
        weights = self.scale * ops.softmax(self.mixing_weights)
        # (batch, length, layers, hidden) * (layers, 1), summed over layers
        return ops.sum(inputs * weights[:, None], axis=-2)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return (*input_shape[:-2], input_shape[-1])

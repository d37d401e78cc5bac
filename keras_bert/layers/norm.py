# SPDX-License-Identifier: Apache-2.0
"""Normalization: LayerNorm, with or without an offset, and RMSNorm."""

from __future__ import annotations

from typing import Any

import keras

from keras_bert import checks
from keras_bert.ops import norm
from keras_bert.ops.annotations import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class Norm(keras.layers.Layer):
    """Normalizes the last axis, in float32 or wider.

    Args:
        kind: `"layer_norm"` or `"rms_norm"`.
        epsilon: Added to the variance or to the mean square.
        use_bias: Whether LayerNorm has an offset; RMSNorm has none.

    Input shape:
        `(..., dim)`.

    Output shape:
        Same as the input.

    Reference:
        [Layer Normalization](https://arxiv.org/abs/1607.06450), section 3;
        [RMSNorm](https://arxiv.org/abs/1910.07467), section 4.
    """

    def __init__(
        self,
        kind: str = "layer_norm",
        epsilon: float = 1e-12,
        use_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        checks.POSITIVE.check(epsilon=epsilon)
        self.kind = kind
        self.epsilon = epsilon
        self.use_bias = use_bias and kind == "layer_norm"

    def build(self, input_shape: Shape) -> None:
        shape = input_shape[-1:]
        # Computed in float32, so the weights are not cast to the compute dtype.
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones", autocast=False)
        self.beta = None
        if self.use_bias:
            self.beta = self.add_weight(
                name="beta", shape=shape, initializer="zeros", autocast=False
            )

    def call(self, inputs: Tensor) -> Tensor:
        return norm(inputs, self.gamma, self.beta, kind=self.kind, epsilon=self.epsilon)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "kind": self.kind,
            "epsilon": self.epsilon,
            "use_bias": self.use_bias,
        }

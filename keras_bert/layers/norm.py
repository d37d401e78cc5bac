# SPDX-License-Identifier: Apache-2.0
"""LayerNorm, with or without an offset, and RMSNorm."""

from __future__ import annotations

from typing import Any

import keras

from keras_bert import checks
from keras_bert.layers.base import Layer
from keras_bert.ops import norm
from keras_bert.ops.annotations import Shape, Tensor


def add_norm_weights(
    layer: keras.layers.Layer, dim: int, kind: str, use_bias: bool
) -> tuple[Any, Any]:
    """Adds a norm's weights, `gamma` and `beta` or `None`, to a layer in its `build`.

    They are not cast to the compute dtype, since norms are computed in float32.
    """
    gamma = layer.add_weight(name="gamma", shape=(dim,), initializer="ones", autocast=False)
    beta = None
    if use_bias and kind == "layer_norm":
        beta = layer.add_weight(name="beta", shape=(dim,), initializer="zeros", autocast=False)
    return gamma, beta


@keras.saving.register_keras_serializable(package="keras_bert")
class Norm(Layer):
    """Normalizes the last axis, in float32 or wider.

    Args:
        kind: `"layer_norm"` or `"rms_norm"`.
        epsilon: Added to the variance or to the mean square.
        use_bias: Whether LayerNorm has an offset. RMSNorm never has an offset.

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
        dim = input_shape[-1]
        self.gamma, self.beta = add_norm_weights(self, dim, self.kind, self.use_bias)

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        options: dict[str, Any] = {"kind": self.kind, "epsilon": self.epsilon}
        return norm(inputs, self.gamma, self.beta, **options, training=training)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return input_shape

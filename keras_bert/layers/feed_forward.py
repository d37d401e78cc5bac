# SPDX-License-Identifier: Apache-2.0
"""The feed-forward networks of transformer blocks: two dense layers, or a gated variant."""

from __future__ import annotations

from typing import Any

import keras

from keras_bert import checks
from keras_bert.layers.base import Layer
from keras_bert.layers.dense import Dense
from keras_bert.layers.initial_weights import TruncatedNormal
from keras_bert.ops import bias_activation, bias_add, gated_activation
from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.int8 import int8_feed_forward
from keras_bert.ops.reference import activation_function


@keras.saving.register_keras_serializable(package="keras_bert")
class FeedForward(Layer):
    """A feed-forward network: `dense(activation(dense(inputs)))`.

    The biases belong to this layer instead of the dense layers, so that they can be fused with the
    operations after each matmul.

    Args:
        intermediate_dim: Dimension between the two dense layers.
        activation: An activation name in `BertConfig.activation`.
        use_bias: Whether the dense layers have biases.
        use_intermediate_bias: Whether the first dense layer has a bias. Defaults to `use_bias`.
        initializer_range: Standard deviation of the kernels' truncated normal initializer.
        output_initializer_range: Standard deviation for the second dense layer. Defaults to
            `initializer_range`.

    Call arguments:
        inputs: Float `(..., hidden)`.
        add_bias: Whether to add the last bias, `output_bias`. A `TransformerBlock` passes `False`
            and adds it together with dropout, the residual connection and the norm.
        training: Whether gradients will be computed.

    Output shape:
        Same as `inputs`.

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.3.
    """

    def __init__(
        self,
        intermediate_dim: int,
        activation: str = "gelu_erf",
        use_bias: bool = True,
        use_intermediate_bias: bool | None = None,
        initializer_range: float = 0.02,
        output_initializer_range: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        checks.POSITIVE_INT.check(intermediate_dim=intermediate_dim)
        checks.POSITIVE.check(initializer_range=initializer_range)
        checks.POSITIVE.check_optional(output_initializer_range=output_initializer_range)
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.use_bias = use_bias
        self.use_intermediate_bias = (
            use_bias if use_intermediate_bias is None else use_intermediate_bias
        )
        self.initializer_range = initializer_range
        self.output_initializer_range = output_initializer_range

    @property
    def intermediate_width(self) -> int:
        """The output dimension of the first dense layer."""
        return self.intermediate_dim

    def build(self, inputs_shape: Shape) -> None:
        hidden_dim = inputs_shape[-1]
        self.intermediate = self._product(hidden_dim, self.intermediate_width, "intermediate")
        self.intermediate_bias = self.output_bias = None
        if self.use_intermediate_bias:
            self.intermediate_bias = self._bias(self.intermediate_width, "intermediate_bias")
        self.output_projection = self._product(
            self.intermediate_dim, hidden_dim, "output_projection", self.output_initializer_range
        )
        if self.use_bias:
            self.output_bias = self._bias(hidden_dim, "output_bias")

    def _product(
        self, input_dim: int, output_dim: int, name: str, stddev: float | None = None
    ) -> Dense:
        layer = Dense(
            output_dim,
            use_bias=False,
            kernel_initializer=TruncatedNormal(stddev=stddev or self.initializer_range),
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build((None, input_dim))
        return layer

    def _bias(self, dim: int, name: str) -> Any:
        return self.add_weight(name=name, shape=(dim,), initializer="zeros", autocast=False)

    def call(self, inputs: Tensor, add_bias: bool = True, training: bool = False) -> Tensor:
        first, second = self.intermediate.int8_kernel, self.output_projection.int8_kernel
        if first is None or second is None:
            inner = self._activate(self.intermediate(inputs), training)
            outer = self.output_projection(inner)
        else:
            bias = self.intermediate_bias
            outer = int8_feed_forward(inputs, first, bias, self.activation, second)
        if add_bias and self.use_bias:
            outer = bias_add(outer, self.output_bias, training=training)
        return outer

    def _activate(self, x: Tensor, training: bool) -> Tensor:
        if self.use_intermediate_bias:
            return bias_activation(x, self.intermediate_bias, self.activation, training=training)
        return activation_function(self.activation)(x)

    def compute_output_spec(
        self, inputs: Tensor, add_bias: bool = True, training: bool = False
    ) -> keras.KerasTensor:
        return keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class GatedFeedForward(FeedForward):
    """A gated feed-forward network: `dense(activation(a) * b)`, with `a, b = split(dense(inputs))`.

    See `FeedForward` for arguments and shapes. The output dimension of the first dense layer is
    twice `intermediate_dim`. The first half is activated, and the second half is the gate.

    Reference:
        [GLU Variants Improve Transformer](https://arxiv.org/abs/2002.05202), equation 6.
    """

    @property
    def intermediate_width(self) -> int:
        return 2 * self.intermediate_dim

    def _activate(self, x: Tensor, training: bool) -> Tensor:
        if self.use_intermediate_bias:
            x = bias_add(x, self.intermediate_bias, training=training)
        return gated_activation(x, self.activation, training=training)

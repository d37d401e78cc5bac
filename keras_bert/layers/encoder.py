# SPDX-License-Identifier: Apache-2.0
"""The transformer block, with LayerNorm after each sublayer (post-LN) as in the paper."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.config import BertConfig
from keras_bert.layers.attention import SelfAttention
from keras_bert.layers.dense import Dense
from keras_bert.ops import (
    SeedGenerator,
    bias_activation,
    bias_dropout_residual_layer_norm,
    tokens_at,
)
from keras_bert.ops.annotations import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class BiasActivation(keras.layers.Layer):
    """Adds a bias and applies an activation: `activation(inputs + bias)`.

    It follows a `Dense` layer without bias, so that both can be fused.

    Args:
        activation: A name that `BertConfig.activation` allows.

    Call arguments:
        inputs: Float `(..., dim)`.
        training: Whether gradients will be computed.

    Output shape:
        Same as `inputs`.
    """

    def __init__(self, activation: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = activation

    def build(self, input_shape: Shape) -> None:
        self.bias = self.add_weight(
            name="bias", shape=input_shape[-1:], initializer="zeros", autocast=False
        )

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        return bias_activation(inputs, self.bias, self.activation, training=training)

    def compute_output_shape(self, input_shape: Shape) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "activation": self.activation}


@keras.saving.register_keras_serializable(package="keras_bert")
class BiasResidualNorm(keras.layers.Layer):
    """The end of a sublayer: `LayerNorm(residual + dropout(inputs + bias))`.

    Args:
        epsilon: Added to the variance.
        dropout: Dropout rate on the output of the sublayer.

    Call arguments:
        inputs: The result of the sublayer's last matrix product, float `(..., dim)`.
        residual: The input of the sublayer, float `(..., dim)`.
        training: Whether dropout is active.

    Output shape:
        Same as `inputs`.
    """

    def __init__(self, epsilon: float = 1e-12, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        checks.POSITIVE.check(epsilon=epsilon)
        checks.PROPER_FRACTION.check(dropout=dropout)
        self.epsilon = epsilon
        self.dropout = dropout
        self.seed_generator = SeedGenerator()

    def build(self, inputs_shape: Shape, residual_shape: Shape | None = None) -> None:
        shape = inputs_shape[-1:]
        self.bias = self.add_weight(name="bias", shape=shape, initializer="zeros", autocast=False)
        # LayerNorm is computed in float32, so its weights are not cast to the compute dtype.
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones", autocast=False)
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros", autocast=False)

    def call(self, inputs: Tensor, residual: Tensor, training: bool = False) -> Tensor:
        return bias_dropout_residual_layer_norm(
            inputs,
            residual,
            self.bias,
            self.gamma,
            self.beta,
            epsilon=self.epsilon,
            dropout=self.dropout,
            seed=self.seed_generator,
            training=training,
        )

    def compute_output_shape(self, inputs_shape: Shape, residual_shape: Shape | None = None) -> Any:
        return inputs_shape

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "epsilon": self.epsilon, "dropout": self.dropout}


# The layers of each part of a block that can be shared with another block
PARTS = {
    "attention": ("attention", "attention_output", "attention_norm"),
    "feed_forward": (
        "intermediate",
        "intermediate_activation",
        "feed_forward_output",
        "feed_forward_norm",
    ),
}


@keras.saving.register_keras_serializable(package="keras_bert")
class TransformerBlock(keras.layers.Layer):
    """Self-attention and a feed-forward network, each with dropout, residual and LayerNorm.

    A block can share its attention or its feed-forward network with another block: see `share`.

    Args:
        num_heads: Number of attention heads.
        intermediate_dim: Dimension of the inner layer of the feed-forward network.
        activation: A name that `BertConfig.activation` allows.
        dropout: Dropout rate on the output of both sublayers.
        attention_dropout: Dropout rate on the attention probabilities.
        layer_norm_epsilon: Added to the variance in both LayerNorms.
        initializer_range: Standard deviation of the kernels' truncated normal initializer.
        causal: Whether tokens attend only to themselves and to the tokens before them.
        return_scores: Whether to return the attention probabilities too.
        head_dim: Dimension of a head. Defaults to the hidden dimension divided by `num_heads`.

    Call arguments:
        inputs: Float `(batch, length, hidden)`.
        padding_mask: Bool `(batch, length)`, False at padding; `None` for a batch without padding.
        sequence_ids: int `(batch, length)`, for packed rows; `None` if every row is one sequence.
        output_positions: int `(batch, slots)`, the positions of the tokens to compute outputs for:
            everything after the attention is computed for these tokens alone. `None` for all
            tokens.
        training: Whether dropout is active.

    Output shape:
        `(batch, length, hidden)`, or `(batch, slots, hidden)` with `output_positions`; with
        `return_scores`, a tuple of it and of the probabilities `(batch, heads, length, length)`.

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.1, with the
        activation of [BERT](https://arxiv.org/abs/1810.04805), appendix A.2.
    """

    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int,
        activation: str = "gelu_erf",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-12,
        initializer_range: float = 0.02,
        causal: bool = False,
        return_scores: bool = False,
        head_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        checks.POSITIVE_INT.check(num_heads=num_heads, intermediate_dim=intermediate_dim)
        checks.POSITIVE_INT.check_given(head_dim=head_dim)
        checks.PROPER_FRACTION.check(dropout=dropout, attention_dropout=attention_dropout)
        checks.POSITIVE.check(
            layer_norm_epsilon=layer_norm_epsilon, initializer_range=initializer_range
        )
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.initializer_range = initializer_range
        self.causal = causal
        self.return_scores = return_scores
        self.head_dim = head_dim
        self._shared: set[str] = set()

    def share(self, other: TransformerBlock, part: str) -> None:
        """Uses the layers of another block; must be called before `build`.

        Args:
            other: A built block of the same dimensions.
            part: `"attention"` or `"feed_forward"`, each including its LayerNorm.
        """
        for name in PARTS[part]:
            setattr(self, name, getattr(other, name))
        self._shared.add(part)

    def build(
        self,
        inputs_shape: Shape,
        padding_mask_shape: Shape | None = None,
        sequence_ids_shape: Shape | None = None,
        output_positions_shape: Shape | None = None,
    ) -> None:
        if "attention" not in self._shared:
            self._build_attention(inputs_shape)
        if "feed_forward" not in self._shared:
            self._build_feed_forward(inputs_shape[-1])

    def _build_attention(self, inputs_shape: Shape) -> None:
        hidden_dim = inputs_shape[-1]
        self.attention = SelfAttention(
            self.num_heads,
            dropout=self.attention_dropout,
            initializer_range=self.initializer_range,
            causal=self.causal,
            return_scores=self.return_scores,
            head_dim=self.head_dim,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.attention.build(inputs_shape)
        self.attention_output = self._product(
            self.attention.output_dim, hidden_dim, "attention_output"
        )
        self.attention_norm = self._residual_norm(hidden_dim, "attention_norm")

    def _build_feed_forward(self, hidden_dim: int) -> None:
        self.intermediate = self._product(hidden_dim, self.intermediate_dim, "intermediate")
        self.intermediate_activation = BiasActivation(
            self.activation, dtype=self.dtype_policy, name="intermediate_activation"
        )
        self.intermediate_activation.build((None, self.intermediate_dim))
        self.feed_forward_output = self._product(
            self.intermediate_dim, hidden_dim, "feed_forward_output"
        )
        self.feed_forward_norm = self._residual_norm(hidden_dim, "feed_forward_norm")

    def _product(self, input_dim: int, output_dim: int, name: str) -> Dense:
        """Creates a dense layer without bias, which belongs to the fused layer after it."""
        layer = Dense(
            output_dim,
            use_bias=False,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=self.initializer_range),
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build((None, input_dim))
        return layer

    def _residual_norm(self, dim: int, name: str) -> BiasResidualNorm:
        layer = BiasResidualNorm(
            self.layer_norm_epsilon, self.dropout, dtype=self.dtype_policy, name=name
        )
        layer.build((None, dim))
        return layer

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        output_positions: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        attended = self.attention(
            inputs, padding_mask=padding_mask, sequence_ids=sequence_ids, training=training
        )
        context, scores = attended if self.return_scores else (attended, None)
        if output_positions is not None:
            inputs = tokens_at(inputs, output_positions)
            context = tokens_at(context, output_positions)

        # (batch, tokens, hidden) -> (batch * tokens, hidden), for matrix products of rank 2
        hidden_dim = inputs.shape[-1]
        x = ops.reshape(inputs, (-1, hidden_dim))
        context = ops.reshape(context, (-1, self.attention.output_dim))
        x = self.attention_norm(self.attention_output(context), residual=x, training=training)
        y = self.intermediate_activation(self.intermediate(x), training=training)
        x = self.feed_forward_norm(self.feed_forward_output(y), residual=x, training=training)
        x = ops.reshape(x, ops.shape(inputs))
        return (x, scores) if self.return_scores else x

    def compute_output_spec(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        output_positions: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        attended = self.attention.compute_output_spec(inputs, padding_mask, sequence_ids)
        tokens = inputs.shape[:-1] if output_positions is None else output_positions.shape
        outputs = keras.KerasTensor((*tokens, inputs.shape[-1]), dtype=self.compute_dtype)
        return (outputs, attended[1]) if self.return_scores else outputs

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "activation": self.activation,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "initializer_range": self.initializer_range,
            "causal": self.causal,
            "return_scores": self.return_scores,
            "head_dim": self.head_dim,
        }


def new_blocks(config: BertConfig, policy: keras.DTypePolicy) -> list[TransformerBlock]:
    """Creates the blocks of an encoder, built and with newly initialized weights.

    Args:
        config: The architecture, including which layers share weights.
        policy: A Keras dtype policy.

    Returns:
        A list of a block for each layer: the same object as an earlier one if all of its weights
        are shared, or a new block, which may share the attention or the feed-forward network of an
        earlier one.
    """
    blocks: list[TransformerBlock] = []
    for index in range(config.num_layers):
        owners = {
            "attention": config.attention_owners[index],
            "feed_forward": config.feed_forward_owners[index],
        }
        if index not in owners.values():
            blocks.append(blocks[owners["attention"]])
            continue
        block = TransformerBlock(
            config.effective_heads_by_layer[index],
            config.intermediate_dim,
            activation=config.activation,
            dropout=config.dropout,
            attention_dropout=config.attention_dropout,
            layer_norm_epsilon=config.layer_norm_epsilon,
            initializer_range=config.initializer_range,
            causal=config.causal,
            return_scores=config.output_attention_scores,
            head_dim=config.head_dim,
            dtype=policy,
            name=f"layer_{index}",
        )
        for part, owner in owners.items():
            if owner < index:
                block.share(blocks[owner], part)
        block.build((None, None, config.hidden_dim))
        blocks.append(block)
    return blocks

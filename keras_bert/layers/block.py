# SPDX-License-Identifier: Apache-2.0
"""The transformer block, built from existing parts, with post-norm or pre-norm."""

from __future__ import annotations

from typing import Any, Self

import keras
from keras import ops

from keras_bert import checks
from keras_bert.config import NORM_PLACEMENTS
from keras_bert.layers.attention import Attention
from keras_bert.layers.feed_forward import FeedForward
from keras_bert.layers.norm import Norm
from keras_bert.ops import (
    BatchLayout,
    SeedGenerator,
    bias_dropout_residual,
    bias_dropout_residual_norm,
    rematerialize,
    tokens_at,
)
from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.reference import length_of

_PARTS = ("attention", "attention_norm", "feed_forward", "feed_forward_norm")


@keras.saving.register_keras_serializable(package="keras_bert")
class TransformerBlock(keras.layers.Layer):
    """Self-attention and a feed-forward network, each with dropout, residual connection and norm.

    Blocks share weights if they have the same parts.

    Args:
        attention: An `Attention`.
        attention_norm: The attention's `Norm`. `None` for no norm before the attention. This
            requires `norm_placement="pre"`.
        feed_forward: A `FeedForward` or `GatedFeedForward`.
        feed_forward_norm: The feed-forward network's `Norm`.
        norm_placement: `"post"` for `norm(x + sublayer(x))`, or `"pre"` for `x +
            sublayer(norm(x))`.
        dropout: Dropout rate on the output of both sublayers.
        rematerialize: Whether to store only the block's inputs, and recompute the block in the
            backward pass. A training step takes about a third longer.

    Call arguments:
        inputs: Float `(batch, length, hidden)`.
        layout: A `keras_bert.ops.BatchLayout`. It defines how the tokens are arranged, and which
            are padding. `None` for a batch without padding.
        relative: The output of `keras_bert.layers.RelativeEmbeddings`, for relative positions.
        output_positions: int `(batch, slots)`. Everything after the attention is only computed for
            these positions. `None` for all positions.
        training: Whether dropout is active.

    Output shape:
        `(batch, length, hidden)`, or `(batch, slots, hidden)` with output positions.
        If the attention returns scores, a tuple of this tensor and the scores.

    Raises:
        ValueError: If `norm_placement` is unknown, or if a norm is missing.

    Example:

    >>> block = TransformerBlock(
    ...     Attention(num_heads=2), Norm(), FeedForward(16), Norm(), norm_placement="pre"
    ... )
    >>> tuple(block(np.zeros((1, 3, 8), "float32")).shape)
    (1, 3, 8)

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.1;
        [On Layer Normalization](https://arxiv.org/abs/2002.04745), figure 1, for the placements.
    """

    def __init__(
        self,
        attention: Attention,
        attention_norm: Norm | None,
        feed_forward: FeedForward,
        feed_forward_norm: Norm,
        norm_placement: str = "post",
        dropout: float = 0.0,
        rematerialize: bool = False,
        **kwargs: Any,
    ) -> None:
        # Autocast would round the layout's cosines and sines.
        super().__init__(**{**kwargs, "autocast": False})
        checks.PROPER_FRACTION.check(dropout=dropout)
        if norm_placement not in NORM_PLACEMENTS:
            raise ValueError(
                f"norm_placement must be {' or '.join(NORM_PLACEMENTS)}. Received: "
                f"{norm_placement!r}"
            )
        if attention_norm is None and norm_placement == "post":
            raise ValueError(
                "attention_norm is required with norm_placement='post'. Received: None. Pass a "
                "Norm, or norm_placement='pre'."
            )
        self.attention = attention
        self.attention_norm = attention_norm
        self.feed_forward = feed_forward
        self.feed_forward_norm = feed_forward_norm
        self.norm_placement = norm_placement
        self.dropout = dropout
        self.rematerialize = rematerialize

    def build(self, inputs_shape: Shape) -> None:
        _build(inputs_shape, self.attention, self.attention_norm)
        self.attention_seed = SeedGenerator()
        _build(inputs_shape, self.feed_forward, self.feed_forward_norm)
        self.feed_forward_seed = SeedGenerator()

    def call(
        self,
        inputs: Tensor,
        layout: BatchLayout | None = None,
        relative: Tensor | None = None,
        output_positions: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        inputs = ops.cast(inputs, self.compute_dtype)

        def compute(inputs: Tensor, relative: Tensor | None = None) -> Tensor:
            return self._compute(inputs, layout, relative, output_positions, training)

        if not self.rematerialize or not training:
            return compute(inputs, relative)
        generators = {
            self.attention.seed_generator: self.attention.dropout,
            self.attention.relative_seed_generator: self.attention.relative_dropout,
            self.attention_seed: self.dropout,
            self.feed_forward_seed: self.dropout,
        }
        drawn_from = [generator for generator, rate in generators.items() if generator and rate]
        differentiable = (inputs,) if relative is None else (inputs, relative)
        return rematerialize(compute, differentiable, drawn_from)

    def _compute(
        self,
        inputs: Tensor,
        layout: BatchLayout | None,
        relative: Tensor | None,
        output_positions: Tensor | None,
        training: bool,
    ) -> Tensor:
        outputs = self.attention(
            self.attention_inputs(inputs),
            layout=layout,
            relative=relative,
            output_positions=output_positions,
            add_bias=False,
            training=training,
        )
        context, scores = outputs if self.attention.return_scores else (outputs, None)
        if output_positions is not None:
            inputs = tokens_at(inputs, output_positions, training=training)

        # (batch, tokens, hidden) -> (batch * tokens, hidden) for rank-2 matmuls
        hidden_dim = inputs.shape[-1]
        x, context = (ops.reshape(tensor, (-1, hidden_dim)) for tensor in (inputs, context))
        options: dict[str, Any] = {"dropout": self.dropout, "training": training}
        x = self._sublayer_end(
            context, x, self.attention, self.attention_norm, seed=self.attention_seed, **options
        )
        y = self.feed_forward_norm(x) if self.norm_placement == "pre" else x
        y = self.feed_forward(y, add_bias=False, training=training)
        x = self._sublayer_end(
            y, x, self.feed_forward, self.feed_forward_norm, seed=self.feed_forward_seed, **options
        )
        x = ops.reshape(x, (-1, length_of(inputs), hidden_dim))
        return x if scores is None else (x, scores)

    def attention_inputs(self, inputs: Tensor) -> Tensor:
        """Returns the attention's input: `inputs`, or in pre-norm blocks the normalized inputs."""
        if self.norm_placement == "pre" and self.attention_norm is not None:
            return self.attention_norm(inputs)
        return inputs

    def _sublayer_end(
        self,
        x: Tensor,
        residual: Tensor,
        sublayer: Attention | FeedForward,
        norm: Norm | None,
        **options: Any,
    ) -> Tensor:
        """Adds a sublayer's bias, applies dropout, adds the residual, and applies the post-norm."""
        if norm is None or self.norm_placement == "pre":
            return bias_dropout_residual(x, residual, sublayer.output_bias, **options)
        weights = (sublayer.output_bias, norm.gamma, norm.beta)
        return bias_dropout_residual_norm(
            x, residual, *weights, kind=norm.kind, epsilon=norm.epsilon, **options
        )

    def compute_output_spec(
        self,
        inputs: Tensor,
        layout: Tensor | None = None,
        relative: Tensor | None = None,
        output_positions: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        return self.attention.compute_output_spec(inputs, output_positions=output_positions)

    def get_config(self) -> dict[str, Any]:
        parts = {name: getattr(self, name) for name in _PARTS}
        return {
            **super().get_config(),
            **{name: _serialize(part) for name, part in parts.items()},
            "norm_placement": self.norm_placement,
            "dropout": self.dropout,
            "rematerialize": self.rematerialize,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        parts = {name: keras.saving.deserialize_keras_object(config[name]) for name in _PARTS}
        return cls(**{**config, **parts})


def _serialize(part: keras.layers.Layer | None) -> Any:
    """Serializes a part as if it were not built, because the block builds it under its own name."""
    config = keras.saving.serialize_keras_object(part)
    if part is not None:
        config.pop("build_config", None)
    return config


def _build(shape: Shape, *parts: keras.layers.Layer | None) -> None:
    """Builds the parts that no other block has built yet."""
    for part in parts:
        if part is not None and not part.built:
            part.build(shape)

# SPDX-License-Identifier: Apache-2.0
"""Multi-head self-attention with a joint projection to queries, keys and values."""

from __future__ import annotations

import functools
from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.layers import interventions
from keras_bert.layers.base import Layer
from keras_bert.layers.dense import Dense
from keras_bert.layers.initial_weights import TruncatedNormal
from keras_bert.ops import (
    BatchLayout,
    SeedGenerator,
    attention,
    attention_with_scores,
    bias_add,
    dropout,
    rotate,
    tokens_at,
)
from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.attention import Bias, QueryKeyValue
from keras_bert.ops.masks import AttentionPattern
from keras_bert.ops.reference import length_of
from keras_bert.ops.relative import disentangled_bias


class _BiasedProduct(Dense):
    """A dense layer that sums the gradient of its bias in float32.

    `kernel` includes LoRA updates. With int8 weights, Keras calls `quantized_call` instead of
    `call`.
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        interventions.report_inputs(self, inputs)
        product = ops.matmul(inputs, self.kernel)
        if self.bias is None:
            return product
        return bias_add(product, self.bias, training=bool(training))


@keras.saving.register_keras_serializable(package="keras_bert")
class Attention(Layer):
    """Multi-head self-attention.

    The bias of the output projection is a weight of this layer, `output_bias`, so that it can be
    fused with the operations after the matmul.

    Args:
        num_heads: Number of attention heads.
        num_key_value_heads: Number of key and value heads, each shared by `num_heads /
            num_key_value_heads` query heads. Defaults to `num_heads`.
        head_dim: Dimension of each head. Defaults to the hidden dimension divided by `num_heads`.
            Pass it for layers with pruned heads, because they have fewer heads of the same
            dimension.
        window: Maximum distance between two tokens that attend to each other. `None` for no limit.
            With a window, time and memory grow with length times window, unless scores are
            returned.
        causal: Whether tokens attend only to themselves and to the tokens before them.
        rotary_base: Base frequency of rotary position embeddings (RoPE). `None` disables RoPE.
        rotary_scale: Factor for the RoPE frequencies.
        relative_positions: Type of the `relative` positions. `"bucketed"` positions are
            numbers added to the scores. `"disentangled"` positions are vectors. Their dot products
            with queries and keys are added to the scores. `None` for no relative positions.
        relative_dropout: Dropout rate on the disentangled positions.
        use_bias: Whether the projections have biases.
        dropout: Dropout rate on the attention probabilities.
        initializer_range: Standard deviation of the kernels' truncated normal initializer.
        output_initializer_range: Standard deviation for the output projection. Defaults to
            `initializer_range`.
        return_scores: Whether to also return the attention probabilities.
        max_length: Expected maximum length of unpacked sequences, see `keras_bert.ops.attention`.
            Longer sequences are supported.

    Call arguments:
        inputs: Float `(batch, length, hidden)`.
        layout: A `keras_bert.ops.BatchLayout`. It defines how the tokens are arranged, and where
            padding is. `None` for a batch without padding.
        relative: The output of `keras_bert.layers.RelativeEmbeddings`, for relative positions.
        output_positions: int `(batch, slots)`, the positions to compute. `None` for all positions.
        add_bias: Whether to add the output projection's bias. A `TransformerBlock` passes `False`
            and adds it together with dropout, the residual connection and the norm.
        training: Whether dropout is active.

    Output shape:
        `(batch, length, hidden)`, or `(batch, slots, hidden)` with output positions.
        With `return_scores`, a tuple of this tensor and the probabilities `(batch, heads, length,
        length)`.

    Raises:
        ValueError: If `num_heads` does not divide the hidden dimension and `head_dim` is `None`, if
            `num_key_value_heads` does not divide `num_heads`, if the head dimension is odd with
            `rotary_base`, or if another argument is out of range.

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2;
        [GQA](https://arxiv.org/abs/2305.13245), section 2.2, for `num_key_value_heads`;
        [Longformer](https://arxiv.org/abs/2004.05150), section 3.1, for `window`;
        [RoFormer](https://arxiv.org/abs/2104.09864), section 3.2.2, for `rotary_base`.
    """

    def __init__(
        self,
        num_heads: int,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        window: int | None = None,
        causal: bool = False,
        rotary_base: float | None = None,
        rotary_scale: float = 1.0,
        relative_positions: str | None = None,
        relative_dropout: float = 0.0,
        use_bias: bool = True,
        dropout: float = 0.0,
        initializer_range: float = 0.02,
        output_initializer_range: float | None = None,
        return_scores: bool = False,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        # Autocast would round the layout's cosines and sines.
        super().__init__(**{**kwargs, "autocast": False})
        checks.POSITIVE_INT.check(num_heads=num_heads)
        checks.POSITIVE_INT.check_optional(
            num_key_value_heads=num_key_value_heads,
            head_dim=head_dim,
            window=window,
            max_length=max_length,
        )
        checks.PROPER_FRACTION.check(dropout=dropout, relative_dropout=relative_dropout)
        checks.POSITIVE.check(initializer_range=initializer_range, rotary_scale=rotary_scale)
        checks.POSITIVE.check_optional(
            output_initializer_range=output_initializer_range, rotary_base=rotary_base
        )
        if num_key_value_heads is not None and num_heads % num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads must divide num_heads, which is {num_heads}. Received: "
                f"{num_key_value_heads}"
            )
        self.num_heads = num_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.window = window
        self.causal = causal
        self.rotary_base = rotary_base
        self.rotary_scale = rotary_scale
        self.relative_positions = relative_positions
        self.relative_dropout = relative_dropout
        self.use_bias = use_bias
        self.dropout = dropout
        self.initializer_range = initializer_range
        self.output_initializer_range = output_initializer_range
        self.return_scores = return_scores
        self.max_length = max_length
        self.seed_generator = SeedGenerator()
        self.relative_seed_generator = SeedGenerator() if relative_dropout else None

    def build(self, inputs_shape: Shape) -> None:
        hidden_dim = inputs_shape[-1]
        if self.head_dim is None and hidden_dim % self.num_heads:
            raise ValueError(
                f"num_heads must divide the hidden dimension {hidden_dim}. Received: "
                f"{self.num_heads}"
            )
        self.width_of_head = self.head_dim or hidden_dim // self.num_heads
        if self.rotary_base is not None and self.width_of_head % 2:
            raise ValueError(
                f"The head dimension must be even with rotary_base. Received: {self.width_of_head}"
            )
        self.query_width = self.num_heads * self.width_of_head
        self.key_width = (self.num_key_value_heads or self.num_heads) * self.width_of_head
        # The LAMB optimizer treats a kernel called `query_key_value` as three kernels.
        is_grouped = self.key_width < self.query_width
        self.query_key_value = self._new(
            _BiasedProduct,
            self.query_width + 2 * self.key_width,
            "grouped_query_key_value" if is_grouped else "query_key_value",
            self.use_bias,
        )
        self.query_key_value.build((None, hidden_dim))
        self.output_projection = self._new(
            Dense, hidden_dim, "output_projection", False, self.output_initializer_range
        )
        self.output_projection.build((None, self.query_width))
        self.output_bias = None
        if self.use_bias:
            self.output_bias = self.add_weight(
                name="output_bias", shape=(hidden_dim,), initializer="zeros", autocast=False
            )

    def _new(
        self,
        cls: type[Dense],
        units: int,
        name: str,
        use_bias: bool,
        stddev: float | None = None,
    ) -> Dense:
        return cls(
            units,
            use_bias=use_bias,
            kernel_initializer=TruncatedNormal(stddev=stddev or self.initializer_range),
            dtype=self.dtype_policy,
            name=name,
        )

    def call(
        self,
        inputs: Tensor,
        layout: BatchLayout | None = None,
        relative: Tensor | None = None,
        output_positions: Tensor | None = None,
        add_bias: bool = True,
        training: bool = False,
    ) -> Tensor:
        layout = layout or BatchLayout()
        inputs = ops.cast(inputs, self.compute_dtype)
        query_key_value = self._project(inputs, layout, training)
        bias, scores = self._bias(relative, training), None
        if self.return_scores:
            context, scores = attention_with_scores(
                query_key_value,
                self._mask_of_pairs(inputs, layout),
                bias=bias,
                dropout=self.dropout if training else 0.0,
                seed=self.seed_generator,
            )
        else:
            context = attention(
                query_key_value,
                layout,
                causal=self.causal,
                window=self.window,
                bias=bias,
                dropout=self.dropout,
                seed=self.seed_generator,
                training=training,
                max_length=self.max_length,
            )
        context = interventions.apply_head_weights(self, context, layout)
        length = length_of(inputs)
        if output_positions is not None:
            context = ops.reshape(context, (-1, length, self.query_width))
            context = tokens_at(context, output_positions, training=training)
            length = length_of(output_positions)
        # (batch, tokens, heads, head_dim) -> (batch * tokens, width) for a rank-2 matmul
        outputs = self.output_projection(ops.reshape(context, (-1, self.query_width)))
        outputs = ops.reshape(outputs, (-1, length, outputs.shape[-1]))
        if add_bias and self.use_bias:
            outputs = bias_add(outputs, self.output_bias, training=training)
        return (outputs, scores) if self.return_scores else outputs

    def probabilities(
        self, inputs: Tensor, layout: BatchLayout | None = None, relative: Tensor | None = None
    ) -> Tensor:
        """Computes only the attention probabilities, regardless of `return_scores`.

        Args:
            inputs: See the call arguments.
            layout: See the call arguments. It must not be unpadded.
            relative: See the call arguments.

        Returns:
            A tensor `(batch, heads, length, length)` in the compute dtype.
        """
        layout = layout or BatchLayout()
        inputs = ops.cast(inputs, self.compute_dtype)
        mask = self._mask_of_pairs(inputs, layout)
        query_key_value = self._project(inputs, layout)
        return attention_with_scores(query_key_value, mask, bias=self._bias(relative))[1]

    def _project(
        self, inputs: Tensor, layout: BatchLayout, training: bool = False
    ) -> QueryKeyValue:
        """Returns queries, keys and values in the form that `keras_bert.ops.attention` expects."""
        # (batch, length, hidden) -> (batch * length, hidden) for a rank-2 matmul
        tokens = ops.reshape(inputs, (-1, inputs.shape[-1]))
        projected = self.query_key_value(tokens, training=training)
        length, head_dim = length_of(inputs), self.width_of_head
        is_disentangled = self.relative_positions == "disentangled"
        is_plain = self.rotary_base is None and self.key_width == self.query_width
        if is_plain and not is_disentangled:
            return ops.reshape(projected, (-1, length, 3, self.num_heads, head_dim))
        ends = (self.query_width, self.query_width + self.key_width)
        query, key, value = (
            ops.reshape(projection, (-1, length, projection.shape[-1] // head_dim, head_dim))
            for projection in ops.split(projected, ends, axis=-1)
        )
        if self.rotary_base is not None:
            cos_sin = layout.rope(inputs, head_dim, self.rotary_base, self.rotary_scale)
            query, key = (rotate(each, cos_sin, training=training) for each in (query, key))
        if is_disentangled:  # A score is the sum of three dot products. Keep its variance.
            query = query * 3**-0.5
        return query, key, value

    def _bias(self, relative: Tensor, training: bool = False) -> Bias | None:
        """Returns the bias on the scores in the form that `keras_bert.ops.attention` expects."""
        if self.relative_positions is None:
            return None
        if self.relative_positions == "bucketed":

            def bucketed(query: Tensor, key: Tensor) -> Tensor:
                queries, keys = ops.shape(query)[2], ops.shape(key)[2]
                return relative[:, :, :queries, :keys]

            return bucketed
        rate, seed = self.relative_dropout, self.relative_seed_generator
        relative = dropout(relative, rate, seed=seed, training=training)
        # Tokens and positions share the projections.
        projected = self.query_key_value(relative, training=training)
        query_positions, key_positions, _ = (
            ops.transpose(
                ops.reshape(projection, (-1, self.num_heads, self.width_of_head)), (1, 2, 0)
            )
            for projection in ops.split(projected, 3, axis=-1)
        )
        return functools.partial(
            disentangled_bias,
            key_positions=key_positions,
            query_positions=query_positions * 3**-0.5,
        )

    def _mask_of_pairs(self, inputs: Tensor, layout: BatchLayout) -> Tensor | None:
        return layout.mask(inputs, AttentionPattern(self.causal, self.window, in_blocks=False))[0]

    def compute_output_spec(
        self,
        inputs: Tensor,
        layout: Tensor | None = None,
        relative: Tensor | None = None,
        output_positions: Tensor | None = None,
        **options: Any,
    ) -> Tensor:
        batch, length, hidden_dim = inputs.shape
        tokens = (batch, length) if output_positions is None else output_positions.shape
        outputs = keras.KerasTensor((*tokens, hidden_dim), dtype=self.compute_dtype)
        if not self.return_scores:
            return outputs
        return outputs, keras.KerasTensor(
            (batch, self.num_heads, length, length), dtype=self.compute_dtype
        )

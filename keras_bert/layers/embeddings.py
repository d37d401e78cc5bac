# SPDX-License-Identifier: Apache-2.0
"""Embedding layers, from token IDs to the input of the first transformer block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.config import BertConfig
from keras_bert.layers import interventions
from keras_bert.layers.base import Layer, check_length, check_same_shape
from keras_bert.layers.initial_weights import TruncatedNormal
from keras_bert.layers.norm import add_norm_weights
from keras_bert.ops import SeedGenerator, dropout, norm, take, take_of_few, token_logits
from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.reference import length_of

# The key in weight files for a table plus its base table
_SUM = "sum"


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenEmbedding(Layer):
    """Token embeddings that can also project to the vocabulary (tied embeddings).

    `layer(token_ids)` looks up vectors. `layer(hidden, reverse=True)` multiplies by the transposed
    table, for a masked LM head that shares its weights with the input.

    Args:
        vocabulary_size: Number of rows in the table.
        hidden_dim: Number of columns in the table.
        initializer_range: Standard deviation of the truncated normal initializer.

    Call arguments:
        inputs: Token IDs, int `(batch, length)`. With `reverse`, vectors `(batch, slots, hidden)`.
        reverse: Whether to multiply by the transposed table. Defaults to `False`.

    Output shape:
        `(batch, length, hidden)` in the variable dtype. With mixed precision policies, this is
        float32, for the precision of the sum and LayerNorm that follow. With `reverse`, `(batch,
        slots, vocabulary)` in the compute dtype.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), the original BERT code.
    """

    def __init__(
        self,
        vocabulary_size: int,
        hidden_dim: int,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        checks.POSITIVE_INT.check(vocabulary_size=vocabulary_size, hidden_dim=hidden_dim)
        checks.POSITIVE.check(initializer_range=initializer_range)
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.initializer_range = initializer_range
        # A function, since Keras would treat a layer in an attribute as a sublayer.
        self._base_table: Callable[[], Any] | None = None

    @property
    def embeddings(self) -> Any:
        """The table, `(vocabulary, hidden)`: a variable, or with a base table a tensor."""
        if self._base_table is None:
            return self._table
        return ops.stop_gradient(ops.convert_to_tensor(self._base_table())) + self._table

    def add_base_table(self, base: TokenEmbedding | None) -> None:
        """Makes the table the sum of another layer's table and a variable, with unchanged values.

        The other table does not get gradients from this layer (gradient-disentangled embedding
        sharing).

        Args:
            base: The other layer, of the same shape. With `None`, the table is a single variable
                again.

        Reference:
            [DeBERTaV3](https://arxiv.org/abs/2111.09543), section 3.3, equation 7.
        """
        table = ops.convert_to_tensor(self.embeddings)
        self._base_table = None if base is None else lambda: base.embeddings
        self._table.assign(table if base is None else table - base.embeddings)

    def build(self, input_shape: Shape | None = None) -> None:
        # Without autocast, because casting 30,000 rows to look up 1,000 costs more than the lookup.
        self._table = self.add_weight(
            name="embeddings",
            shape=(self.vocabulary_size, self.hidden_dim),
            initializer=TruncatedNormal(stddev=self.initializer_range),
            autocast=False,
        )

    def call(self, inputs: Tensor, reverse: bool = False, training: bool = False) -> Tensor:
        if reverse:
            table = ops.cast(self.embeddings, self.compute_dtype)
            return token_logits(ops.cast(inputs, self.compute_dtype), table)
        replaced = interventions.replaced_embeddings(self)
        if replaced is not None:
            return replaced
        vectors = take(self._table, inputs, training=training)
        if self._base_table is not None:
            vectors += ops.stop_gradient(take(self._base_table(), inputs, training=training))
        return vectors

    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        if self._base_table is not None:
            store[_SUM] = self.embeddings

    def load_own_variables(self, store: Any) -> None:
        # A discriminator that is loaded without its generator has no base table, so it loads the
        # sum.
        if _SUM not in set(store.keys()):
            super().load_own_variables(store)
        else:
            self._table.assign(store[_SUM if self._base_table is None else "0"])

    def compute_output_spec(
        self, inputs: Tensor, reverse: bool = False, training: bool = False
    ) -> keras.KerasTensor:
        if reverse:
            shape = (*inputs.shape[:-1], self.vocabulary_size)
            return keras.KerasTensor(shape, dtype=self.compute_dtype)
        return keras.KerasTensor((*inputs.shape, self.hidden_dim), dtype=self.variable_dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class EmbeddingPostprocessor(Layer):
    """Adds segment and position embeddings: `dropout(norm(token + segment + position))`.

    Args:
        max_sequence_length: Maximum length of the input in tokens.
        num_segments: Number of segments. With 0, there are no segment embeddings.
        position_offset: Number of rows in the position table before position 0.
        learned_positions: Whether to add position embeddings. Rotary positions are not added here.
        norm: `"layer_norm"`, `"rms_norm"`, or `None` for no norm.
        norm_bias: Whether LayerNorm has an offset.
        layer_norm_epsilon: Added to the variance or to the mean square.
        dropout: Dropout rate after the norm.
        initializer_range: Standard deviation of the tables' truncated normal initializer.

    Call arguments:
        token_vectors: Float `(batch, length, hidden)`.
        segment_ids: int `(batch, length)`, or `None` for zeros.
        position_ids: int `(batch, length)`, at least `-position_offset`. `None` for 0, 1, 2, ... in
            every row.
        training: Whether dropout is active.

    Output shape:
        `(batch, length, hidden)` in the compute dtype.

    Raises:
        ValueError: If the input is longer than `max_sequence_length` without `position_ids`, or if
            `segment_ids` or `position_ids` have a different shape from the tokens.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3, figure 2.
    """

    def __init__(
        self,
        max_sequence_length: int,
        num_segments: int,
        position_offset: int = 0,
        learned_positions: bool = True,
        norm: str | None = "layer_norm",
        norm_bias: bool = True,
        layer_norm_epsilon: float = 1e-12,
        dropout: float = 0.0,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        # Without autocast, because the sum and its LayerNorm precede the first matmul. Rounding
        # their inputs would not save time.
        super().__init__(**{**kwargs, "autocast": False})
        checks.POSITIVE_INT.check(max_sequence_length=max_sequence_length)
        checks.NON_NEGATIVE_INT.check(num_segments=num_segments, position_offset=position_offset)
        checks.POSITIVE.check(
            layer_norm_epsilon=layer_norm_epsilon, initializer_range=initializer_range
        )
        checks.PROPER_FRACTION.check(dropout=dropout)
        self.max_sequence_length = max_sequence_length
        self.num_segments = num_segments
        self.position_offset = position_offset
        self.learned_positions = learned_positions
        self.norm = norm
        self.norm_bias = norm_bias
        self.layer_norm_epsilon = layer_norm_epsilon
        self.dropout = dropout
        self.initializer_range = initializer_range
        self.seed_generator = SeedGenerator()

    def build(
        self,
        token_vectors_shape: Shape,
        segment_ids_shape: Shape | None = None,
        position_ids_shape: Shape | None = None,
    ) -> None:
        hidden_dim = token_vectors_shape[-1]

        def new_table(name: str, rows: int) -> Any:
            return self.add_weight(
                name=name,
                shape=(rows, hidden_dim),
                initializer=TruncatedNormal(stddev=self.initializer_range),
                # The layer's own autocast=False only takes effect inside an outer layer.
                autocast=False,
            )

        if self.learned_positions:
            num_positions = self.max_sequence_length + self.position_offset
            self.position_embeddings = new_table("position_embeddings", num_positions)
        if self.num_segments:
            self.segment_embeddings = new_table("segment_embeddings", self.num_segments)
        self.gamma = self.beta = None
        if self.norm:
            weights = add_norm_weights(self, hidden_dim, self.norm, self.norm_bias)
            self.gamma, self.beta = weights

    def call(
        self,
        token_vectors: Tensor,
        segment_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        self._check_inputs(token_vectors, segment_ids, position_ids)
        x = ops.cast(token_vectors, self.variable_dtype)
        first = self.position_offset
        if self.learned_positions:
            if position_ids is None:
                x = x + self.position_embeddings[first : first + length_of(token_vectors)]
            else:
                x = x + take(self.position_embeddings, position_ids + first, training=training)
        if self.num_segments == 1 or (self.num_segments and segment_ids is None):
            x = x + self.segment_embeddings[0]
        elif self.num_segments:
            x = x + take_of_few(self.segment_embeddings, segment_ids, training=training)
        if self.norm:
            x = norm(x, self.gamma, self.beta, kind=self.norm, epsilon=self.layer_norm_epsilon)
        x = dropout(x, self.dropout, seed=self.seed_generator, training=training)
        return ops.cast(x, self.compute_dtype)

    def _check_inputs(
        self, token_vectors: Tensor, segment_ids: Tensor, position_ids: Tensor
    ) -> None:
        for name, ids in {"segment_ids": segment_ids, "position_ids": position_ids}.items():
            if ids is not None:
                check_same_shape(name, ids.shape, token_vectors.shape[:2])
        if position_ids is None:
            check_length(token_vectors.shape[1], self.max_sequence_length)

    def compute_output_spec(
        self,
        token_vectors: Tensor,
        segment_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        training: bool = False,
    ) -> keras.KerasTensor:
        self._check_inputs(token_vectors, segment_ids, position_ids)
        return keras.KerasTensor(token_vectors.shape, dtype=self.compute_dtype)


def new_embeddings(
    config: BertConfig, policy: keras.DTypePolicy
) -> tuple[TokenEmbedding, EmbeddingPostprocessor]:
    """Creates the token embedding layer and the layer with segment and position embeddings."""
    token_embedding = TokenEmbedding(
        config.vocabulary_size,
        config.embedding_width,
        initializer_range=config.initializer_range,
        dtype=policy,
        name="token_embedding",
    )
    others = EmbeddingPostprocessor(
        config.max_sequence_length,
        config.num_segments,
        position_offset=config.position_offset,
        learned_positions=config.positions == "learned",
        norm=config.norm if config.embedding_norm else None,
        norm_bias=config.norm_bias,
        layer_norm_epsilon=config.layer_norm_epsilon,
        dropout=config.effective_embedding_dropout,
        initializer_range=config.initializer_range,
        dtype=policy,
        name="embeddings",
    )
    return token_embedding, others

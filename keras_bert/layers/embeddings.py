# SPDX-License-Identifier: Apache-2.0
"""The embeddings: from token ids to the input of the first block."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.config import BertConfig
from keras_bert.ops import dropout, layer_norm, token_logits
from keras_bert.ops.annotations import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenEmbedding(keras.layers.Layer):
    """The token embeddings, which are also the output layer of a masked-LM head.

    `layer(token_ids)` looks vectors up; `layer(hidden, reverse=True)` multiplies by the
    transposed table, which is how a masked-LM head shares its weights with the input
    (the paper's released code; "tied embeddings").

    Args:
        vocabulary_size: Rows of the table.
        hidden_dim: Columns of the table.
        initializer_range: Standard deviation of the truncated normal it starts from.

    Call arguments:
        inputs: Token ids `(batch, length)`; or, in reverse, vectors `(batch, slots, hidden)`.
        reverse: Whether to multiply by the transposed table.

    Output shape:
        `(batch, length, hidden)` in the table's own dtype (float32 under the mixed policies:
        the sum and the LayerNorm that follow need the precision); in reverse
        `(batch, slots, vocabulary)` in the compute dtype.
    """

    def __init__(
        self,
        vocabulary_size: int,
        hidden_dim: int,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.initializer_range = initializer_range

    def build(self, input_shape: Shape | None = None) -> None:
        # Without autocast: casting 30,000 rows to look up 1,000 costs more than the look-up.
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocabulary_size, self.hidden_dim),
            initializer=keras.initializers.TruncatedNormal(stddev=self.initializer_range),
            autocast=False,
        )

    def call(self, inputs: Tensor, reverse: bool = False) -> Tensor:
        if reverse:
            table = ops.cast(self.embeddings, self.compute_dtype)
            return token_logits(ops.cast(inputs, self.compute_dtype), table)
        return ops.take(self.embeddings, inputs, axis=0)

    def compute_output_spec(self, inputs: Tensor, reverse: bool = False) -> keras.KerasTensor:
        if reverse:
            shape = (*inputs.shape[:-1], self.vocabulary_size)
            return keras.KerasTensor(shape, dtype=self.compute_dtype)
        return keras.KerasTensor((*inputs.shape, self.hidden_dim), dtype=self.variable_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "initializer_range": self.initializer_range,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class EmbeddingPostprocessor(keras.layers.Layer):
    """`dropout(LN(token + segment + position))`: the input of the first block.

    Args:
        max_sequence_length: The longest input in tokens.
        num_segments: Number of segment types; with 0 there are no segment embeddings.
        position_offset: Rows of the position table before that of position 0.
        layer_norm_epsilon: Added to the variance.
        dropout: Rate after the LayerNorm.
        initializer_range: Standard deviation of the truncated normal the tables start from.

    Call arguments:
        token_vectors: `(batch, length, hidden)`.
        segment_ids: int `(batch, length)`, or `None` for all zeros.
        position_ids: int `(batch, length)` of at least `-position_offset`, or `None` for 0, 1, 2,
            ... in every row.
        training: Whether dropout is active.

    Output shape:
        `(batch, length, hidden)` in the compute dtype.

    Raises:
        ValueError: If the input is longer than the positions and none are given, or `segment_ids`
            or `position_ids` has another shape than the tokens.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3, figure 2.
    """

    def __init__(
        self,
        max_sequence_length: int,
        num_segments: int,
        position_offset: int = 0,
        layer_norm_epsilon: float = 1e-12,
        dropout: float = 0.0,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        # The sum and its LayerNorm come before the first product: nothing is gained by rounding
        # what goes into them.
        super().__init__(**{**kwargs, "autocast": False})
        self.max_sequence_length = max_sequence_length
        self.num_segments = num_segments
        self.position_offset = position_offset
        self.layer_norm_epsilon = layer_norm_epsilon
        self.dropout = dropout
        self.initializer_range = initializer_range
        self.seed_generator = keras.random.SeedGenerator()

    def build(
        self,
        token_vectors_shape: Shape,
        segment_ids_shape: Shape | None = None,
        position_ids_shape: Shape | None = None,
    ) -> None:
        hidden_dim = token_vectors_shape[-1]

        def add(name: str, shape: tuple[int, ...], initializer: Any) -> Any:
            # Without autocast, which Keras spares a whole layer of only inside another one
            return self.add_weight(name=name, shape=shape, initializer=initializer, autocast=False)

        def truncated_normal() -> keras.initializers.Initializer:
            return keras.initializers.TruncatedNormal(stddev=self.initializer_range)

        positions = self.max_sequence_length + self.position_offset
        self.position_embeddings = add(
            "position_embeddings", (positions, hidden_dim), truncated_normal()
        )
        if self.num_segments:
            self.segment_embeddings = add(
                "segment_embeddings", (self.num_segments, hidden_dim), truncated_normal()
            )
        self.gamma = add("gamma", (hidden_dim,), "ones")
        self.beta = add("beta", (hidden_dim,), "zeros")

    def call(
        self,
        token_vectors: Tensor,
        segment_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        self._check_inputs(token_vectors, segment_ids, position_ids)
        first = self.position_offset
        if position_ids is None:
            positions = self.position_embeddings[first : first + ops.shape(token_vectors)[1]]
        else:
            positions = ops.take(self.position_embeddings, position_ids + first, axis=0)
        x = ops.cast(token_vectors, self.variable_dtype) + positions
        if self.num_segments:
            x = x + self._segment_vectors(segment_ids)
        x = layer_norm(x, self.gamma, self.beta, self.layer_norm_epsilon)
        x = dropout(x, self.dropout, seed=self.seed_generator, training=training)
        return ops.cast(x, self.compute_dtype)

    def _segment_vectors(self, segment_ids: Tensor) -> Tensor:
        if segment_ids is None or self.num_segments == 1:
            return self.segment_embeddings[0]
        # A product with one-hot rows: its gradient is a product too, where a look-up's gradient
        # is a scatter of every token into two rows.
        one_hot = ops.one_hot(segment_ids, self.num_segments, dtype=self.variable_dtype)
        return ops.matmul(one_hot, self.segment_embeddings)

    def _check_inputs(
        self, token_vectors: Tensor, segment_ids: Tensor, position_ids: Tensor
    ) -> None:
        length = token_vectors.shape[1]
        for name, ids in {"segment_ids": segment_ids, "position_ids": position_ids}.items():
            if ids is not None:
                check_same_shape(name, ids.shape, token_vectors.shape[:2])
        if position_ids is None and length is not None and length > self.max_sequence_length:
            raise ValueError(too_long(length, self.max_sequence_length))

    def compute_output_spec(
        self,
        token_vectors: Tensor,
        segment_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        training: bool = False,
    ) -> keras.KerasTensor:
        self._check_inputs(token_vectors, segment_ids, position_ids)
        return keras.KerasTensor(token_vectors.shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "max_sequence_length": self.max_sequence_length,
            "num_segments": self.num_segments,
            "position_offset": self.position_offset,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "dropout": self.dropout,
            "initializer_range": self.initializer_range,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class CountedPositions(keras.layers.Layer):
    """The position of each token among those of its row that are no padding.

    Args:
        pad_token_id: The id of padding.
        max_sequence_length: The longest input in tokens.

    Call arguments:
        token_ids: int `(batch, length)`.
        position_ids: int `(batch, length)`, which are then returned, or `None`.

    Output shape:
        int32 `(batch, length)`: from 0, and -1 at padding.

    Raises:
        ValueError: If the input is longer than the positions and none are given.

    Reference:
        [RoBERTa](https://arxiv.org/abs/1907.11692), as its released code counts them.
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


def too_long(length: int, max_sequence_length: int) -> str:
    """The error message for an input with more tokens than there are positions."""
    return (
        f"The input is {length} tokens long; this model has positions for at most "
        f"{max_sequence_length} (max_sequence_length). Truncate it, or split it into windows."
    )


def check_same_shape(name: str, received: Any, expected: Any) -> None:
    """Raises if two static shapes `(batch, length)` cannot be the same.

    Raises:
        ValueError: If the ranks differ, or two known dimensions do.
    """
    received, expected = tuple(received), tuple(expected)
    matches = len(received) == len(expected) and all(
        a is None or b is None or a == b for a, b in zip(received, expected, strict=True)
    )
    if not matches:
        raise ValueError(
            f"`{name}` has shape {received}; it must have the shape of token_ids, {expected}."
        )


def new_embeddings(
    config: BertConfig, policy: keras.DTypePolicy
) -> tuple[TokenEmbedding, EmbeddingPostprocessor]:
    """The embeddings of an encoder, with fresh weights: the token table, and the others.

    Args:
        config: The architecture.
        policy: A Keras dtype policy.
    """
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
        layer_norm_epsilon=config.layer_norm_epsilon,
        dropout=config.dropout,
        initializer_range=config.initializer_range,
        dtype=policy,
        name="embeddings",
    )
    return token_embedding, others

# SPDX-License-Identifier: Apache-2.0
"""Token positions, counted among non-padding tokens, and relative position embeddings."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.config import RELATIVE_POSITIONS
from keras_bert.layers.base import Layer, check_length
from keras_bert.layers.initial_weights import TruncatedNormal
from keras_bert.layers.norm import add_norm_weights
from keras_bert.ops import BatchLayout, norm, take_of_few
from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.reference import length_of
from keras_bert.ops.relative import scores_of_pairs, table_rows_in_range


@keras.saving.register_keras_serializable(package="keras_bert")
class PositionIds(Layer):
    """Counts each token's position among the non-padding tokens in its sequence.

    Args:
        pad_token_id: Token ID of the padding token.
        max_sequence_length: Maximum length of the input in tokens.

    Call arguments:
        token_ids: int `(batch, length)`.
        position_ids: int `(batch, length)`. If given, they are returned instead.

    Output shape:
        int32 `(batch, length)`. Positions start at 0, and padding has position -1.

    Raises:
        ValueError: If the input is longer than `max_sequence_length` without `position_ids`.

    Reference:
        [RoBERTa](https://arxiv.org/abs/1907.11692), the original RoBERTa code.
    """

    def __init__(self, pad_token_id: int, max_sequence_length: int, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "int32"})
        self.pad_token_id = pad_token_id
        self.max_sequence_length = max_sequence_length

    def call(self, token_ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        if position_ids is not None:
            return ops.cast(position_ids, "int32")
        check_length(token_ids.shape[1], self.max_sequence_length)
        is_token = ops.cast(ops.not_equal(token_ids, self.pad_token_id), "int32")
        return ops.cumsum(is_token, axis=1) * is_token - 1

    def compute_output_spec(
        self, token_ids: Tensor, position_ids: Tensor | None = None
    ) -> keras.KerasTensor:
        if position_ids is None:
            check_length(token_ids.shape[1], self.max_sequence_length)
        return keras.KerasTensor(token_ids.shape, dtype="int32")


@keras.saving.register_keras_serializable(package="keras_bert")
class RelativeEmbeddings(Layer):
    """Embeddings of the distances between tokens, shared by all blocks in an encoder.

    Args:
        kind: `"bucketed"` for a number per head and bucket, or `"disentangled"` for a vector per
            bucket with LayerNorm.
        dim: Number of attention heads if bucketed, or the hidden dimension if disentangled.
        num_buckets: Number of buckets. If disentangled, there are this many buckets for each sign.
        max_distance: All distances of at least `max_distance` are in the last bucket of their sign.
        layer_norm_epsilon: Added to the variance in the LayerNorm.
        initializer_range: Standard deviation of the table's truncated normal initializer.

    Call arguments:
        token_ids: int `(batch, length)`. Only the length is used.
        layout: The batch's `keras_bert.ops.BatchLayout`.
        training: Whether gradients will be computed.

    Output shape:
        If bucketed, the bias on the attention scores, `(1, heads, length, length)`. If
        disentangled, the vectors for the distances (key position minus query position) from
        `1 - length` to `length - 1`, `(2 * length - 1, hidden)`. For an unpadded batch, the length
        is the maximum sequence length.

    Raises:
        ValueError: If `kind` is unknown.

    Reference:
        [MPNet](https://arxiv.org/abs/2004.09297), section 4.1;
        [DeBERTa](https://arxiv.org/abs/2006.03654), section 3.1.
    """

    def __init__(
        self,
        kind: str,
        dim: int,
        num_buckets: int,
        max_distance: int,
        layer_norm_epsilon: float = 1e-7,
        initializer_range: float = 0.02,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if kind not in RELATIVE_POSITIONS:
            raise ValueError(f"kind must be {' or '.join(RELATIVE_POSITIONS)}. Received: {kind!r}")
        checks.POSITIVE_INT.check(dim=dim, num_buckets=num_buckets, max_distance=max_distance)
        checks.POSITIVE.check(
            layer_norm_epsilon=layer_norm_epsilon, initializer_range=initializer_range
        )
        self.kind = kind
        self.dim = dim
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.layer_norm_epsilon = layer_norm_epsilon
        self.initializer_range = initializer_range
        # All larger distances of the same sign are in the same bucket.
        self.reach = 2 * max_distance
        self.rows = table_rows_in_range(self.reach, kind, num_buckets, max_distance)

    def build(self, token_ids_shape: Shape, layout_shape: Any = None) -> None:
        count = self.num_buckets * (1 if self.kind == "bucketed" else 2)
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(count, self.dim),
            initializer=TruncatedNormal(stddev=self.initializer_range),
            autocast=False,
        )
        self.gamma = self.beta = None
        if self.kind == "disentangled":
            self.gamma, self.beta = add_norm_weights(self, self.dim, "layer_norm", True)

    def call(self, token_ids: Tensor, layout: BatchLayout, training: bool = False) -> Tensor:
        length = length_of(token_ids if layout.varlen is None else layout.varlen.key_masks[-1])
        distances = ops.clip(ops.arange(1 - length, length), -self.reach, self.reach)
        rows = ops.take(ops.convert_to_tensor(self.rows), distances + self.reach)
        if self.kind == "disentangled":
            table = norm(
                ops.convert_to_tensor(self.embeddings),
                self.gamma,
                self.beta,
                kind="layer_norm",
                epsilon=self.layer_norm_epsilon,
            )
            return ops.cast(take_of_few(table, rows, training=training), self.compute_dtype)
        # (distances, heads) -> (heads, length, distances), with the same values for each query
        scores = ops.transpose(take_of_few(self.embeddings, rows, training=training))[:, None]
        scores = ops.cast(ops.repeat(scores, length, axis=1), self.compute_dtype)
        return scores_of_pairs(scores, length)[None]

    def compute_output_spec(
        self, token_ids: Tensor, layout: BatchLayout, training: bool = False
    ) -> keras.KerasTensor:
        length = token_ids.shape[1]
        shape: Shape = (1, self.dim, length, length)
        if self.kind == "disentangled":
            shape = (None if length is None else 2 * length - 1, self.dim)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

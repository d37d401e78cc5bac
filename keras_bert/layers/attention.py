# SPDX-License-Identifier: Apache-2.0
"""Multi-head self-attention with a single projection to queries, keys and values."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.layers.dense import Dense
from keras_bert.layers.embeddings import check_same_shape
from keras_bert.ops import SeedGenerator, attention, attention_with_scores, bias_add
from keras_bert.ops.annotations import Shape, Tensor


class _BiasedProduct(Dense):
    """A dense layer in which the gradient of the bias is summed in float32.

    LoRA updates are included in `kernel`; with int8 weights, Keras calls `quantized_call` instead.
    """

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        return bias_add(ops.matmul(inputs, self.kernel), self.bias, training=bool(training))


@keras.saving.register_keras_serializable(package="keras_bert")
class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention without the output projection, which belongs to the block.

    Args:
        num_heads: Number of attention heads.
        dropout: Dropout rate on the attention probabilities.
        initializer_range: Standard deviation of the kernel's truncated normal initializer.
        causal: Whether tokens attend only to themselves and to the tokens before them.
        return_scores: Whether to return the attention probabilities too.
        head_dim: Dimension of a head. Defaults to the hidden dimension divided by `num_heads`,
            which must divide it; layers whose heads were pruned have fewer heads of the same
            dimension.

    Call arguments:
        inputs: Float `(batch, length, hidden)`.
        padding_mask: Bool `(batch, length)`, False at tokens that are not attended to; `None` for a
            batch without padding, which is faster.
        sequence_ids: int `(batch, length)`, for packed rows: tokens attend only to tokens with the
            same id; `None` if every row is one sequence.
        training: Whether dropout is active.

    Output shape:
        `(batch, length, num_heads * head_dim)`; with `return_scores`, a tuple of it and of the
        probabilities `(batch, heads, length, length)`.

    Raises:
        ValueError: If `head_dim` is `None` and `num_heads` does not divide the hidden dimension, or
            the shape of a mask does not match.

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2.
    """

    def __init__(
        self,
        num_heads: int,
        dropout: float = 0.0,
        initializer_range: float = 0.02,
        causal: bool = False,
        return_scores: bool = False,
        head_dim: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        checks.POSITIVE_INT.check(num_heads=num_heads)
        checks.POSITIVE_INT.check_given(head_dim=head_dim)
        checks.PROPER_FRACTION.check(dropout=dropout)
        checks.POSITIVE.check(initializer_range=initializer_range)
        self.num_heads = num_heads
        self.dropout = dropout
        self.initializer_range = initializer_range
        self.causal = causal
        self.return_scores = return_scores
        self.head_dim = head_dim
        self._head_weights: Iterator[Tensor] | None = None
        self.seed_generator = SeedGenerator()

    def build(
        self,
        inputs_shape: Shape,
        padding_mask_shape: Shape | None = None,
        sequence_ids_shape: Shape | None = None,
    ) -> None:
        hidden_dim = inputs_shape[-1]
        if self.head_dim is None and hidden_dim % self.num_heads:
            raise ValueError(
                f"num_heads is {self.num_heads}; it must divide the hidden dimension {hidden_dim}."
            )
        self.output_dim = self.num_heads * (self.head_dim or hidden_dim // self.num_heads)
        self.query_key_value = _BiasedProduct(
            3 * self.output_dim,
            kernel_initializer=keras.initializers.TruncatedNormal(stddev=self.initializer_range),
            dtype=self.dtype_policy,
            name="query_key_value",
        )
        self.query_key_value.build((None, hidden_dim))

    @contextlib.contextmanager
    def weighing_heads(self, weights: Sequence[Tensor]) -> Iterator[None]:
        """Multiplies what each head outputs by a weight, to measure or to remove heads.

        It has an effect on calls, and not on functions that were traced before.

        Args:
            weights: For each use of this layer in a pass through the encoder, of which there are
                several if layers share weights, float `(batch, heads)` or `(1, heads)`.
        """
        self._head_weights = itertools.cycle(weights)
        try:
            yield
        finally:
            self._head_weights = None

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        length = _length(inputs)
        projected, mask = self._projected(inputs, length, padding_mask, sequence_ids, training)
        # (batch, length, heads, head_dim) -> (batch, length, hidden)
        joined = (-1, length, self.output_dim)
        if self.return_scores:
            rate = self.dropout if training else 0.0
            context, scores = attention_with_scores(
                projected, mask, dropout=rate, seed=self.seed_generator
            )
            return ops.reshape(self._weighed(context), joined), scores
        context = attention(
            projected, mask, dropout=self.dropout, seed=self.seed_generator, training=training
        )
        return ops.reshape(self._weighed(context), joined)

    def _weighed(self, context: Tensor) -> Tensor:
        """Multiplies heads `(batch, length, heads, head_dim)` by weights, if there are any."""
        if self._head_weights is None:
            return context
        return context * ops.cast(next(self._head_weights), context.dtype)[:, None, :, None]

    def probabilities(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
    ) -> Tensor:
        """Computes the attention probabilities alone, whether or not calls return them.

        Args:
            inputs: See the call arguments.
            padding_mask: See the call arguments.
            sequence_ids: See the call arguments.

        Returns:
            A tensor `(batch, heads, length, length)` in the compute dtype.
        """
        inputs = ops.cast(inputs, self.compute_dtype)
        projected, mask = self._projected(inputs, _length(inputs), padding_mask, sequence_ids)
        return attention_with_scores(projected, mask)[1]

    def _projected(
        self,
        inputs: Tensor,
        length: Tensor,
        padding_mask: Tensor,
        sequence_ids: Tensor,
        training: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Returns queries, keys and values `(batch, length, 3, heads, head_dim)`, and the mask."""
        _check_masks(inputs, padding_mask, sequence_ids)
        mask = _mask(padding_mask, sequence_ids, _causal_mask(length) if self.causal else None)

        # (batch, length, hidden) -> (batch * length, 3 * hidden): one matrix product
        hidden_dim = inputs.shape[-1]
        projected = self.query_key_value(ops.reshape(inputs, (-1, hidden_dim)), training=training)
        # -> (batch, length, 3, heads, head_dim)
        head_dim = self.output_dim // self.num_heads
        return ops.reshape(projected, (-1, length, 3, self.num_heads, head_dim)), mask

    def compute_output_spec(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        training: bool = False,
    ) -> Tensor:
        _check_masks(inputs, padding_mask, sequence_ids)
        shape = (*inputs.shape[:-1], self.output_dim)
        context = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if not self.return_scores:
            return context
        batch, length, _ = inputs.shape
        return context, keras.KerasTensor(
            (batch, self.num_heads, length, length), dtype=self.compute_dtype
        )

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "initializer_range": self.initializer_range,
            "causal": self.causal,
            "return_scores": self.return_scores,
            "head_dim": self.head_dim,
        }


def _length(inputs: Tensor) -> Tensor:
    """Returns the length of inputs `(batch, length, hidden)`, a tensor if it is not static."""
    return ops.shape(inputs)[1] if inputs.shape[1] is None else inputs.shape[1]


def _check_masks(inputs: Tensor, padding_mask: Tensor, sequence_ids: Tensor) -> None:
    for name, mask in {"padding_mask": padding_mask, "sequence_ids": sequence_ids}.items():
        if mask is not None:
            check_same_shape(name, mask.shape, inputs.shape[:2])


def _mask(padding_mask: Tensor, sequence_ids: Tensor, causal_mask: Tensor) -> Tensor:
    """Combines masks to an attention mask, True where a query may attend to a key.

    Returns:
        A bool tensor that can be broadcast to `(batch, 1, length, length)`; or `None`.
    """
    masks = [] if causal_mask is None else [causal_mask]
    if padding_mask is not None:
        # (batch, length) -> (batch, 1, 1, length): only keys are masked
        masks.append(ops.cast(padding_mask, "bool")[:, None, None, :])
    if sequence_ids is not None:
        masks.append(ops.equal(sequence_ids[:, None, :, None], sequence_ids[:, None, None, :]))
    return functools.reduce(ops.logical_and, masks) if masks else None


def _causal_mask(length: Tensor) -> Tensor:
    """Returns a bool tensor `(1, 1, length, length)`, True up to the position of the query."""
    positions = ops.arange(length)
    return (positions[:, None] >= positions)[None, None]

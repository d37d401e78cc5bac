# SPDX-License-Identifier: Apache-2.0
"""Pools token vectors to sentence embeddings, and token logits to sparse embeddings."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.checks import check_choice
from keras_bert.layers.base import Layer
from keras_bert.ops.annotations import Tensor

POOLINGS = ("mean", "cls")
SPARSE_POOLINGS = ("max", "sum")
SPARSE_ACTIVATIONS = ("relu", "log1p_relu")


def mean_of_tokens(inputs: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Returns the mean over the non-padding tokens, `(batch, hidden)`, summed in float32.

    It is 0 for an example without tokens.
    """
    if padding_mask is None:
        return ops.mean(inputs, axis=1)
    mask = ops.cast(ops.cast(padding_mask, "bool"), "float32")[:, :, None]
    total = ops.sum(ops.cast(inputs, "float32") * mask, axis=1)
    return ops.cast(total / ops.maximum(ops.sum(mask, axis=1), 1e-9), inputs.dtype)


@keras.saving.register_keras_serializable(package="keras_bert")
class SentencePooling(Layer):
    """Pools token vectors to one vector per example, in float32.

    Args:
        pooling: `"mean"` for the mean over the non-padding tokens, or `"cls"` for the first token's
            vector.
        normalize: Whether to scale vectors to unit L2 norm, so that dot products are cosine
            similarities.

    Call arguments:
        inputs: Float `(batch, length, hidden)`.
        padding_mask: Bool `(batch, length)`, False at padding. `None` for no padding.
        pooling_mask: Bool `(batch, length)`, True for the tokens to pool. Defaults to all tokens
            except padding. `"cls"` takes the first of them.

    Output shape:
        `(batch, hidden)`, float32.

    Raises:
        ValueError: If `pooling` is neither `"mean"` nor `"cls"`.

    Reference:
        [Sentence-BERT](https://arxiv.org/abs/1908.10084), section 3.
    """

    def __init__(self, pooling: str = "mean", normalize: bool = True, **kwargs: Any) -> None:
        if pooling not in POOLINGS:
            raise ValueError(f"pooling must be one of {', '.join(POOLINGS)}. Received: {pooling!r}")
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.pooling = pooling
        self.normalize = normalize

    def call(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        pooling_mask: Tensor | None = None,
    ) -> Tensor:
        vectors = self._pool(inputs, padding_mask, pooling_mask)
        return unit_vectors(vectors) if self.normalize else vectors

    def _pool(
        self, inputs: Tensor, padding_mask: Tensor | None, pooling_mask: Tensor | None
    ) -> Tensor:
        if self.pooling == "mean":
            return mean_of_tokens(inputs, padding_mask if pooling_mask is None else pooling_mask)
        if pooling_mask is None:
            return inputs[:, 0]
        first = ops.argmax(ops.cast(pooling_mask, "int32"), axis=1)[:, None, None]
        return ops.take_along_axis(inputs, first, axis=1)[:, 0]

    def compute_output_spec(
        self,
        inputs: Tensor,
        padding_mask: Tensor | None = None,
        pooling_mask: Tensor | None = None,
    ) -> keras.KerasTensor:
        return keras.KerasTensor((inputs.shape[0], inputs.shape[-1]), dtype="float32")


@keras.saving.register_keras_serializable(package="keras_bert")
class SpladePooling(Layer):
    """Pools a masked LM's logits to one non-negative weight per token in the vocabulary.

    A token's weight is the maximum, or the sum, of `log(1 + relu(logit))` over all positions except
    padding. Most weights are 0 in models that are trained for it.

    Args:
        pooling: `"max"` (SPLADE v2 and later) or `"sum"` (the first SPLADE).
        activation: `"relu"`, or `"log1p_relu"` to apply the logarithm twice.

    Call arguments:
        inputs: Logits `(batch, length, vocabulary)`.
        padding_mask: Bool `(batch, length)`, False at padding. `None` for no padding.

    Output shape:
        `(batch, vocabulary)`, float32.

    Raises:
        ValueError: If `pooling` or `activation` has an unsupported value.

    Reference:
        [SPLADE](https://arxiv.org/abs/2107.05720), section 3.2, `"sum"`;
        [SPLADE v2](https://arxiv.org/abs/2109.10086), section 3.1, `"max"`;
        [Exploring l0 sparsification](https://arxiv.org/abs/2504.14839), `"log1p_relu"`.
    """

    def __init__(self, pooling: str = "max", activation: str = "relu", **kwargs: Any) -> None:
        check_choice(SPARSE_POOLINGS, pooling=pooling)
        check_choice(SPARSE_ACTIVATIONS, activation=activation)
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.pooling = pooling
        self.activation = activation

    def call(self, inputs: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        if padding_mask is not None:
            # A logit of 0 has the smallest possible weight.
            inputs = ops.where(ops.cast(padding_mask, "bool")[:, :, None], inputs, 0.0)
        if self.pooling == "sum":
            return ops.sum(self._activate(inputs), axis=1)
        # The weight grows with the logit, so it is only computed for the largest logit.
        return self._activate(ops.amax(inputs, axis=1))

    def _activate(self, logits: Tensor) -> Tensor:
        # ONNX and LiteRT have no `log1p`. The results differ by less than 1e-7.
        weights = ops.log(1.0 + ops.relu(logits))
        return ops.log(1.0 + weights) if self.activation == "log1p_relu" else weights

    def compute_output_spec(
        self, inputs: Tensor, padding_mask: Tensor | None = None
    ) -> keras.KerasTensor:
        return keras.KerasTensor((inputs.shape[0], inputs.shape[-1]), dtype="float32")


def unit_vectors(vectors: Tensor) -> Tensor:
    """Scales vectors `(..., dimensions)` to unit L2 norm. Zeros stay zeros."""
    squares = ops.sum(ops.square(vectors), axis=-1, keepdims=True)
    # Apply the lower bound before the root, since the gradient of the root at 0 is not finite.
    return vectors * ops.rsqrt(ops.maximum(squares, 1e-24))

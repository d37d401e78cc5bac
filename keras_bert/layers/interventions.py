# SPDX-License-Identifier: Apache-2.0
"""Temporary changes and observations inside layers, in one thread only.

`keras_bert.insight` multiplies attention heads by weights to measure or remove them, and replaces
token embeddings to differentiate with respect to them. Calibration observes the inputs of matmuls.
Each intervention is a context manager and a function that the layer calls. It has no effect in
functions traced earlier, or traced by `torch.compile`.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence

import keras
from keras import ops

from keras_bert.ops import BatchLayout, take
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.object_variables import ObjectVariable

# An iterator over the head weights for each call to an attention layer
_head_weights = ObjectVariable("_head_weights")
_embeddings = ObjectVariable("_embeddings")
_observer = ObjectVariable("_observer")


def weigh_heads(
    attention: keras.layers.Layer, weights: Sequence[Tensor]
) -> contextlib.AbstractContextManager[None]:
    """Multiplies the output of each attention head by a weight.

    Args:
        attention: An `Attention`.
        weights: Float `(batch, heads)` or `(1, heads)` for each call to the layer in a pass through
            the encoder. A layer with shared weights is called multiple times.
    """
    return _head_weights.set(attention, itertools.cycle(weights))


def apply_head_weights(
    attention: keras.layers.Layer, context: Tensor, layout: BatchLayout
) -> Tensor:
    """Multiplies heads `(batch, length, heads, head_dim)` by the weights of `weigh_heads`."""
    weights_of_calls = _head_weights.get(attention)
    if weights_of_calls is None:
        return context
    weights = ops.cast(next(weights_of_calls), context.dtype)
    if layout.varlen is None or weights.shape[0] == 1:
        return context * weights[:, None, :, None]
    return context * take(weights, layout.varlen.row_ids)[None, :, :, None]


def replace_embeddings(
    token_embedding: keras.layers.Layer, vectors: Tensor
) -> contextlib.AbstractContextManager[None]:
    """Replaces the embeddings that a layer looks up.

    Args:
        token_embedding: A `TokenEmbedding`.
        vectors: Float `(batch, length, hidden)`, one vector for each token ID in the calls.
    """
    return _embeddings.set(token_embedding, vectors)


def replaced_embeddings(token_embedding: keras.layers.Layer) -> Tensor | None:
    """Returns the vectors set by `replace_embeddings`, or `None`."""
    return _embeddings.get(token_embedding)


def observe_inputs(
    dense: keras.layers.Layer, observer: Callable[[Tensor], None]
) -> contextlib.AbstractContextManager[None]:
    """Passes the inputs of a `Dense` layer to a function, before the matmul."""
    return _observer.set(dense, observer)


def report_inputs(dense: keras.layers.Layer, inputs: Tensor) -> None:
    """Passes inputs to the function set by `observe_inputs`, if any."""
    observer = _observer.get(dense)
    if observer is not None:
        observer(inputs)

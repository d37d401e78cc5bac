# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers on top of an encoder."""

from __future__ import annotations

import itertools
from typing import Any

import keras

from keras_bert.ops.annotations import Tensor


def bidirectional_lstm(
    x: Tensor,
    padding_mask: Tensor | None = None,
    *,
    num_layers: int = 2,
    units: int = 768,
    return_sequences: bool = False,
) -> Tensor:
    """LSTMs in both directions, layer on layer, with fresh weights.

    They compute in float32, whatever the encoder's precision: rounding adds up over steps. Their
    layers are named `bilstm_0`, `bilstm_1`, …

    Args:
        x: Symbolic, `(batch, length, hidden)`.
        padding_mask: Symbolic bool `(batch, length)`, False at padding, or `None` for none. A
            state passes padding by unchanged. An optional input that is left out is no mask.
        num_layers: How many stand on each other.
        units: Width of each direction.
        return_sequences: Whether to return the states at all tokens.

    Returns:
        Symbolic float32 `(batch, 2 * units)`: the forward state after the last token beside the
        backward one after the first; with `return_sequences` `(batch, length, 2 * units)`.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.1, "+ BiLSTM", and section 5.3.
    """
    for index in range(num_layers):
        layer = keras.layers.Bidirectional(
            keras.layers.LSTM(
                units,
                return_sequences=return_sequences or index < num_layers - 1,
                dtype="float32",
            ),
            dtype="float32",
            name=bilstm_name(index),
        )
        x = layer(x, mask=padding_mask)
    return x


def bilstm_options(units: int, num_layers: int) -> dict[str, int]:
    """What a task is to keep of its BiLSTM: arguments of the class; nothing where there is none.

    Args:
        units: Width of each direction; 0 for none.
        num_layers: How many stand on each other.

    Raises:
        ValueError: If one of them is too small.
    """
    if units < 0 or num_layers < 1:
        raise ValueError(
            f"bilstm_units is {units} and bilstm_layers {num_layers}; expected at least 0 (for "
            "none) and 1."
        )
    return {"bilstm_units": units, "bilstm_layers": num_layers} if units else {}


def bilstm_heads(model: keras.Model) -> dict[str, Any]:
    """The BiLSTM's layers in a model, by the names that checkpoints know them by."""
    names = {layer.name for layer in model.layers}
    indices = itertools.takewhile(lambda index: bilstm_name(index) in names, itertools.count())
    return {bilstm_name(index): model.get_layer(bilstm_name(index)) for index in indices}


def bilstm_name(index: int) -> str:
    """The name of a layer of `bidirectional_lstm`, and of its weights in checkpoints."""
    return f"bilstm_{index}"

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
    """Applies a stack of bidirectional LSTM layers with newly initialized weights.

    They are computed in float32 under any dtype policy, since rounding errors accumulate over
    steps. The layers are named `bilstm_0`, `bilstm_1`, …

    Args:
        x: Symbolic float tensor `(batch, length, hidden)`.
        padding_mask: Symbolic bool tensor `(batch, length)`, False at padding, where the state does
            not change; `None` without padding. An optional input that is not passed is no mask.
        num_layers: Number of layers.
        units: Number of units of each direction.
        return_sequences: Whether to return the states at all tokens.

    Returns:
        A symbolic float32 tensor `(batch, 2 * units)`: the forward state after the last token,
        concatenated with the backward state after the first one. With `return_sequences`,
        `(batch, length, 2 * units)`.

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
    """Returns the arguments of a task's BiLSTM for its config; an empty dict without one.

    Args:
        units: Number of units of each direction; 0 for no BiLSTM.
        num_layers: Number of layers.

    Raises:
        ValueError: If `units` is negative or `num_layers` below 1.
    """
    if units < 0 or num_layers < 1:
        raise ValueError(
            f"bilstm_units is {units} and bilstm_layers {num_layers}; expected at least 0 (no "
            "BiLSTM) and 1."
        )
    return {"bilstm_units": units, "bilstm_layers": num_layers} if units else {}


def bilstm_heads(model: keras.Model) -> dict[str, Any]:
    """Returns the BiLSTM layers of a model by their names in checkpoints."""
    names = {layer.name for layer in model.layers}
    indices = itertools.takewhile(lambda index: bilstm_name(index) in names, itertools.count())
    return {bilstm_name(index): model.get_layer(bilstm_name(index)) for index in indices}


def bilstm_name(index: int) -> str:
    """Returns the name of a layer of `bidirectional_lstm`, and of its weights in checkpoints."""
    return f"bilstm_{index}"

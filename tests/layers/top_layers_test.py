# SPDX-License-Identifier: Apache-2.0
"""Bidirectional LSTMs match NumPy, row by row and step by step."""

import keras
import numpy as np
import pytest

from keras_bert.layers.pooling import SentencePooling
from keras_bert.layers.top_layers import apply_layers, bidirectional_lstm, top_layer_options
from keras_bert.ops import dispatch
from tests.models.small_backbone import random_weights, to_numpy

# On a GPU, cuDNN's LSTM on PyTorch computes in TF32.
ATOL = 1e-4 if dispatch.cuda_capability() else 1e-5
LENGTHS = [5, 3, 1]
X = np.random.default_rng(0).normal(size=(3, 5, 4)).astype("float32")
MASK = np.arange(5) < np.array(LENGTHS)[:, None]


def make_inputs():
    x = keras.Input((None, 4), name="x")
    return x, keras.Input((None,), dtype="bool", name="mask", optional=True)


def make_model(**options):
    x, mask = make_inputs()
    outputs = apply_layers(bidirectional_lstm(units=3, **options), x, mask)
    model = keras.Model({"x": x, "mask": mask}, outputs)
    random_weights(model)
    return model


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def compute_states(x, cell):
    """Returns the states `(length, units)` of one row."""
    kernel, recurrent, bias = (np.asarray(weight, "float64") for weight in cell.get_weights())
    hidden = carry = np.zeros(len(recurrent))
    result = []
    for token in x:
        gates = np.split(token @ kernel + hidden @ recurrent + bias, 4)
        carry = sigmoid(gates[1]) * carry + sigmoid(gates[0]) * np.tanh(gates[2])
        hidden = sigmoid(gates[3]) * np.tanh(carry)
        result.append(hidden)
    return np.stack(result)


def expected_states(model, x, num_layers):
    """Returns an unpadded row's first and last states, and the states of all its tokens."""
    for index in range(num_layers):
        layer = model.get_layer(f"bilstm_{index}")
        forward = compute_states(x, layer.forward_layer.cell)
        backward = compute_states(x[::-1], layer.backward_layer.cell)[::-1]
        x = np.concatenate([forward, backward], -1)
    return np.concatenate([forward[-1], backward[0]]), x


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(
            lambda: [keras.layers.GlobalMaxPooling1D()],
            marks=pytest.mark.on_torch,
            id="maximum",
        ),
        pytest.param(
            lambda: [keras.layers.Conv1D(3, 4, padding="same"), keras.layers.GlobalMaxPooling1D()],
            marks=pytest.mark.on_torch,
            id="convolution",
        ),
        pytest.param(
            lambda: [
                keras.layers.Conv1D(3, 2, padding="causal"),
                keras.layers.Conv1D(3, 3, padding="same"),
                keras.layers.GlobalAveragePooling1D(),
            ],
            id="convolutions",
        ),
    ],
)
def test_outputs_ignore_padding(make):
    x, mask = make_inputs()
    model = keras.Model(
        {"x": x, "mask": mask}, apply_layers([keras.layers.Dense(3), *make()], x, mask)
    )
    random_weights(model)
    # Padding values are larger than token values, but must not matter.
    padded = to_numpy(model({"x": np.where(MASK[:, :, None], X, 9.0), "mask": MASK}))
    for row, length in enumerate(LENGTHS):
        unpadded = model({"x": X[row : row + 1, :length], "mask": None})
        np.testing.assert_allclose(padded[row], to_numpy(unpadded)[0], atol=ATOL)


@pytest.mark.on_tensorflow
@pytest.mark.filterwarnings("ignore:.*does not support masking")
@pytest.mark.parametrize(
    "layer",
    [
        keras.layers.Conv1D(3, 2),
        keras.layers.MaxPooling1D(),
        keras.layers.Flatten(),
        keras.layers.GroupNormalization(groups=2),
        keras.layers.UnitNormalization(axis=1),
        keras.layers.Lambda(lambda x: x - keras.ops.mean(x, axis=1, keepdims=True)),
        keras.layers.Lambda(lambda x: x + np.zeros((5, 1), "float32")),
    ],
)
def test_layers_that_read_padding_raise(layer):
    with pytest.raises(
        ValueError,
        match=f"must not depend on the amount of padding. Received: {type(layer).__name__}",
    ):
        apply_layers([layer], *make_inputs())


@pytest.mark.parametrize("num_layers", [1, 2])
def test_lstm_states_match_numpy(num_layers):
    model = make_model(num_layers=num_layers)
    padded = to_numpy(model({"x": X, "mask": MASK}))
    whole = to_numpy(model({"x": X, "mask": None}))
    for row, length in enumerate(LENGTHS):
        np.testing.assert_allclose(
            padded[row], expected_states(model, X[row, :length], num_layers)[0], atol=ATOL
        )
        np.testing.assert_allclose(
            whole[row], expected_states(model, X[row], num_layers)[0], atol=ATOL
        )


def test_lstm_sequences_match_numpy():
    model = make_model(return_sequences=True)
    outputs = to_numpy(model({"x": X, "mask": MASK}))
    for row, length in enumerate(LENGTHS):
        _, sequence = expected_states(model, X[row, :length], 2)
        np.testing.assert_allclose(outputs[row, :length], sequence, atol=ATOL)


def test_top_layer_options_of_known_layers():
    assert top_layer_options([]) == {}
    for whole in (False, True):
        layers = bidirectional_lstm(3, 2, return_sequences=whole)
        assert top_layer_options(layers) == {"bilstm_units": 3, "bilstm_layers": 2}
    pooling = {"pooling": "cls", "normalize": False}
    assert top_layer_options([SentencePooling(**pooling)]) == pooling
    assert top_layer_options([keras.layers.Dense(3)]) is None
    assert top_layer_options([*bidirectional_lstm(3, 1), keras.layers.Dense(3)]) is None
    other = keras.layers.Bidirectional(keras.layers.LSTM(3, recurrent_dropout=0.5), name="bilstm_0")
    assert top_layer_options([other]) is None

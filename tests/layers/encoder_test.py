# SPDX-License-Identifier: Apache-2.0
"""The transformer block against a NumPy implementation."""

import keras
import numpy as np
import pytest

from keras_bert.config import ACTIVATIONS, BertConfig
from keras_bert.layers import BiasActivation, BiasResidualNorm, TransformerBlock
from tests.models import numpy_bert
from tests.models.small_backbone import random_weights, to_numpy

X = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
MASK = np.arange(5) < np.array([[5], [3], [1]])
# So high that every value is dropped, and a value that is not would be noticed
ALL = 1 - 1e-7


def block(**arguments) -> TransformerBlock:
    layer = TransformerBlock(2, 12, name="layer_0", **arguments)
    layer(X)
    random_weights(layer)
    return layer


def expected(layer: TransformerBlock, mask=None):
    config = BertConfig(num_heads=2, hidden_dim=8, intermediate_dim=12, activation=layer.activation)
    return numpy_bert.block(X, numpy_bert.weights_of(layer), "layer_0", config, mask)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_agrees_with_numpy(activation):
    layer = block(activation=activation)
    output = to_numpy(layer(X, padding_mask=MASK))
    np.testing.assert_allclose(output, expected(layer, MASK)[0], atol=1e-5)


def test_returns_scores():
    layer = block(return_scores=True)
    output, scores = layer(X, padding_mask=MASK)
    np.testing.assert_allclose(to_numpy(output), expected(layer, MASK)[0], atol=1e-5)
    np.testing.assert_allclose(to_numpy(scores), expected(layer, MASK)[1], atol=1e-5)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX has float64 as a global switch")
def test_float64_is_computed_in_float64():
    layer = block(dtype="float64")
    output = keras.ops.convert_to_numpy(layer(X.astype("float64"), padding_mask=MASK))
    assert output.dtype == "float64"
    np.testing.assert_allclose(output, expected(layer, MASK)[0], atol=1e-6)


def test_the_two_gelus_differ():
    layer = BiasActivation("gelu_erf")
    exact, approximate = layer(X), BiasActivation("gelu_tanh")(X)
    difference = abs(to_numpy(exact) - to_numpy(approximate)).max()
    assert 1e-4 < difference < 1e-3


def test_without_dropout_training_changes_nothing():
    layer = block()
    np.testing.assert_allclose(to_numpy(layer(X, training=True)), to_numpy(layer(X)), atol=1e-6)


def test_dropout_falls_on_the_output_of_both_sublayers_and_nothing_else():
    layer = block(dropout=ALL)
    weights = numpy_bert.weights_of(layer)
    inner = numpy_bert.layer_norm(
        X, weights["layer_0/attention_norm/gamma"], weights["layer_0/attention_norm/beta"]
    )
    outer = numpy_bert.layer_norm(
        inner, weights["layer_0/feed_forward_norm/gamma"], weights["layer_0/feed_forward_norm/beta"]
    )
    np.testing.assert_allclose(to_numpy(layer(X, training=True)), outer, atol=1e-5)


def test_attention_dropout_falls_on_the_probabilities():
    layer = block(attention_dropout=ALL)
    without_context = block()
    kernel = without_context.attention_output.kernel
    kernel.assign(np.zeros(kernel.shape))
    np.testing.assert_allclose(
        to_numpy(layer(X, training=True)), to_numpy(without_context(X)), atol=1e-5
    )


def test_what_dropout_keeps_is_scaled_up():
    layer = BiasResidualNorm(dropout=0.5, epsilon=1e-3)
    zeros, ones = np.zeros((400, 8), "float32"), np.ones((400, 8), "float32")
    layer(ones, zeros)
    layer.gamma.assign(np.full(8, 2.0))
    # Rows of ones become rows of 0 and 2 in equal shares: mean 1 and deviation 1 on average
    output = to_numpy(layer(ones, zeros, training=True))
    assert set(np.sign(output).flat) == {-1, 0, 1}
    assert abs((output > 0).mean() - 0.5) < 0.05


def test_the_mask_reaches_attention():
    layer = block()
    other = X.copy()
    other[~MASK] = 9.0
    real, padded = to_numpy(layer(X, padding_mask=MASK)), to_numpy(layer(other, padding_mask=MASK))
    np.testing.assert_allclose(padded[MASK], real[MASK], atol=1e-5)

# SPDX-License-Identifier: Apache-2.0
"""The transformer block against a NumPy implementation."""

import keras
import numpy as np
import pytest

from keras_bert.config import ACTIVATIONS, BertConfig
from keras_bert.layers import Attention, FeedForward, Norm, TransformerBlock
from keras_bert.ops import bias_activation, bias_dropout_residual_norm
from tests.models import numpy_bert
from tests.models.small_backbone import layout_of, random_weights, to_numpy

X = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
MASK = np.arange(5) < np.array([[5], [3], [1]])
# So high that every value is dropped, and a value that is not would be noticed
ALL = 1 - 1e-7


def block(dtype="float32", activation="gelu_erf", dropout=0.0, **attention) -> TransformerBlock:
    layer = TransformerBlock(
        Attention(2, dtype=dtype, name="attention", **attention),
        Norm(dtype=dtype, name="attention_norm"),
        FeedForward(12, activation, dtype=dtype, name="feed_forward"),
        Norm(dtype=dtype, name="feed_forward_norm"),
        dropout=dropout,
        dtype=dtype,
        name="layer_0",
    )
    layer(X)
    random_weights(layer)
    return layer


def expected(layer: TransformerBlock, mask=None):
    config = BertConfig(
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        num_layers=1,
        activation=layer.feed_forward.activation,
    )
    return numpy_bert.block(X, numpy_bert.weights_of(layer), "layer_0", config, mask)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_agrees_with_numpy(activation):
    layer = block(activation=activation)
    output = to_numpy(layer(X, layout_of(padding_mask=MASK)))
    np.testing.assert_allclose(output, expected(layer, MASK)[0], atol=1e-5)


def test_returns_scores():
    layer = block(return_scores=True)
    output, scores = layer(X, layout_of(padding_mask=MASK))
    np.testing.assert_allclose(to_numpy(output), expected(layer, MASK)[0], atol=1e-5)
    np.testing.assert_allclose(to_numpy(scores), expected(layer, MASK)[1], atol=1e-5)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX has float64 as a global switch")
def test_float64_is_computed_in_float64():
    layer = block(dtype="float64")
    output = keras.ops.convert_to_numpy(layer(X.astype("float64"), layout_of(padding_mask=MASK)))
    assert output.dtype == "float64"
    np.testing.assert_allclose(output, expected(layer, MASK)[0], atol=1e-6)


def test_the_two_gelus_differ():
    exact, approximate = (
        bias_activation(keras.ops.convert_to_tensor(X), np.zeros(8, "float32"), name)
        for name in ("gelu_erf", "gelu_tanh")
    )
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
    layer = block(dropout=0.0)
    layer.attention.dropout = ALL
    without_context = block()
    kernel = without_context.attention.output_projection.kernel
    kernel.assign(np.zeros(kernel.shape))
    np.testing.assert_allclose(
        to_numpy(layer(X, training=True)), to_numpy(without_context(X)), atol=1e-5
    )


def test_dropout_scales_the_other_elements_up():
    zeros, ones = np.zeros((400, 8), "float32"), np.ones((400, 8), "float32")
    weights = (zeros[0], np.full(8, 2.0, "float32"), zeros[0])
    # Rows of ones become rows of 0 and 2 in equal shares: mean 1 and deviation 1 on average
    output = bias_dropout_residual_norm(
        *map(keras.ops.convert_to_tensor, (ones, zeros, *weights)),
        epsilon=1e-3,
        dropout=0.5,
        seed=keras.random.SeedGenerator(0),
        training=True,
    )
    output = to_numpy(output)
    # 0 if all of a row are dropped, or none
    assert {-1, 1} <= set(np.sign(output).flat) <= {-1, 0, 1}
    assert abs((output > 0).mean() - 0.5) < 0.05


def test_the_mask_reaches_attention():
    layer = block()
    other = X.copy()
    other[~MASK] = 9.0
    real, padded = (
        to_numpy(layer(X, layout_of(padding_mask=MASK))),
        to_numpy(layer(other, layout_of(padding_mask=MASK))),
    )
    np.testing.assert_allclose(padded[MASK], real[MASK], atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"norm_placement": "middle"}, "norm_placement is 'middle'; it must be post or pre"),
        ({"attention_norm": None}, "attention_norm is None"),
    ],
)
def test_a_block_needs_its_parts(arguments, message):
    parts = {
        "attention": Attention(2),
        "attention_norm": Norm(),
        "feed_forward": FeedForward(12),
        "feed_forward_norm": Norm(),
    }
    with pytest.raises(ValueError, match=message):
        TransformerBlock(**{**parts, **arguments})

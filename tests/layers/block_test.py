# SPDX-License-Identifier: Apache-2.0
"""The transformer block against a NumPy implementation."""

import keras
import numpy as np
import pytest

from keras_bert.config import ACTIVATIONS, BertConfig
from keras_bert.layers import Attention, FeedForward, Norm, TransformerBlock
from keras_bert.ops import bias_activation
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


def test_the_two_gelus_differ():
    exact, approximate = (
        bias_activation(keras.ops.convert_to_tensor(X), np.zeros(8, "float32"), name)
        for name in ("gelu_erf", "gelu_tanh")
    )
    difference = abs(to_numpy(exact) - to_numpy(approximate)).max()
    assert 1e-4 < difference < 1e-3


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

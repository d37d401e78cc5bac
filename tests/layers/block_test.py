# SPDX-License-Identifier: Apache-2.0
"""Dropout in a transformer block, and its required parts.

tests/models/parts_test.py compares its outputs with NumPy.
"""

import numpy as np
import pytest

from keras_bert.layers import Attention, FeedForward, Norm, TransformerBlock
from tests.models import numpy_bert
from tests.models.small_backbone import random_weights, to_numpy

X = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
# This rate drops all values, so a value that is kept is noticed.
ALL = 1 - 1e-7


def make_block(dropout=0.0) -> TransformerBlock:
    layer = TransformerBlock(
        Attention(2, name="attention"),
        Norm(name="attention_norm"),
        FeedForward(12, name="feed_forward"),
        Norm(name="feed_forward_norm"),
        dropout=dropout,
        name="layer_0",
    )
    layer(X)
    random_weights(layer)
    return layer


def test_dropout_applies_to_sublayer_outputs():
    layer = make_block(dropout=ALL)
    weights = numpy_bert.get_weights(layer)
    inner = numpy_bert.layer_norm(
        X, weights["layer_0/attention_norm/gamma"], weights["layer_0/attention_norm/beta"]
    )
    outer = numpy_bert.layer_norm(
        inner, weights["layer_0/feed_forward_norm/gamma"], weights["layer_0/feed_forward_norm/beta"]
    )
    np.testing.assert_allclose(to_numpy(layer(X, training=True)), outer, atol=1e-5)


def test_attention_dropout_applies_to_probabilities():
    layer = make_block(dropout=0.0)
    layer.attention.dropout = ALL
    without_context = make_block()
    kernel = without_context.attention.output_projection.kernel
    kernel.assign(np.zeros(kernel.shape))
    np.testing.assert_allclose(
        to_numpy(layer(X, training=True)), to_numpy(without_context(X)), atol=1e-5
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"norm_placement": "middle"}, "norm_placement must be post or pre"),
        ({"attention_norm": None}, "attention_norm is required"),
    ],
)
def test_invalid_block_parts_raise(arguments, message):
    parts = {
        "attention": Attention(2),
        "attention_norm": Norm(),
        "feed_forward": FeedForward(12),
        "feed_forward_norm": Norm(),
    }
    with pytest.raises(ValueError, match=message):
        TransformerBlock(**{**parts, **arguments})

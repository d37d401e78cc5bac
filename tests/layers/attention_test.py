# SPDX-License-Identifier: Apache-2.0
"""Self-attention: masks, dropout and windows. parts_test.py compares it with NumPy."""

import numpy as np
import pytest

from keras_bert.config import BertConfig
from keras_bert.layers import Attention
from keras_bert.ops import BatchLayout, dispatch
from tests.models import numpy_bert
from tests.models.small_backbone import make_layout, random_weights, to_numpy

# The GPU kernel adds in a different order.
ATOL = 5e-5 if dispatch.cuda_capability() else 1e-5
X = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
MASK = np.arange(5) < np.array([[5], [3], [1]])


def make_attention(**arguments) -> Attention:
    layer = Attention(**{"num_heads": 2, "name": "attention"} | arguments)
    layer.build(X.shape)
    random_weights(layer, stddev=1.0)
    return layer


def compute_expected(layer: Attention, mask):
    config = BertConfig(num_heads=layer.num_heads, hidden_dim=8)
    return numpy_bert.attention(X, numpy_bert.get_weights(layer), "attention", config, mask)


def test_dropout_applies_to_probabilities_in_training():
    layer = make_attention(dropout=0.5, return_scores=True)
    context, scores = layer(X, training=True)
    # The scores are returned before dropout.
    np.testing.assert_allclose(to_numpy(scores), compute_expected(layer, None)[1], atol=1e-5)
    assert abs(to_numpy(context) - to_numpy(layer(X)[0])).max() > 0.1
    layer.return_scores = False
    assert abs(to_numpy(layer(X, training=True)) - to_numpy(layer(X))).max() > 0.1
    np.testing.assert_allclose(to_numpy(layer(X)), compute_expected(layer, None)[0], atol=ATOL)


@pytest.mark.parametrize(
    ("length", "arguments"),
    [
        pytest.param(5, {}, marks=pytest.mark.on_torch),
        (300, {}),
        (300, {"causal": True}),
        pytest.param(300, {"num_key_value_heads": 1}, marks=pytest.mark.on_torch),
    ],
)
def test_window_outputs_match_with_scores(length, arguments):
    """Without `return_scores`, the scores of distant tokens are not computed."""
    layer = make_attention(window=3, **arguments)
    x = np.random.default_rng(1).normal(size=(2, length, 8)).astype("float32")
    masks = {
        "padding_mask": np.arange(length) < [[length], [length - 2]],
        "sequence_ids": (np.arange(length) >= length // 2).repeat(2).reshape(length, 2).T + 1,
    }
    for layout in (BatchLayout(), make_layout(**masks)):
        outputs = to_numpy(layer(x, layout=layout))
        layer.return_scores = True
        expected, scores = layer(x, layout=layout)
        layer.return_scores = False
        assert not to_numpy(scores)[
            :, :, np.abs(np.subtract.outer(*[np.arange(length)] * 2)) > 3
        ].any()
        np.testing.assert_allclose(outputs, to_numpy(expected), rtol=1e-5, atol=ATOL)


def test_heads_must_divide_hidden_dim():
    with pytest.raises(ValueError, match="num_heads must divide the hidden dimension 8"):
        Attention(3)(X)

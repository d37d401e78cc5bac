# SPDX-License-Identifier: Apache-2.0
"""Rematerialized blocks train like blocks that store their results."""

import keras
import numpy as np
import pytest

from keras_bert.layers import Attention, FeedForward, Norm, TransformerBlock
from keras_bert.models import Backbone
from tests.models.parts_test import RELATIVE
from tests.models.small_backbone import SMALL, features
from tests.ops.backend_gradients import as_tensors, value_and_gradients

MODERN = SMALL.replace(
    positions="rotary",
    attention_window=2,
    global_attention_every=2,
    feed_forward="gated",
    norm_placement="pre",
    first_attention_norm=False,
    position_offset=0,
)


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        pytest.param(SMALL, "float32", marks=pytest.mark.on_torch),
        pytest.param(MODERN, "float32", marks=pytest.mark.on_torch),
        pytest.param(SMALL, "mixed_bfloat16", marks=pytest.mark.on_torch),
        (SMALL.replace(**RELATIVE["deberta"]), "float32"),
    ],
)
def test_rematerialization_keeps_trained_weights(config, dtype):
    """Both passes must drop the same values."""

    def train(rematerialize):
        keras.utils.set_random_seed(1)
        backbone = Backbone(config, dtype=dtype, rematerialize=rematerialize)
        model = keras.Model(backbone.input, backbone.output["pooled_output"])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.fit(features(), np.ones((3, 16)), batch_size=3, epochs=3, verbose=0)
        return {variable.path: variable.numpy() for variable in model.trainable_variables}

    tolerance = 1e-5 if dtype == "float32" else 5e-3
    stored, rematerialized = train(False), train(True)
    for path, expected in stored.items():
        np.testing.assert_allclose(rematerialized[path], expected, atol=tolerance, err_msg=path)


class CountedFeedForward(FeedForward):
    calls = 0

    def call(self, *args, **kwargs):
        self.calls += 1
        return super().call(*args, **kwargs)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX repeats what it traced once")
@pytest.mark.parametrize("rematerialize", [False, True])
def test_rematerializes_only_in_training(rematerialize):
    feed_forward = CountedFeedForward(16)
    block = TransformerBlock(
        Attention(2), Norm(), feed_forward, Norm(), rematerialize=rematerialize
    )
    x, upstream = as_tensors(np.random.default_rng(0).normal(size=(2, 1, 3, 8)), "float32")
    block(x)
    feed_forward.calls = 0
    block(x)
    assert feed_forward.calls == 1
    value_and_gradients(lambda x: block(x, training=True), [x], upstream)
    assert feed_forward.calls == (3 if rematerialize else 2)

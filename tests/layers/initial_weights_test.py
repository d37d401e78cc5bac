# SPDX-License-Identifier: Apache-2.0
"""Which weights are initialized while a checkpoint is loaded."""

import keras
import numpy as np
import pytest

from keras_bert import Backbone
from keras_bert.layers import Attention
from keras_bert.layers.initial_weights import TruncatedNormal, skip_initial_weights
from tests.models.small_backbone import SMALL


class BackboneWithExtraLayer(Backbone):
    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.extra_layer = Attention(num_heads=2)
        self.extra_layer.build((None, None, config.hidden_dim))


def is_initialized(weight) -> bool:
    return bool(np.any(keras.ops.convert_to_numpy(weight)))


def list_kernels(layer):
    return [weight for weight in layer.weights if len(weight.shape) > 1]


@pytest.mark.parametrize("is_loading", [True, False])
def test_loaded_weights_are_not_initialized(is_loading):
    with skip_initial_weights(is_loading):
        encoder = BackboneWithExtraLayer(SMALL)
    loaded_layers = [encoder.token_embedding, encoder.embeddings, *encoder.blocks]
    initialized = {
        is_initialized(weight) for layer in loaded_layers for weight in list_kernels(layer)
    }
    assert initialized == {not is_loading}
    for layer in (encoder.pooler, encoder.extra_layer):
        assert all(map(is_initialized, list_kernels(layer)))
    assert all(map(is_initialized, list_kernels(BackboneWithExtraLayer(SMALL))))


def test_truncated_normal_matches_keras():
    values = [
        keras.ops.convert_to_numpy(cls(stddev=0.02, seed=3)((4, 5), "float32"))
        for cls in (TruncatedNormal, keras.initializers.TruncatedNormal)
    ]
    np.testing.assert_array_equal(*values)

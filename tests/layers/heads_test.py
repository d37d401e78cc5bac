# SPDX-License-Identifier: Apache-2.0
"""Pooler, classifier and masked-LM head against NumPy."""

import numpy as np
import pytest

from keras_bert.layers import (
    ClassificationHead,
    MaskedLMTransform,
    Pooler,
    TokensAt,
    VocabularyBias,
)
from tests.models import numpy_bert
from tests.models.small_backbone import random_weights, to_numpy

X = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
POSITIONS = np.array([[0, 4], [2, 2], [3, 0]], "int32")


def test_pooler_takes_the_first_token():
    layer = Pooler()
    layer.build(X.shape)
    random_weights(layer)
    kernel, bias = layer.get_weights()
    np.testing.assert_allclose(to_numpy(layer(X)), np.tanh(X[:, 0] @ kernel + bias), atol=1e-6)


@pytest.mark.parametrize("num_classes", [1, 4])
def test_classifier(num_classes):
    layer = ClassificationHead(num_classes)
    layer.build((None, 8))
    random_weights(layer)
    kernel, bias = layer.get_weights()
    np.testing.assert_allclose(to_numpy(layer(X[:, 0])), X[:, 0] @ kernel + bias, atol=1e-6)


@pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16", "mixed_float16"])
def test_logits_are_float32_under_any_policy(policy):
    for layer in (ClassificationHead(3, dtype=policy), VocabularyBias(dtype=policy)):
        assert "float32" in str(layer(X[:, 0].astype("float16")).dtype)
        assert {v.dtype for v in layer.weights} == {"float32"}


def test_classifier_drops_its_input_in_training_alone():
    layer = ClassificationHead(4, dropout=1 - 1e-7)
    layer.build((None, 8))
    random_weights(layer)
    bias = np.broadcast_to(layer.dense.bias.numpy(), (3, 4))
    np.testing.assert_allclose(to_numpy(layer(X[:, 0], training=True)), bias, atol=1e-6)
    assert abs(to_numpy(layer(X[:, 0])) - bias).max() > 0.1


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_tokens_at(dtype):
    expected = np.stack([row[at] for row, at in zip(X, POSITIONS, strict=True)])
    np.testing.assert_array_equal(to_numpy(TokensAt()(X, POSITIONS.astype(dtype))), expected)


@pytest.mark.parametrize("activation", ["gelu_erf", "gelu_tanh"])
def test_masked_lm_transform(activation):
    layer = MaskedLMTransform(activation)
    layer.build(X.shape)
    random_weights(layer)
    kernel, bias = layer.dense.get_weights()
    expected = numpy_bert.layer_norm(
        numpy_bert.ACTIVATIONS[activation](X @ kernel + bias),
        layer.gamma.numpy(),
        layer.beta.numpy(),
    )
    np.testing.assert_allclose(to_numpy(layer(X)), expected, atol=1e-5)


def test_vocabulary_bias():
    layer = VocabularyBias()
    layer.build(X.shape)
    layer.bias.assign(np.arange(8))
    np.testing.assert_allclose(to_numpy(layer(X)), X + np.arange(8), atol=1e-6)

# SPDX-License-Identifier: Apache-2.0
"""Dtypes and dropout of heads. pretrainer_test.py and parts_test.py compare them with NumPy."""

import numpy as np
import pytest

from keras_bert.layers import (
    ClassificationHead,
    GatherTokens,
    VocabularyBias,
)
from tests.models.small_backbone import random_weights, to_numpy

X = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")
POSITIONS = np.array([[0, 4], [2, 2], [3, 0]], "int32")


@pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16", "mixed_float16"])
def test_logits_are_float32_under_any_policy(policy):
    for layer in (ClassificationHead(3, dtype=policy), VocabularyBias(dtype=policy)):
        assert "float32" in str(layer(X[:, 0].astype("float16")).dtype)
        assert {v.dtype for v in layer.weights} == {"float32"}


def test_classifier_dropout_only_in_training():
    layer = ClassificationHead(4, dropout=1 - 1e-7)
    layer.build((None, 8))
    random_weights(layer)
    bias = np.broadcast_to(layer.dense.bias.numpy(), (3, 4))
    np.testing.assert_allclose(to_numpy(layer(X[:, 0], training=True)), bias, atol=1e-6)
    assert abs(to_numpy(layer(X[:, 0])) - bias).max() > 0.1


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_gather_tokens(dtype):
    expected = np.stack([row[index] for row, index in zip(X, POSITIONS, strict=True)])
    np.testing.assert_array_equal(to_numpy(GatherTokens()(X, POSITIONS.astype(dtype))), expected)

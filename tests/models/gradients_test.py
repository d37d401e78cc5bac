# SPDX-License-Identifier: Apache-2.0
"""Gradients of all variables in Keras's training step match finite differences."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.models import Backbone
from keras_bert.tasks import Pretrainer
from tests.models import numpy_bert
from tests.models.small_backbone import SMALL, WITHOUT_DROPOUT, features, random_weights

POSITIONS = np.array([[0, 6, 3], [1, 2, 0], [1, 0, 0]], "int32")
INPUTS = {**features(), "mask_positions": POSITIONS}
# The loss is a random combination of the squares of all logits, so all logits influence it. If
# gradients did not depend on values, TensorFlow's graph optimizer could update a weight before the
# forward pass reads it.
COMBINATION = {
    "masked_lm_logits": np.random.default_rng(1).normal(size=(3, 3, 50)).astype("float32") / 50,
    "next_sentence_logits": np.random.default_rng(2).normal(size=(3, 2)).astype("float32"),
}


def combine(coefficients, logits):
    return ops.sum(coefficients * ops.square(logits))


def compute_gradients(model: Pretrainer, inputs=INPUTS) -> dict[str, np.ndarray]:
    """Computes gradients with a step of gradient descent at learning rate 1."""
    before = numpy_bert.get_weights(model)
    if not model.compiled:
        model.compile(
            keras.optimizers.SGD(1.0), loss=dict.fromkeys(COMBINATION, combine), metrics=[]
        )
    model.train_on_batch(inputs, COMBINATION)
    after = numpy_bert.get_weights(model)
    model.set_weights(list(before.values()))
    return {path: before[path] - after[path] for path in before}


def numpy_loss(weights: numpy_bert.Weights) -> float:
    encoded = numpy_bert.encoder(weights, WITHOUT_DROPOUT, INPUTS)
    masked_lm = numpy_bert.masked_lm_logits(
        weights, WITHOUT_DROPOUT, encoded["sequence_output"], POSITIONS
    )
    next_sentence = numpy_bert.next_sentence_logits(weights, encoded["pooled_output"])
    return (COMBINATION["masked_lm_logits"] * masked_lm**2).sum() + (
        COMBINATION["next_sentence_logits"] * next_sentence**2
    ).sum()


@pytest.fixture(scope="module")
def model() -> Pretrainer:
    model = Pretrainer(Backbone(WITHOUT_DROPOUT))
    random_weights(model)
    return model


@pytest.fixture(scope="module")
def model_gradients(model) -> dict[str, np.ndarray]:
    return compute_gradients(model)


def test_gradients_match_finite_differences(model, model_gradients):
    weights = numpy_bert.get_weights(model)
    random = np.random.default_rng(0)
    for path, gradient in model_gradients.items():
        direction = random.normal(size=gradient.shape)
        losses = [
            numpy_loss({**weights, path: weights[path] + step * direction})
            for step in (1e-5, -1e-5)
        ]
        expected = (losses[0] - losses[1]) / 2e-5
        scale = np.linalg.norm(gradient)
        np.testing.assert_allclose(
            (gradient * direction).sum(), expected, atol=1e-4 * max(1, scale), err_msg=path
        )


def test_mixed_precision_gradients_are_nonzero():
    model = Pretrainer(Backbone(SMALL.replace(num_layers=1), dtype="mixed_bfloat16"))
    random_weights(model, stddev=0.1)
    for path, gradient in compute_gradients(model).items():
        assert np.isfinite(gradient).all(), path
        assert abs(gradient).max() > 1e-6, path

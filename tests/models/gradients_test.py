# SPDX-License-Identifier: Apache-2.0
"""The gradient of every variable, through Keras' own training step, against finite differences."""

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
# The loss is a fixed random combination of all logits' squares: none is without influence. Of
# squares, for where gradients do not depend on values TensorFlow's graph optimizer lets the update
# of a weight overtake the forward pass that reads it.
COMBINATION = {
    "masked_lm_logits": np.random.default_rng(1).normal(size=(3, 3, 50)).astype("float32") / 50,
    "next_sentence_logits": np.random.default_rng(2).normal(size=(3, 2)).astype("float32"),
}


def combine(coefficients, logits):
    return ops.sum(coefficients * ops.square(logits))


def gradients(model: Pretrainer, inputs=INPUTS) -> dict[str, np.ndarray]:
    """By one step of gradient descent at rate 1."""
    before = numpy_bert.weights_of(model)
    if not model.compiled:
        model.compile(
            keras.optimizers.SGD(1.0), loss=dict.fromkeys(COMBINATION, combine), metrics=[]
        )
    model.train_on_batch(inputs, COMBINATION)
    after = numpy_bert.weights_of(model)
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
def its_gradients(model) -> dict[str, np.ndarray]:
    return gradients(model)


def test_every_variable_has_its_gradient(model, its_gradients):
    weights = numpy_bert.weights_of(model)
    random = np.random.default_rng(0)
    for path, gradient in its_gradients.items():
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
    for path, gradient in gradients(model).items():
        assert np.isfinite(gradient).all(), path
        assert abs(gradient).max() > 1e-6, path

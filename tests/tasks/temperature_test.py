# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_expit, log_softmax

from keras_bert.tasks.temperature import fit_temperature

pytestmark = pytest.mark.backend_independent


def make_predictions(num_classes, *, multi_label):
    """Returns logits that are three times too large and shifted, and labels sampled from them."""
    rng = np.random.default_rng(0)
    logits = rng.normal(scale=2, size=(2000, num_classes))
    if multi_label:
        targets = rng.random(logits.shape) < 1 / (1 + np.exp(-logits))
    else:
        targets = np.eye(num_classes)[np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)]
    shift = np.linspace(-1, 1, num_classes) * (multi_label or num_classes == 2)
    return (3 * logits + shift).astype("float32"), targets.astype("float32")


def cross_entropy(scale, bias, logits, targets, *, multi_label):
    scaled = scale * logits + bias
    if multi_label:
        return -np.mean(targets * log_expit(scaled) + (1 - targets) * log_expit(-scaled))
    return -np.mean(targets * log_softmax(scaled, axis=1))


@pytest.mark.parametrize(
    ("num_classes", "multi_label", "num_biases"), [(4, False, 0), (2, False, 1), (3, True, 3)]
)
def test_fit_temperature_matches_scipy(num_classes, multi_label, num_biases):
    logits, targets = make_predictions(num_classes, multi_label=multi_label)

    def loss(parameters):
        bias = {0: 0, 1: np.append(0, parameters[1:]), 3: parameters[1:]}[num_biases]
        return cross_entropy(parameters[0], bias, logits, targets, multi_label=multi_label)

    expected = minimize(loss, [1.0, *[0.0] * num_biases], method="BFGS", options={"gtol": 1e-8}).x
    scaling = fit_temperature(logits, targets, multi_label=multi_label)
    assert scaling.temperature == pytest.approx(1 / expected[0], rel=1e-4)
    assert scaling.temperature == pytest.approx(3, rel=0.2)
    if num_classes == 2:
        bias = [scaling.bias[1] - scaling.bias[0]]
        assert sum(scaling.bias) == 0
    else:
        bias = scaling.bias if multi_label else []
    np.testing.assert_allclose(bias, expected[1:], atol=1e-4)


def test_constant_labels_are_left_out():
    logits, targets = make_predictions(3, multi_label=True)
    expected = fit_temperature(logits[:, :2], targets[:, :2], multi_label=True)
    targets[:, 2] = 0
    scaling = fit_temperature(logits, targets, multi_label=True)
    assert scaling.temperature == pytest.approx(expected.temperature)
    assert scaling.bias == pytest.approx((*expected.bias, 0))


@pytest.mark.parametrize(("num_classes", "multi_label"), [(3, False), (2, False), (2, True)])
def test_impossible_fits_raise(num_classes, multi_label):
    logits, _ = make_predictions(num_classes, multi_label=multi_label)
    best = np.eye(num_classes)[np.argmax(logits, axis=1)]
    worst = np.eye(num_classes)[np.argmin(logits, axis=1)]
    worst[0] = best[0]
    right = (logits > 0).astype("float32") if multi_label else best
    for targets, message in [
        (right, "must include at least one that the model gets wrong"),
        (worst, "must be better than chance"),
    ]:
        with pytest.raises(ValueError, match=message):
            fit_temperature(logits, targets, multi_label=multi_label)

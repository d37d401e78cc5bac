# SPDX-License-Identifier: Apache-2.0
import inspect

import keras
import numpy as np
import pytest
from scipy import special

from keras_bert.config import ACTIVATIONS
from keras_bert.ops import bias_activation, bias_add, gated_activation
from tests.ops.backend_gradients import as_tensors, to_numpy, value_and_gradients

RANDOM = np.random.default_rng(0)
X, UPSTREAM = RANDOM.normal(size=(2, 4, 7, 5)) * 2
BIAS = RANDOM.normal(size=5)

REFERENCES = {
    "gelu_erf": lambda u: u * special.ndtr(u),
    "gelu_tanh": lambda u: u / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3))),
    "relu": lambda u: np.maximum(u, 0),
    "silu": lambda u: u * special.expit(u),
    "tanh": np.tanh,
}


def test_every_activation_has_a_reference():
    assert set(REFERENCES) == set(ACTIVATIONS)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_match_numpy(name, training):
    x, bias = as_tensors((X, BIAS), "float32")
    y = bias_activation(x, bias, name, training=training)
    np.testing.assert_allclose(to_numpy(y), REFERENCES[name](X + BIAS), atol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.06)])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_training_matches_reference(name, dtype, tolerance):
    x, upstream = as_tensors((X, UPSTREAM), dtype)
    (bias,) = as_tensors((BIAS,), "float32")
    value, gradients = value_and_gradients(
        lambda x, bias: bias_activation(x, bias, name, training=True), (x, bias), upstream
    )
    wide = [keras.ops.cast(tensor, "float32") for tensor in (x, bias, upstream)]
    expected, expected_gradients = value_and_gradients(
        lambda x, bias: inspect.unwrap(bias_activation)(x, bias, name), wide[:2], wide[2]
    )
    for one, other in zip((value, *gradients), (expected, *expected_gradients), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.06)])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gated_activation_matches_numpy(name, dtype, tolerance, training):
    x, upstream = as_tensors((np.concatenate([X, X[::-1] + 1], -1), UPSTREAM), dtype)
    value, (gradient,) = value_and_gradients(
        lambda x: gated_activation(x, name, training=training), [x], upstream
    )
    wide = to_numpy(x).astype("float64")
    activated, gate = np.split(wide, 2, axis=-1)
    np.testing.assert_allclose(
        value, REFERENCES[name](activated) * gate, rtol=tolerance, atol=tolerance
    )
    step = 1e-6
    slope = (REFERENCES[name](activated + step) - REFERENCES[name](activated - step)) / (2 * step)
    expected = np.concatenate([gate * slope, REFERENCES[name](activated)], -1)
    expected *= np.tile(to_numpy(upstream), 2)
    np.testing.assert_allclose(gradient, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ["gelu_erf", "gelu_tanh", "silu"])
def test_training_is_finite_for_large_inputs(name):
    x, upstream = as_tensors(([[-300.0, -60.0, 60.0, 300.0]], np.ones((1, 4))), "float32")
    (bias,) = as_tensors((np.zeros(4),), "float32")
    value, (x_gradient, _) = value_and_gradients(
        lambda x, bias: bias_activation(x, bias, name, training=True), (x, bias), upstream
    )
    np.testing.assert_allclose(value, [[0, 0, 60, 300]], atol=1e-4)
    np.testing.assert_allclose(x_gradient, [[0, 0, 1, 1]], atol=1e-6)


@pytest.mark.parametrize("training", [False, True])
def test_bias_gradient_is_exact_over_many_rows(training):
    # Summed in bfloat16, 3000 ones would stop at 256.
    x, upstream = as_tensors((np.zeros((3000, 2)), np.ones((3000, 2))), "bfloat16")
    (bias,) = as_tensors(([1.0, 2.0],), "float32")
    value, (x_gradient, bias_gradient) = value_and_gradients(
        lambda x, bias: bias_add(x, bias, training=training), (x, bias), upstream
    )
    np.testing.assert_array_equal(value, np.broadcast_to([1.0, 2.0], (3000, 2)))
    np.testing.assert_array_equal(x_gradient, 1)
    if training:
        np.testing.assert_allclose(bias_gradient, 3000, rtol=1 / 128)

# SPDX-License-Identifier: Apache-2.0
import inspect

import keras
import numpy as np
import pytest

from keras_bert.ops import bias_dropout_residual, bias_dropout_residual_norm
from tests.ops.backend_gradients import as_tensors, to_numpy, value_and_gradients
from tests.ops.reference.norm_test import BETA, EPSILON, GAMMA, X, numpy_layer_norm

RANDOM = np.random.default_rng(1)
RESIDUAL, UPSTREAM = RANDOM.normal(size=(2, 2, 5, 8))
BIAS = RANDOM.normal(size=8)


def make_tensors(dtype):
    return [*as_tensors((X, RESIDUAL), dtype), *as_tensors((BIAS, GAMMA, BETA), "float32")]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bias", [BIAS, None], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    ("kind", "beta"), [("layer_norm", BETA), ("layer_norm", None), ("rms_norm", None)]
)
def test_sublayer_ends_match_numpy(kind, beta, bias, training):
    def tensor(values):
        return None if values is None else as_tensors((values,), "float32")[0]

    x, residual, gamma = map(tensor, (X, RESIDUAL, GAMMA))
    added = RESIDUAL + X + (0 if bias is None else bias)
    if kind == "rms_norm":
        expected = added / np.sqrt((added**2).mean(-1, keepdims=True)) * GAMMA
    else:
        expected = numpy_layer_norm(added, GAMMA, 0 if beta is None else beta)
    options = {"training": training}
    post = bias_dropout_residual_norm(
        x, residual, tensor(bias), gamma, tensor(beta), kind=kind, epsilon=EPSILON, **options
    )
    np.testing.assert_allclose(to_numpy(post), expected, atol=1e-5)
    pre = bias_dropout_residual(x, residual, tensor(bias), **options)
    np.testing.assert_allclose(to_numpy(pre), added, atol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.05)])
@pytest.mark.parametrize(
    ("kind", "has_beta", "has_bias"),
    [("layer_norm", True, True), ("layer_norm", False, False), ("rms_norm", False, True)],
)
def test_training_matches_reference(dtype, tolerance, kind, has_beta, has_bias):
    options = {"kind": kind, "epsilon": EPSILON}

    def reorder_arguments(end):
        def compute(x, residual, gamma, *biases):
            biases = list(biases)
            bias = biases.pop() if has_bias else None
            return end(x, residual, bias, gamma, *(biases or [None]))

        return compute

    x, residual, bias, gamma, beta = make_tensors(dtype)
    tensors = [x, residual, gamma, *[beta] * has_beta, *[bias] * has_bias]
    check_training(
        reorder_arguments(
            lambda *tensors: bias_dropout_residual_norm(*tensors, **options, training=True)
        ),
        reorder_arguments(
            lambda *tensors: inspect.unwrap(bias_dropout_residual_norm)(*tensors, **options)
        ),
        tensors,
        tolerance,
    )


def check_training(function, reference, tensors, tolerance):
    """Checks that values and gradients match the reference in float32."""
    (upstream,) = as_tensors((UPSTREAM,), tensors[0].dtype)
    value, gradients = value_and_gradients(function, tensors, upstream)
    wide = [keras.ops.cast(tensor, "float32") for tensor in (*tensors, upstream)]
    expected, expected_gradients = value_and_gradients(reference, wide[:-1], wide[-1])
    np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, expected_gradient, rtol=tolerance, atol=tolerance)


def apply_with_dropout(rate, seed, tensors, upstream):
    return value_and_gradients(
        lambda *tensors: bias_dropout_residual_norm(
            *tensors,
            epsilon=EPSILON,
            dropout=rate,
            seed=keras.random.SeedGenerator(seed),
            training=True,
        ),
        tensors,
        upstream,
    )


def test_forward_and_backward_drop_the_same():
    x, residual, upstream = np.random.default_rng(1).normal(size=(3, 4, 16))
    weights = np.stack([np.zeros(16), np.ones(16), np.zeros(16)])
    (upstream_tensor,) = as_tensors((upstream,), "float32")

    def loss(x):
        tensors = as_tensors((x, residual, *weights), "float32")
        value, (x_gradient, *_) = apply_with_dropout(0.5, 3, tensors, upstream_tensor)
        return (value * upstream).sum(), x_gradient

    # Finite differences of single coordinates are zero if the forward pass drops the coordinate.
    _, x_gradient = loss(x)
    step = 1e-2
    for row, column in [(0, 0), (0, 7), (1, 3), (2, 15), (3, 4), (3, 5), (3, 6)]:
        bump = np.zeros_like(x)
        bump[row, column] = step
        slope = (loss(x + bump)[0] - loss(x - bump)[0]) / (2 * step)
        np.testing.assert_allclose(x_gradient[row, column], slope, atol=5e-3)


def test_no_dropout_outside_training():
    tensors = make_tensors("float32")
    seed = keras.random.SeedGenerator(0)
    y = bias_dropout_residual_norm(*tensors, epsilon=EPSILON, dropout=0.5, seed=seed)
    expected = numpy_layer_norm(RESIDUAL + X + BIAS, GAMMA, BETA)
    np.testing.assert_allclose(to_numpy(y), expected, atol=1e-5)

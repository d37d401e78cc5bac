# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from keras_bert.ops import dropout
from tests.ops.backend_gradients import as_tensors, to_numpy, value_and_gradients

X = np.random.default_rng(0).normal(size=(8, 16, 32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_forward_and_backward_drop_the_same(dtype):
    x, upstream = as_tensors((X, np.ones_like(X)), dtype)
    value, (gradient,) = value_and_gradients(
        lambda x: dropout(x, 0.2, seed=keras.random.SeedGenerator(1), training=True), (x,), upstream
    )
    is_dropped = gradient == 0
    assert abs(is_dropped.mean() - 0.2) < 4 * np.sqrt(0.2 * 0.8 / X.size)
    np.testing.assert_allclose(gradient[~is_dropped], 1.25)
    np.testing.assert_allclose(value, to_numpy(x) * gradient, rtol=1 / 128)


def test_calls_drop_different_values():
    (x,) = as_tensors((np.ones_like(X),), "float32")
    seed = keras.random.SeedGenerator(1)
    first, second = (to_numpy(dropout(x, 0.5, seed=seed, training=True)) > 0 for _ in range(2))
    assert 0.45 < (first == second).mean() < 0.55


@pytest.mark.parametrize(("rate", "training"), [(0.5, False), (0.0, True)])
def test_no_dropout_at_rate_0_or_inference(rate, training):
    (x,) = as_tensors((X,), "float32")
    y = dropout(x, rate, seed=keras.random.SeedGenerator(1), training=training)
    np.testing.assert_array_equal(to_numpy(y), X.astype("float32"))

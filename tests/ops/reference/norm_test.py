# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from keras_bert.ops import layer_norm, norm
from tests.ops.backend_gradients import as_tensors, to_numpy

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 5, 8))
GAMMA, BETA = RANDOM.normal(size=(2, 8))
EPSILON = 1e-12


def numpy_layer_norm(x, gamma, beta):
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + EPSILON) * gamma + beta


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_layer_norm_matches_numpy(scale):
    # A mean far from zero reveals an inaccurate variance.
    x = X * scale + 30 * scale
    y = layer_norm(*as_tensors((x, GAMMA, BETA), "float32"), EPSILON)
    np.testing.assert_allclose(to_numpy(y), numpy_layer_norm(x, GAMMA, BETA), atol=1e-4)


def test_layer_norm_computes_in_float32():
    x = keras.ops.convert_to_tensor(X + 4, dtype="bfloat16")
    y = layer_norm(x, *as_tensors((GAMMA, BETA), "float32"), EPSILON)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    np.testing.assert_allclose(
        to_numpy(y), numpy_layer_norm(to_numpy(x), GAMMA, BETA), rtol=1 / 128, atol=1e-3
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_rms_norm_matches_numpy(dtype, tolerance):
    x, gamma = *as_tensors((X,), dtype), *as_tensors((GAMMA,), "float32")
    y = norm(x, gamma, None, kind="rms_norm", epsilon=1e-3)
    assert keras.backend.standardize_dtype(y.dtype) == dtype
    wide = to_numpy(x)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-3) * GAMMA
    np.testing.assert_allclose(to_numpy(y), expected, rtol=tolerance, atol=tolerance)

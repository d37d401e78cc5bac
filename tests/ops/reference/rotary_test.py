# SPDX-License-Identifier: Apache-2.0
"""Rotary positions: products of queries and keys depend only on their distance."""

import keras
import numpy as np
import pytest

from keras_bert.ops import cos_sin_of, rotate
from tests.ops.backend_gradients import as_tensors, to_numpy, value_and_gradients

X = np.random.default_rng(0).normal(size=(2, 5, 3, 8))
POSITIONS = np.array([[0, 1, 2, 3, 4], [7, 0, 900, 2, 2]])


def rotate_complex(x, positions, base=100.0):
    """Rotates the pairs `(i, i + 4)` as complex numbers by the angle of their position."""
    angles = positions[:, :, None, None] * base ** (-np.arange(4) / 4)
    pairs = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag], -1)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 5e-2)])
def test_rotation_matches_complex_numbers(dtype, tolerance, training):
    (x,) = as_tensors((X,), dtype)
    cos_sin = cos_sin_of(keras.ops.convert_to_tensor(POSITIONS), 8, 100.0)
    y = rotate(x, cos_sin, training=training)
    assert keras.backend.standardize_dtype(y.dtype) == dtype
    np.testing.assert_allclose(to_numpy(y), rotate_complex(to_numpy(x), POSITIONS), atol=tolerance)


@pytest.mark.parametrize("training", [False, True])
def test_positions_broadcast_over_rows(training):
    (x,) = as_tensors((X,), "float32")
    y = rotate(x, cos_sin_of(keras.ops.arange(5)[None], 8, 100.0), training=training)
    np.testing.assert_allclose(to_numpy(y), rotate_complex(X, np.arange(5)[None]), atol=1e-5)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 5e-2)])
def test_gradients_are_rotated_back(dtype, tolerance, training):
    x, upstream = as_tensors((X, X[::-1]), dtype)
    cos_sin = cos_sin_of(keras.ops.convert_to_tensor(POSITIONS), 8, 100.0)
    _, (gradient,) = value_and_gradients(
        lambda x: rotate(x, cos_sin, training=training), [x], upstream
    )
    np.testing.assert_allclose(
        gradient, rotate_complex(to_numpy(upstream), -POSITIONS), atol=tolerance
    )


def test_products_depend_only_on_distance():
    query, key = as_tensors((X[:1], X[1:]), "float32")

    def compute_products(offset):
        cos_sin = cos_sin_of(keras.ops.arange(offset, offset + 5)[None], 8, 100.0)
        rotated = (to_numpy(rotate(each, cos_sin)) for each in (query, key))
        return np.einsum("bqhd,bkhd->bhqk", *rotated)

    np.testing.assert_allclose(compute_products(0), compute_products(40), atol=1e-4)

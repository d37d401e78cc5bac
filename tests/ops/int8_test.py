# SPDX-License-Identifier: Apache-2.0
"""Matrix multiplication of 8-bit integers."""

import keras
import numpy as np
import pytest

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import LARGEST_IN_KERNEL, Int8Kernel
from keras_bert.ops.int8 import int8_feed_forward, int8_product
from tests.models.small_backbone import to_numpy

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(33, 16)).astype("float32")
BIAS = RANDOM.normal(size=24).astype("float32")


def make_kernel(inputs: int, outputs: int, input_scale: np.ndarray) -> Int8Kernel:
    kernel = RANDOM.integers(-64, 65, (inputs, outputs)).astype("int8")
    scales = input_scale, 127 * RANDOM.uniform(1e-4, 3e-4, outputs)
    floats = (keras.ops.convert_to_tensor(scale.astype("float32")) for scale in scales)
    return Int8Kernel(keras.ops.convert_to_tensor(kernel), *floats)


FIRST = make_kernel(16, 24, RANDOM.uniform(30, 80, 16))
SECOND = make_kernel(24, 16, np.full(24, 40.0))


def feed_forward(x: np.ndarray, activation: str = "gelu_erf") -> np.ndarray:
    bias = keras.ops.convert_to_tensor(BIAS)
    x = keras.ops.convert_to_tensor(x)
    return to_numpy(int8_feed_forward(x, FIRST, bias, activation, SECOND))


def test_int8_product_matches_rounded_integers():
    product = to_numpy(int8_product(keras.ops.convert_to_tensor(X), FIRST, BIAS))
    kernel, input_scale, kernel_range = (to_numpy(part) for part in FIRST)
    integers = np.clip(np.round(X * input_scale), -127, 127)
    assert abs(integers).max() == 127
    expected = integers @ kernel.astype("float32") * (kernel_range / 127) + BIAS
    np.testing.assert_allclose(product, expected, atol=1e-4)


def test_largest_integers_do_not_saturate():
    # Sums of two products in 16 bits would saturate, with 8-bit kernels on a CPU without VNNI.
    kernel = keras.ops.full((16, 24), LARGEST_IN_KERNEL, "int8")
    ones, limits = keras.ops.ones((16,)), keras.ops.full((24,), 127.0)
    product = int8_product(keras.ops.full((2, 16), 127.0), Int8Kernel(kernel, ones, limits))
    np.testing.assert_allclose(to_numpy(product), 16 * 127 * 64, rtol=1e-6)


@pytest.mark.parametrize("activation", ["gelu_erf", "gelu_tanh", "relu", "silu"])
def test_feed_forward_rounds_like_reference(monkeypatch, activation):
    fast = feed_forward(X, activation)
    monkeypatch.setattr(dispatch, "tensorflow_int8", lambda: None)
    # An intermediate integer may be rounded to its neighbor, which moves an output by about 0.03.
    difference = abs(fast - feed_forward(X, activation))
    assert np.median(difference) < 1e-4
    assert difference.max() < 0.1


def test_row_results_do_not_depend_on_batch():
    rows = feed_forward(X)
    large = feed_forward(np.concatenate([X, 100 * X]))
    np.testing.assert_array_equal(large[: len(X)], rows)
    for index in (0, len(X) - 1):
        np.testing.assert_array_equal(feed_forward(X[index : index + 1])[0], rows[index])


@pytest.mark.skipif(dispatch.tensorflow_int8() is None, reason="TensorFlow's kernels on a CPU")
def test_kernel_limits_are_read_from_variables():
    """oneDNN finds the primitive of an earlier call by their address, or creates it again."""
    import tensorflow as tf

    kernel = FIRST._replace(kernel_range=tf.Variable(FIRST.kernel_range))
    product = tf.function(lambda x: int8_product(x, kernel))
    graph = product.get_concrete_function(tf.TensorSpec((None, 16))).graph
    (operation,) = (each for each in graph.get_operations() if each.type == "_QuantizedMatMul")
    assert [limit.op.type for limit in operation.inputs[5:7]] == ["ReadVariableOp"] * 2

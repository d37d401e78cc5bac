# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from keras_bert.ops import take, take_of_few, tokens_at
from tests.ops.backend_gradients import as_tensors, value_and_gradients

RANDOM = np.random.default_rng(0)
# Some positions occur twice, and some do not occur.
POSITIONS = np.array([[2, 0, 2], [4, 4, 1]])
TOKENS, TABLE = RANDOM.normal(size=(2, 5, 4)), RANDOM.normal(size=(6, 4))


def expected_gradient(x, index, upstream):
    expected = np.zeros(x.shape)
    np.add.at(expected, index, upstream)
    return expected


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("function", "x", "index"),
    [
        (tokens_at, TOKENS, (np.arange(2)[:, None], POSITIONS)),
        (take, TABLE, (POSITIONS,)),
        (take_of_few, TABLE, (POSITIONS,)),
    ],
)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("bfloat16", 2e-2)])
def test_values_and_gradients_match_numpy(function, x, index, training, dtype, tolerance):
    upstream = RANDOM.normal(size=(2, 3, 4))
    tensor, upstream_tensor = as_tensors((x, upstream), dtype)
    positions = keras.ops.convert_to_tensor(POSITIONS)
    received, (gradient,) = value_and_gradients(
        lambda x: function(x, positions, training=training), (tensor,), upstream_tensor
    )
    options = {"rtol": tolerance, "atol": tolerance}
    np.testing.assert_allclose(received, x[index], **options)
    np.testing.assert_allclose(gradient, expected_gradient(x, index, upstream), **options)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's graphs")
def test_gradient_has_few_operations():
    import tensorflow as tf

    @tf.function(
        input_signature=[tf.TensorSpec((None, None, 4)), tf.TensorSpec((None, 3), "int32")]
    )
    def gradient(x, positions):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tokens_at(x, positions, training=True)
        return tape.gradient(y, x)

    operations = gradient.get_concrete_function().graph.get_operations()
    assert len([operation for operation in operations if operation.type != "Const"]) < 25

# SPDX-License-Identifier: Apache-2.0
"""Where the compiled functions of TensorFlow on a CPU are, and where they must not be."""

import keras
import numpy as np
import pytest

from keras_bert.models import Backbone
from tests.models.small_backbone import SMALL, features

pytestmark = [
    pytest.mark.needs_tensorflow,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's own"),
]


def traced(training: bool):
    import tensorflow as tf

    backbone = Backbone(SMALL)
    function = tf.function(lambda inputs: backbone(inputs, training=training))
    return function.get_concrete_function(features())


def compiled_functions(function) -> list[str]:
    definition = function.graph.as_graph_def()
    return [
        function.signature.name
        for function in definition.library.function
        if function.attr["_XlaMustCompile"].b
    ]


def test_training_compiles_what_lies_between_the_products():
    names = compiled_functions(traced(training=True))
    for part in ("activation", "norm", "apply_dropout"):
        assert any(part in name for name in names), names


def test_inference_asks_for_no_xla():
    function = traced(training=False)
    assert not compiled_functions(function)
    assert "xla" not in str(function.graph.as_graph_def()).lower()


def test_every_length_shares_one_trace():
    import tensorflow as tf

    from keras_bert.ops import tensorflow_cpu

    trace_lengths = []

    @tensorflow_cpu.compiled
    def double(x):
        trace_lengths.append(x.shape[0])
        return 2 * x

    for length in (3, 4, 5):
        assert double(tf.ones((length, 8))).shape == (length, 8)
    assert trace_lengths == [None]


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_compiled_step_computes_the_same(dtype):
    def one_step(jit_compile):
        keras.utils.set_random_seed(1)
        backbone = Backbone(SMALL, dtype=dtype)
        model = keras.Model(backbone.input, backbone.output["pooled_output"])
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)
        model.fit(features(), np.ones((3, 16)), batch_size=3, epochs=2, verbose=0)
        return model.get_weights()

    tolerance = 1e-5 if dtype == "float32" else 5e-3
    for plain, compiled in zip(one_step(False), one_step(True), strict=True):
        np.testing.assert_allclose(plain, compiled, atol=tolerance)


def keeps(key, rate=0.5, shape=(256, 256)):
    import tensorflow as tf

    from keras_bert.ops.tensorflow_dropout import drop

    return drop(tf.ones(shape), rate, tf.constant(key, tf.uint32)).numpy() > 0


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_dropout_has_its_rate_in_all_and_in_every_bit_of_a_line(rate):
    kept = keeps((3, 5), rate)
    deviation = np.sqrt(rate * (1 - rate))
    assert abs(kept.mean() - (1 - rate)) < 4 * deviation / 256
    for axis in (0, 1):
        # 256 means of 256 draws: the largest of them lies within five deviations
        assert abs(kept.mean(axis) - (1 - rate)).max() < 5 * deviation / 16


@pytest.mark.parametrize("key", [(3, 6), (4, 5), (5, 3), (3, 5 + 2**31)])
def test_keys_that_differ_little_drop_independently(key):
    first, second = keeps((3, 5)), keeps(key)
    for rows, columns in [(0, 0), (0, 1), (1, 0), (5, 17)]:
        agreement = (first == np.roll(second, (rows, columns), (0, 1))).mean()
        assert abs(agreement - 0.5) < 4 * 0.5 / 256


def test_neighbours_drop_independently():
    kept = keeps((0, 0))
    for rows, columns in [(0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (128, 0), (0, 128)]:
        agreement = (kept == np.roll(kept, (rows, columns), (0, 1))).mean()
        assert abs(agreement - 0.5) < 4 * 0.5 / 256

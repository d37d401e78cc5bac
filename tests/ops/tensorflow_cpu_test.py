# SPDX-License-Identifier: Apache-2.0
"""Where TensorFlow's compiled functions for CPUs are used, and where they must not be."""

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

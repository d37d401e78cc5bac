# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's compiled functions for CPUs: where they are used, and where not."""

import keras
import numpy as np
import pytest

from keras_bert.config import BertConfig
from keras_bert.models import Backbone
from tests.models.small_backbone import SMALL, WITHOUT_DROPOUT, features

pytestmark = [
    pytest.mark.needs_tensorflow,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's own"),
]


def trace_backbone(training: bool):
    import tensorflow as tf

    backbone = Backbone(SMALL)
    function = tf.function(lambda inputs: backbone(inputs, training=training))
    return function.get_concrete_function(features())


def list_compiled_functions(function) -> list[str]:
    definition = function.graph.as_graph_def()
    return [
        function.signature.name
        for function in definition.library.function
        if function.attr["_XlaMustCompile"].b
    ]


def test_training_compiles_elementwise_functions():
    names = list_compiled_functions(trace_backbone(training=True))
    for part in ("activation", "norm", "apply_dropout"):
        assert any(part in name for name in names), names


@pytest.mark.parametrize("name", ["bert_base_uncased", "modernbert_base"])
def test_layers_share_traced_functions(name):
    import tensorflow as tf

    def functions(num_layers):
        config = BertConfig.from_name(name).replace(
            **dict.fromkeys(("vocabulary_size", "hidden_dim", "intermediate_dim"), 8),
            **{"num_layers": num_layers, "num_heads": 2, "pad_token_id": 0},
        )
        backbone = Backbone(config)

        @tf.function(input_signature=[tf.TensorSpec((None, None), "int32")])
        def step(token_ids):
            inputs = dict.fromkeys(backbone.input, token_ids)
            with tf.GradientTape() as tape:
                hidden = backbone(inputs, training=True)["sequence_output"]
            return tape.gradient(hidden, backbone.trainable_variables)

        return step.get_concrete_function().graph.as_graph_def().library.function

    assert len(functions(4)) == len(functions(7))


def test_inference_does_not_use_xla():
    function = trace_backbone(training=False)
    assert not list_compiled_functions(function)
    assert "xla" not in str(function.graph.as_graph_def()).lower()


def test_all_lengths_share_one_trace():
    import tensorflow as tf

    from keras_bert.ops import tensorflow_cpu

    trace_lengths = []

    @tensorflow_cpu.xla_function
    def double(x):
        trace_lengths.append(x.shape[0])
        return 2 * x

    for length in (3, 4, 5):
        assert double(tf.ones((length, 8))).shape == (length, 8)
    assert trace_lengths == [None]


@pytest.mark.parametrize(
    ("dtype", "config"),
    [("float32", SMALL), ("mixed_bfloat16", WITHOUT_DROPOUT.replace(attention_window=2))],
)
def test_compiled_step_matches_plain_step(dtype, config):
    import tensorflow as tf

    batch = (features(), np.ones((3, 16), "float32"))
    specs = tf.nest.map_structure(
        lambda array: tf.TensorSpec((None,) * array.ndim, array.dtype), batch
    )
    # The graph does not know the lengths, and all models share the functions. Both are different if
    # XLA compiles the whole step.
    batches = tf.data.Dataset.from_generator(lambda: iter([batch]), output_signature=specs)

    def train(jit_compile):
        keras.utils.set_random_seed(1)
        backbone = Backbone(config, dtype=dtype)
        model = keras.Model(backbone.input, backbone.output["pooled_output"])
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit_compile)
        model.fit(batches.repeat(), steps_per_epoch=2, shuffle=False, verbose=0)
        return model.get_weights()

    tolerance = 1e-5 if dtype == "float32" else 5e-3
    for plain, compiled in zip(train(False), train(True), strict=True):
        np.testing.assert_allclose(plain, compiled, atol=tolerance)

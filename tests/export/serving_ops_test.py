# SPDX-License-Identifier: Apache-2.0
"""Graphs that TensorFlow Serving cannot run raise errors at export."""

import pytest

tf = pytest.importorskip("tensorflow")
tf_text = pytest.importorskip("tensorflow_text")

from keras_bert.export import ExportError  # noqa: E402
from keras_bert.export.saved_model import check_graph, check_serving_ops  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def make_graph(function, *values):
    return tf.function(function).get_concrete_function(*values).graph.as_graph_def()


def trim(text):
    return tf_text.RoundRobinTrimmer(4).trim([tf.strings.split(text), tf.strings.split(text)])


@pytest.mark.parametrize(
    ("function", "value", "operation"),
    [
        (lambda x: tf.numpy_function(abs, [x], tf.float32), 1.0, "PyFunc"),
        (lambda x: tf.cast(tf.io.matching_files(x), tf.string), "*", "MatchingFiles"),
        (trim, ["a b"], "RoundRobinTrim"),
    ],
)
def test_unsupported_op_error_includes_name(function, value, operation):
    graph = make_graph(function, tf.constant(value))
    with pytest.raises(ExportError, match=operation):
        check_graph(graph)


def test_xla_function_raises():
    xla_function = tf.function(lambda x: x * x + 1, jit_compile=True)
    graph = make_graph(lambda x: xla_function(x) + 1, tf.constant(1.0))
    with pytest.raises(ExportError, match="compiled by XLA"):
        check_graph(graph)


def test_check_serving_ops_reads_saved_models(tmp_path):
    module = tf.Module()
    module.sound = tf.function(
        lambda x: tf.audio.encode_wav(x, 8000),
        input_signature=[tf.TensorSpec([None, 1], tf.float32)],
    )
    tf.saved_model.save(module, str(tmp_path))
    with pytest.raises(ExportError, match="EncodeWav"):
        check_serving_ops(tmp_path)

# SPDX-License-Identifier: Apache-2.0
"""Graphs that a server would refuse are errors at export."""

import pytest

tf = pytest.importorskip("tensorflow")
tf_text = pytest.importorskip("tensorflow_text")

from keras_bert.export import ExportError  # noqa: E402
from keras_bert.export.saved_model import check_graph, check_serving_ops  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def graph_of(function, *values):
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
def test_an_operation_that_older_servers_lack_is_named(function, value, operation):
    graph = graph_of(function, tf.constant(value))
    with pytest.raises(ExportError, match=operation):
        check_graph(graph)


def test_a_function_for_xla_is_named():
    island = tf.function(lambda x: x * x + 1, jit_compile=True)
    graph = graph_of(lambda x: island(x) + 1, tf.constant(1.0))
    with pytest.raises(ExportError, match="compiled by XLA"):
        check_graph(graph)


def test_the_check_reads_saved_models(tmp_path):
    module = tf.Module()
    module.sound = tf.function(
        lambda x: tf.audio.encode_wav(x, 8000),
        input_signature=[tf.TensorSpec([None, 1], tf.float32)],
    )
    tf.saved_model.save(module, str(tmp_path))
    with pytest.raises(ExportError, match="EncodeWav"):
        check_serving_ops(tmp_path)

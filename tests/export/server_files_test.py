# SPDX-License-Identifier: Apache-2.0
"""The files that TensorFlow Serving reads in addition to a SavedModel."""

import re
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_bert.export.server_files import (  # noqa: E402
    WARM_UP_FILE,
    write_batching_parameters,
    write_warm_up_requests,
)
from tests.export.served_tasks import KINDS_BY_INPUT_FORM  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


def read_length(inputs):
    """Returns a request's number of ids or words per row."""
    if "token_ids" in inputs:
        return inputs["token_ids"].shape[-1]
    if "words" in inputs:
        return inputs["words"].shape[1]
    if "inputs" in inputs:
        features = tf.train.Example.FromString(inputs["inputs"][0]).features.feature
        return len(features["text"].bytes_list.value[0].split())
    return len(inputs["text" if "text" in inputs else "context"][0].split())


@pytest.mark.parametrize("served_task", KINDS_BY_INPUT_FORM, indirect=True)
def test_warm_up_covers_lengths_and_signatures(served_task, tmp_path):
    prediction_log_pb2 = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    write_warm_up_requests(tmp_path, served_task.functions, served_task.task, served_task.options)
    rows = {name: set() for name in served_task.functions}
    lengths = {name: set() for name in served_task.functions}
    for record in tf.data.TFRecordDataset(str(tmp_path / WARM_UP_FILE)).as_numpy_iterator():
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
        name, count = request.model_spec.signature_name, len(next(iter(inputs.values())))
        rows[name].add(count)
        lengths[name].add(read_length(inputs))
        if count < 32:  # Larger requests are similar, but take long.
            outputs = served_task.signatures[name](**{k: tf.constant(v) for k, v in inputs.items()})
            assert {len(value) for value in outputs.values()} == {count}
    longest = served_task.task.preprocessor.sequence_length
    for name in served_task.functions:
        assert rows[name] == ({1, 2, 4, 8, 16, 32} if name == "serving_default" else {1, 32})
        assert lengths[name] == {3, 16, longest, *({32} if longest > 32 else ())}


@pytest.mark.parametrize("splits", [True, False])
def test_batching_parameters(tmp_path, splits):
    write_batching_parameters(tmp_path, 24, splits=splits)
    text = (tmp_path / "batching_params.pbtxt").read_text()
    lines = text.splitlines()
    assert "pad_variable_length_inputs: false" in lines
    write_batching_parameters(tmp_path, 24, splits=splits, padded=True)
    padded = (tmp_path / "batching_params.pbtxt").read_text().splitlines()
    assert padded == [line.replace("false", "true") for line in lines]
    if splits:
        assert "enable_large_batch_splitting { value: true }" in lines
        assert "max_execution_batch_size { value: 24 }" in lines
        assert "max_batch_size { value: 1024 }" in lines
        assert "allowed_batch_sizes" not in text
    else:
        assert "max_batch_size { value: 24 }" in lines
        assert "splitting" not in text
        allowed = [int(line.split(": ")[1]) for line in lines if line.startswith("allowed_")]
        assert allowed == [1, 2, 4, 8, 16, 24]


def test_documented_proxy_accepts_all_inputs(served_task):
    """The proxy rejects unknown inputs. tests/export/serving_proxy_test.py runs it."""
    directory = Path(__file__).parents[2] / "docs" / "serving" / "proxy"
    source = (directory / "predict.js").read_text()
    inputs = dict(re.findall(r"^ +(\w+): (\['\w+', \w+\]),$", source, re.MULTILINE))
    single_inputs = dict(re.findall(r"(\w+): '(\w+)'", source))
    (dimensions,) = re.findall(
        r"set \$ids_dimensions (\d);", (directory / "nginx.conf").read_text()
    )
    assert dimensions == "1"
    for name, function in served_task.functions.items():
        if name == "serve_examples":
            continue  # Only for `:classify`. Its examples contain texts by name.
        for spec in function.input_signature:
            kind = "string" if spec.dtype == tf.string else "number"
            rank = "null" if spec.name in ("token_ids", "segment_ids") else spec.shape.rank - 1
            assert inputs[spec.name] == f"['{kind}', {rank}]"
        if len(function.input_signature) == 1:
            assert single_inputs.get(name, "text") == function.input_signature[0].name


def test_export_has_server_files(exported_classifier):
    lines = (exported_classifier.directory / "batching_params.pbtxt").read_text().splitlines()
    assert "max_execution_batch_size { value: 32 }" in lines
    assert (exported_classifier.directory / WARM_UP_FILE).stat().st_size > 0

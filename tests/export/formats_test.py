# SPDX-License-Identifier: Apache-2.0
"""ONNX, OpenVINO and LiteRT, each run by its own runtime."""

import json
import sys
import zipfile

import numpy as np
import pytest

import keras_bert
from tests.export.small_classifier import make_answerer, make_classifier

tf = pytest.importorskip("tensorflow")

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


@pytest.fixture(scope="module")
def classifier():
    return make_classifier(num_classes=3)


def features(batch, length):
    generator = np.random.default_rng(batch)
    ids = generator.integers(4, 70, (batch, length), dtype="int32")
    segments = generator.integers(0, 2, (batch, length), dtype="int32")
    mask = np.arange(length) < np.linspace(1, length, batch)[:, None]
    return {"token_ids": ids, "segment_ids": segments, "padding_mask": mask.astype("int32")}


def check_description(description):
    """That of a classifier, in the place that each format has for it."""
    said = json.loads(description)
    assert (said["task"], said["verb"], said["fields"]) == ("TextClassifier", "classify", ["text"])


def test_onnx(classifier, tmp_path, monkeypatch):
    pytest.importorskip("tf2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)  # not needed, nor there on Windows
    classifier.export(tmp_path / "model.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    check_description(session.get_modelmeta().custom_metadata_map["keras_bert"])
    for inputs in (features(3, 7), features(1, 64), features(5, 1)):
        (logits,) = session.run(["logits"], inputs)
        expected = classifier.predict(inputs, verbose=0)
        np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("platform", "advice"), [("win32", "which Windows does not have"), ("linux", "`pip install")]
)
def test_text_in_graphs_needs_tensorflow_text(classifier, platform, advice, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    monkeypatch.setattr(sys, "platform", platform)
    for arguments in (("1",), ("model.xml", "openvino")):
        with pytest.raises(keras_bert.export.ExportError, match=f"tensorflow_text.*{advice}"):
            classifier.export(tmp_path / arguments[0], *arguments[1:], text=len(arguments) > 1)
    monkeypatch.delitem(sys.modules, "keras_bert.text.graph.wordpiece", raising=False)
    tokenizer = keras_bert.WordPieceTokenizer(classifier.preprocessor.tokenizer.vocabulary)
    with pytest.raises(ModuleNotFoundError, match=r"not published for Windows\); pass strings"):
        tokenizer(tf.constant(["a"]))


def axes(nodes):
    return {node.name: node.shape for node in nodes}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_onnx_names_axes_and_refuses_ids_out_of_the_vocabulary(classifier, dtype, tmp_path):
    pytest.importorskip("tf2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    classifier.export(tmp_path / "model.onnx", "onnx", dtype=dtype)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", options)
    inputs = features(2, 5)
    assert axes(session.get_inputs()) == {name: ["batch", "length"] for name in inputs}
    assert axes(session.get_outputs()) == {"logits": ["batch", 3]}
    size = classifier.config.vocabulary_size
    for wrong in (-1, -size, -size - 1, size):
        inputs["token_ids"][1, 2] = wrong
        with pytest.raises(Exception, match="indices element out of data bounds"):
            session.run(None, inputs)
    inputs["token_ids"][1, 2] = size - 1
    assert session.run(None, inputs)[0].shape == (2, 3)


def test_onnx_names_the_axes_of_choices_and_positions(classifier, tmp_path):
    pytest.importorskip("tf2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    chooser, answerer = keras_bert.MultipleChoice(classifier.backbone), make_answerer()
    for task, inputs, outputs in (
        (chooser, ["batch", "choices", "length"], {"logits": ["batch", "choices"]}),
        (
            answerer,
            ["batch", "length"],
            {"start_logits": ["batch", "length"], "end_logits": ["batch", "length"]},
        ),
    ):
        task.export(tmp_path / "model.onnx", "onnx", overwrite=True)
        session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
        assert axes(session.get_inputs()) == dict.fromkeys(features(1, 1), inputs)
        assert axes(session.get_outputs()) == outputs


def test_no_other_format_is_padded_by_a_server(classifier, tmp_path):
    with pytest.raises(ValueError, match="padded_batches is True; it is for format='tf_saved_mod"):
        classifier.export(tmp_path / "model.onnx", "onnx", padded_batches=True)


# Seen once after tests that had used JAX: this test forks, and JAX warns
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_openvino(classifier, tmp_path):
    openvino = pytest.importorskip("openvino")
    classifier.export(tmp_path / "model.xml", "openvino")
    assert {path.name for path in tmp_path.iterdir()} == {"model.xml", "model.bin"}
    read = openvino.Core().read_model(tmp_path / "model.xml")
    check_description(read.get_rt_info("keras_bert").astype(str))
    model = openvino.compile_model(
        tmp_path / "model.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}
    )
    for inputs in (features(3, 7), features(1, 64), features(5, 1)):
        expected = classifier.predict(inputs, verbose=0)
        np.testing.assert_allclose(model(inputs)["logits"], expected, atol=1e-4)


@pytest.mark.filterwarnings("ignore:(?s).*tf.lite.Interpreter is deprecated")
def test_litert_takes_one_length(classifier, tmp_path):
    classifier.export(tmp_path / "model.tflite", "litert", sequence_length=16)
    check_description(zipfile.ZipFile(tmp_path / "model.tflite").read("task.json"))
    runner = tf.lite.Interpreter(str(tmp_path / "model.tflite")).get_signature_runner()
    for inputs in (features(1, 16), features(3, 16)):
        expected = classifier.predict(inputs, verbose=0)
        np.testing.assert_allclose(runner(**inputs)["logits"], expected, atol=1e-4)
    for wrong in (-1, classifier.config.vocabulary_size):
        inputs["token_ids"][1, 2] = wrong
        with pytest.raises(RuntimeError, match="gather index out of bounds"):
            runner(**inputs)

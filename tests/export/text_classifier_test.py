# SPDX-License-Identifier: Apache-2.0
"""Errors and warnings when a classifier is exported."""

import sys

import pytest

from keras_bert.export import ExportError
from tests.export.small_classifier import make_classifier

pytest.importorskip("tensorflow")

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]


@pytest.fixture(scope="module")
def classifier():
    return make_classifier(class_names=["no", "yes"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "pickle"}, "format must be one of tf_saved_model, onnx"),
        ({"format": "onnx"}, r"filepath must end in \.onnx for format='onnx'"),
        ({"dtype": "float16"}, "dtype must be one of float32, bfloat16"),
        ({"class_names": ["one"]}, "class_names must have 2 names, one per class"),
        ({"class_names": "no"}, "class_names must be a list or tuple of names"),
        ({"max_batch_size": 0}, "max_batch_size must be an integer above 0. Received: 0"),
        ({"chunk_tokens": 0}, "chunk_tokens must be an integer above 0. Received: 0"),
    ],
)
def test_invalid_arguments_raise(classifier, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        classifier.export(tmp_path / "1", **arguments)
    assert list(tmp_path.iterdir()) == []


def test_options_of_other_formats_raise(classifier, tmp_path):
    pytest.importorskip("openvino")
    with pytest.raises(ValueError, match="must be one of float32, int8"):
        classifier.export(tmp_path / "model.xml", "openvino", dtype="bfloat16")
    with pytest.raises(ValueError, match="max_text_bytes is only supported with format"):
        classifier.export(tmp_path / "model.xml", "openvino", text=True, max_text_bytes=9)
    with pytest.raises(ValueError, match="pair must be False for format='openvino'"):
        classifier.export(tmp_path / "model.xml", "openvino", pair=True)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_quantized_model_raises(tmp_path):
    quantized = make_classifier(num_classes=2)
    quantized.backbone.quantize("int8")
    with pytest.raises(
        ExportError,
        match=r"A quantized model cannot be exported. Received: .* Export the model before it "
        r"is quantized",
    ):
        quantized.export(tmp_path / "1")


def test_existing_export_is_not_overwritten(exported_classifier):
    with pytest.raises(FileExistsError, match="overwrite=True"):
        exported_classifier.classifier.export(exported_classifier.directory)


def test_overwrite_warns_about_missing_version(classifier, tmp_path, monkeypatch):
    directory = tmp_path / "model"
    (directory / "assets.extra").mkdir(parents=True)
    for name in ("task.json", "tf_serving_warmup_requests"):
        (directory / "assets.extra" / name).touch()
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    with pytest.raises(ExportError, match="pip install tensorflow-serving-api"):
        classifier.export(directory, overwrite=True, warm_up=True)
    with pytest.warns(UserWarning, match="Received: 'model'") as recorded:
        classifier.export(directory, overwrite=True)
    assert not any("serving-api" in str(warning.message) for warning in recorded)
    assert {path.name for path in directory.iterdir()} >= {"saved_model.pb", "variables"}
    assert {path.name for path in (directory / "assets.extra").iterdir()} == {
        "task.json",
        "tokenizer.json",
    }
    assert list(tmp_path.iterdir()) == [directory]

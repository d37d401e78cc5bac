# SPDX-License-Identifier: Apache-2.0
"""Models of 8-bit products: answers near those of the model, and what is asked of the caller."""

import numpy as np
import pytest

from tests.export.small_classifier import make_answerer, make_classifier

tf = pytest.importorskip("tensorflow")

import keras_bert  # noqa: E402
from keras_bert.export import ExportError  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

TEXTS = ["the cat", "able mat, a cat?", "0 1 2 3 4", "中 the", "many words of the cat " * 6]
PAIRS = [*zip(TEXTS, reversed(TEXTS), strict=True)]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    vocabulary_file = tmp_path_factory.mktemp("int8") / "vocab.txt"
    return make_classifier(vocabulary_file, class_names=["bad", "fair", "good"])


def ids_of(classifier, texts):
    features = classifier.preprocessor(texts)
    return {name: tf.cast(values, tf.int32).numpy() for name, values in features.items()}


def test_onnx(classifier, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("tf2onnx")
    path = tmp_path / "model.onnx"
    classifier.export(path, "onnx", dtype="int8")
    assert list(tmp_path.iterdir()) == [path]
    assert b"MatMulInteger" in path.read_bytes()
    session = onnxruntime.InferenceSession(path)
    (logits,) = session.run(["logits"], ids_of(classifier, TEXTS))
    expected = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(logits, expected, atol=0.3)
    assert np.max(np.abs(logits - expected)) > 0


def test_openvino_takes_pairs_of_texts(classifier, tmp_path):
    openvino = pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    pytest.importorskip("openvino_tokenizers")
    path = tmp_path / "model.xml"
    classifier.export(path, "openvino", dtype="int8", text=True, pair=True, calibration=PAIRS * 4)
    assert "FakeQuantize" in path.read_text(encoding="utf-8")
    model = openvino.compile_model(path, "CPU")
    texts, seconds = map(list, zip(*PAIRS, strict=True))
    answers = model({"text": texts, "text_pair": seconds})
    logits = classifier.predict(PAIRS, verbose=0)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(answers["probabilities"], expected, atol=0.1)


def test_openvino_takes_the_windows_of_passages(tmp_path):
    openvino = pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    answerer = make_answerer(tmp_path)
    path = tmp_path / "model.xml"
    words = ["the", "cat", "mat", "able", *"abc012?,"]
    generator = np.random.default_rng(0)
    questions = [
        (" ".join(generator.choice(words, 4)), " ".join(generator.choice(words, length)))
        for length in range(5, 45)
    ]
    answerer.export(path, "openvino", dtype="int8", calibration=questions)
    assert "FakeQuantize" in path.read_text(encoding="utf-8")
    windows = answerer.preprocessor(*(list(texts) for texts in zip(*questions, strict=True)))
    features = {
        name: tf.cast(values, tf.int32).numpy()
        for name, values in answerer.preprocessor.padded(windows).items()
    }
    outputs = openvino.compile_model(path, "CPU")(features)
    expected = answerer.predict(features, verbose=0)
    mask = features["padding_mask"] > 0
    for name, logits in expected.items():
        difference = (outputs[name] - logits)[mask]
        assert 0 < np.std(difference) < 0.5 * np.std(logits[mask])
    with pytest.raises(ValueError, match="expected a question and its passage"):
        answerer.export(tmp_path / "2.xml", "openvino", dtype="int8", calibration=["the cat?"])


@pytest.mark.filterwarnings("ignore:(?s).*tf.lite.Interpreter is deprecated")
def test_litert(classifier, tmp_path):
    classifier.export(tmp_path / "float.tflite", "litert", sequence_length=16)
    classifier.export(tmp_path / "int8.tflite", "litert", dtype="int8", sequence_length=16)
    sizes = [(tmp_path / name).stat().st_size for name in ("int8.tflite", "float.tflite")]
    assert sizes[0] < sizes[1]
    runner = tf.lite.Interpreter(str(tmp_path / "int8.tflite")).get_signature_runner()
    inputs = ids_of(classifier, ["0 1 2 3 4 5 6 7 8 9 a b c d"])
    logits = runner(**inputs)["logits"]
    np.testing.assert_allclose(logits, classifier.predict(inputs, verbose=0), atol=0.3)


def test_calibration_is_texts_for_openvino(classifier, tmp_path):
    pytest.importorskip("nncf")

    def export(name, **options):
        classifier.export(tmp_path / name, **options)

    with pytest.raises(ValueError, match="needs calibration: a list of texts"):
        export("model.xml", format="openvino", dtype="int8")
    with pytest.raises(ValueError, match=r"calibration\[1\] is \('b', 'c'\); expected a text"):
        export("model.xml", format="openvino", dtype="int8", calibration=["a", ("b", "c")])
    with pytest.raises(ValueError, match="calibration is for format='openvino'"):
        export("model.onnx", format="onnx", dtype="int8", calibration=TEXTS)
    with pytest.raises(ValueError, match="must be one of float32, bfloat16"):
        export("1", dtype="int8")
    tagger = keras_bert.TokenClassifier(classifier.backbone, num_classes=2)
    with pytest.raises(ExportError, match="is for classifiers, regressions, embedders and quest"):
        tagger.export(tmp_path / "model.xml", "openvino", dtype="int8", calibration=["a", "b"])
    assert list(tmp_path.iterdir()) == []

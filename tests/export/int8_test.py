# SPDX-License-Identifier: Apache-2.0
"""Int8 exports that need calibration data or outlier scaling.

`formats_test` tests the int8 exports that need neither.
"""

import numpy as np
import pytest

from tests.export.small_classifier import make_answerer, make_classifier

tf = pytest.importorskip("tensorflow")

import keras_bert  # noqa: E402
from keras_bert.export import ExportError  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent, pytest.mark.slow]

TEXTS = ["the cat", "able mat, a cat?", "0 1 2 3 4", "中 the", "many words of the cat " * 6]
PAIRS = [*zip(TEXTS, reversed(TEXTS), strict=True)]


@pytest.fixture(scope="module")
def classifier():
    return make_classifier(class_names=["bad", "fair", "good"])


def compute_features(classifier, texts):
    features = classifier.preprocessor(texts)
    return {name: tf.cast(values, tf.int32).numpy() for name, values in features.items()}


@pytest.mark.release  # The next test checks the scaling.
def test_onnx_with_an_outlier_channel(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("tf2onnx")
    classifier = make_classifier(num_classes=3)
    # As in pretrained encoders, one channel is much larger than the other channels for any text.
    for layer in classifier.backbone.blocks:
        bias = layer.feed_forward.intermediate_bias
        bias.assign(np.append(np.asarray(bias)[:-1], 300.0))
        kernel = layer.feed_forward.output_projection.kernel
        kernel.assign(np.concatenate([np.asarray(kernel)[:-1], np.full((1, 16), 1 / 300)]))
    path = tmp_path / "model.onnx"
    classifier.export(path, "onnx", dtype="int8")
    (logits,) = onnxruntime.InferenceSession(path).run(
        ["logits"], compute_features(classifier, TEXTS)
    )
    expected = classifier.predict(TEXTS, verbose=0)
    np.testing.assert_allclose(logits, expected, atol=0.3)


def test_scaled_channels_keep_the_matmul():
    onnx = pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from keras_bert.export.onnx_int8 import scale_outlier_channels

    generator = np.random.default_rng(0)
    kernel = generator.normal(size=(4, 3)).astype("float32")
    # Two layers share the weight, as in ALBERT. Their outliers are in different channels.
    names = {"x": "a", "y": "b"}
    nodes = [
        onnx.helper.make_node(
            "MatMul", [name, "kernel"], [output], f"{name}/feed_forward_1/output_projection_1"
        )
        for name, output in names.items()
    ]
    inputs, outputs = (
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in part]
        for part in (names, names.values())
    )
    graph = onnx.helper.make_graph(nodes, "shared", inputs, outputs)
    model = onnx.helper.make_model(
        graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)]
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "kernel"))
    features = {
        "x": np.array([[1, -1, 40, 1], [1, 1, 1, 0]], "float32"),
        "y": np.array([[1, 20, 1, 1], [-1, 0, 0, 1]], "float32"),
    }
    scale_outlier_channels(model, features)
    scaled = onnx.numpy_helper.to_array(model.graph.initializer[0])
    # The maxima are 1, 20, 40 and 1, and their median is 10.5.
    np.testing.assert_allclose(scaled, kernel * [[1], [1], [40 / 21], [1]], rtol=1e-6)
    outputs = onnxruntime.InferenceSession(model.SerializeToString()).run(["a", "b"], features)
    np.testing.assert_allclose(outputs[0], features["x"] @ kernel, atol=1e-4)
    np.testing.assert_allclose(outputs[1], features["y"] @ kernel, atol=1e-4)


def test_saved_model_matches_calibrated_task(classifier, tmp_path):
    directory = tmp_path / "1"
    classifier.export(directory, dtype="int8", pair=True, calibration=PAIRS)
    assert b"_QuantizedMatMul" in (directory / "saved_model.pb").read_bytes()
    texts, seconds = map(list, zip(*PAIRS, strict=True))
    serve = tf.saved_model.load(directory).signatures["serving_default"]
    outputs = serve(text=tf.constant(texts), text_pair=tf.constant(seconds))
    calibrated = make_classifier(class_names=["bad", "fair", "good"])
    float_logits = calibrated.predict(PAIRS, verbose=0)
    calibrated.quantize("int8", calibration=(texts, seconds))
    logits = calibrated.predict(PAIRS, verbose=0)
    assert 0 < abs(logits - float_logits).max() < 0.5
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=1e-5)


def test_openvino_int8_with_text_pairs(classifier, tmp_path):
    openvino = pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    pytest.importorskip("openvino_tokenizers")
    path = tmp_path / "model.xml"
    classifier.export(path, "openvino", dtype="int8", text=True, pair=True, calibration=PAIRS * 4)
    assert "FakeQuantize" in path.read_text(encoding="utf-8")
    model = openvino.compile_model(path, "CPU")
    texts, seconds = map(list, zip(*PAIRS, strict=True))
    outputs = model({"text": texts, "text_pair": seconds})
    logits = classifier.predict(PAIRS, verbose=0)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(outputs["probabilities"], expected, atol=0.1)


@pytest.mark.release
def test_openvino_int8_with_passage_windows(tmp_path):
    openvino = pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    answerer = make_answerer()
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
        for name, values in answerer.preprocessor.pad(windows).items()
    }
    outputs = openvino.compile_model(path, "CPU")(features)
    expected = answerer.predict(features, verbose=0)
    mask = features["padding_mask"] > 0
    for name, logits in expected.items():
        difference = (outputs[name] - logits)[mask]
        assert 0 < np.std(difference) < 0.5 * np.std(logits[mask])
    with pytest.raises(ValueError, match="must be a question and its passage"):
        answerer.export(tmp_path / "2.xml", "openvino", dtype="int8", calibration=["the cat?"])


def test_invalid_calibration_raises(classifier, tmp_path):
    pytest.importorskip("nncf")

    def export(name, **options):
        classifier.export(tmp_path / name, **options)

    with pytest.raises(ValueError, match="requires calibration, about 300 texts"):
        export("model.xml", format="openvino", dtype="int8")
    with pytest.raises(ValueError, match=r"calibration must contain only .* \(index 1\)"):
        export("model.xml", format="openvino", dtype="int8", calibration=["a", ("b", "c")])
    with pytest.raises(ValueError, match="calibration is only supported with dtype='int8'"):
        export("model.onnx", format="onnx", dtype="int8", calibration=TEXTS)
    with pytest.raises(ValueError, match="'tf_saved_model' with dtype='int8' requires calibration"):
        export("1", dtype="int8")
    tagger = keras_bert.TokenClassifier(classifier.backbone, num_classes=2)
    with pytest.raises(ExportError, match="only supported for classifiers, regressions, embedders"):
        tagger.export(tmp_path / "model.xml", "openvino", dtype="int8", calibration=["a", "b"])
    assert list(tmp_path.iterdir()) == []

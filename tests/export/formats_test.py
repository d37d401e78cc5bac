# SPDX-License-Identifier: Apache-2.0
"""Exports to ONNX, OpenVINO and LiteRT, each run by its own runtime."""

import functools
import json
import sys
import zipfile

import numpy as np
import pytest

import keras_bert
from keras_bert.data import TextClassifierPreprocessor
from keras_bert.export import ExportError
from tests.export.served_tasks import make_served_task
from tests.export.small_classifier import make_classifier
from tests.text import small_tokenizers

tf = pytest.importorskip("tensorflow")

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent, pytest.mark.slow]


@pytest.fixture(scope="module")
def classifier():
    return make_classifier(num_classes=3)


@pytest.fixture(scope="module")
def export_once(classifier, tmp_path_factory):
    """Returns a function that exports once per format and dtype."""

    @functools.cache
    def export(format, dtype):
        path = tmp_path_factory.mktemp("exported") / FILES[format]
        options = {"sequence_length": 16} if format == "litert" else {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "tensorflow_text", None)  # It is also missing on Windows.
            classifier.export(path, format, dtype=dtype, **options)
        return path

    return export


FILES = {
    "onnx": "model.onnx",
    "openvino": "model.xml",
    "litert": "model.tflite",
    "mediapipe": "model.tflite",
}


def make_features(batch, length):
    generator = np.random.default_rng(batch)
    ids = generator.integers(4, 70, (batch, length), dtype="int32")
    segments = generator.integers(0, 2, (batch, length), dtype="int32")
    mask = np.arange(length) < np.linspace(1, length, batch)[:, None]
    return {"token_ids": ids, "segment_ids": segments, "padding_mask": mask.astype("int32")}


def check_description(description):
    """Checks the task description that each format stores in its own place."""
    fields = json.loads(description)
    assert (fields["task"], fields["predict_method"], fields["fields"]) == (
        "TextClassifier",
        "classify",
        ["text"],
    )


def test_onnx_matches_predict(classifier, export_once):
    pytest.importorskip("tf2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(export_once("onnx", "float32"))
    check_description(session.get_modelmeta().custom_metadata_map["keras_bert"])
    for inputs in (make_features(3, 7), make_features(1, 64), make_features(5, 1)):
        (logits,) = session.run(["logits"], inputs)
        expected = classifier.predict(inputs, verbose=0)
        np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("platform", "advice"), [("win32", "It does not support Windows"), ("linux", "`pip install")]
)
def test_missing_tensorflow_text_raises(classifier, platform, advice, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_text", None)
    monkeypatch.setattr(sys, "platform", platform)
    for arguments in (("1",), ("model.xml", "openvino")):
        with pytest.raises(
            keras_bert.export.ExportError, match=f"requires the package tensorflow_text. .*{advice}"
        ):
            classifier.export(tmp_path / arguments[0], *arguments[1:], text=len(arguments) > 1)
    monkeypatch.delitem(sys.modules, "keras_bert.text.graph.wordpiece", raising=False)
    tokenizer = keras_bert.WordPieceTokenizer(classifier.preprocessor.tokenizer.vocabulary)
    with pytest.raises(ModuleNotFoundError, match=r"no Windows wheels. Pass strings"):
        tokenizer(tf.constant(["a"]))


def read_axes(nodes):
    return {node.name: node.shape for node in nodes}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_onnx_axes_and_out_of_vocabulary_ids(classifier, dtype, export_once):
    pytest.importorskip("tf2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(export_once("onnx", dtype), options)
    inputs = make_features(2, 5)
    assert read_axes(session.get_inputs()) == {name: ["batch", "length"] for name in inputs}
    assert read_axes(session.get_outputs()) == {"logits": ["batch", 3]}
    size = classifier.config.vocabulary_size
    for token_id in (-1, -size, -size - 1, size):
        inputs["token_ids"][1, 2] = token_id
        with pytest.raises(Exception, match="indices element out of data bounds"):
            session.run(None, inputs)
    inputs["token_ids"][1, 2] = size - 1
    assert session.run(None, inputs)[0].shape == (2, 3)


@pytest.mark.release
def test_onnx_axes_of_multiple_choice(classifier, tmp_path):
    """`tests/training/benchmarks/compare_exports_test.py` exports question answering."""
    pytest.importorskip("tf2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    keras_bert.MultipleChoice(classifier.backbone).export(tmp_path / "model.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    inputs = ["batch", "choices", "length"]
    assert read_axes(session.get_inputs()) == dict.fromkeys(make_features(1, 1), inputs)
    assert read_axes(session.get_outputs()) == {"logits": ["batch", "choices"]}


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:(?s).*tf.lite.Interpreter is deprecated")
@pytest.mark.parametrize(
    "format",
    [
        "onnx",
        pytest.param("openvino", marks=pytest.mark.release),
        pytest.param("litert", marks=pytest.mark.release),
    ],
)
def test_label_sequences_match_tagger(classifier, format, tmp_path):
    runtime = pytest.importorskip(
        {"onnx": "onnxruntime", "litert": "tensorflow"}.get(format, format)
    )
    names = ["O", "B-A", "I-A", "B-B", "I-B"]
    tagger = keras_bert.TokenClassifier(
        classifier.backbone, class_names=names, crf=True, scheme="IOB2"
    )
    generator = np.random.default_rng(0)
    for weight in (*tagger.head.weights, *tagger.crf_layer.weights):
        weight.assign(generator.normal(0, 1, weight.shape))
    path = tmp_path / FILES[format]
    tagger.export(path, format, **({"sequence_length": 16} if format == "litert" else {}))
    if format == "onnx":
        run = functools.partial(runtime.InferenceSession(path).run, None)
    elif format == "openvino":
        run = runtime.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    else:
        run = tf.lite.Interpreter(str(path)).get_signature_runner()
    inputs = make_features(3, 16)
    mask = inputs["padding_mask"] * generator.integers(0, 2, (3, 16), dtype="int32")
    outputs = (
        run(dict(inputs, word_mask=mask)) if format != "litert" else run(**inputs, word_mask=mask)
    )
    if format == "onnx":
        outputs = dict(zip(("labels", "logits", "scores"), outputs, strict=True))
    logits = tagger.predict(inputs, verbose=0)
    expected = tagger.decode([row[words] for row, words in zip(logits, mask == 1, strict=True)])
    for name, values in zip(("labels", "scores"), expected, strict=True):
        np.testing.assert_allclose(outputs[name][mask == 1], np.concatenate(values), atol=1e-5)
    assert set(outputs["labels"][mask == 0]) == {-1}


def test_onnx_sparse_embeddings_match_embed(tmp_path):
    pytest.importorskip("tf2onnx")
    pytest.importorskip("scipy")
    onnxruntime = pytest.importorskip("onnxruntime")
    embedder = make_served_task("sparse").task
    embedder.export(tmp_path / "model.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    ids = embedder.preprocessor(["the cat", "able " * 9])
    inputs = {name: np.asarray(values, "int32") for name, values in ids.items()}
    inputs["segment_ids"] = np.zeros_like(inputs["token_ids"])
    (weights,) = session.run(["embedding"], inputs)
    expected = embedder.embed(["the cat", "able " * 9]).toarray()
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    with pytest.raises(ExportError, match=r"dense embedders .* Received: a SparseEmbedder"):
        embedder.export(tmp_path / "model.tflite", "mediapipe")


def test_litert_rejects_multiple_choice(classifier, tmp_path):
    with pytest.raises(ValueError, match="'onnx' or 'openvino' for multiple choice"):
        keras_bert.MultipleChoice(classifier.backbone).export(tmp_path / "m.tflite", "litert")


def test_padded_batches_require_saved_model(classifier, tmp_path):
    with pytest.raises(
        ValueError, match="padded_batches is only supported with format='tf_saved_mod"
    ):
        classifier.export(tmp_path / "model.onnx", "onnx", padded_batches=True)


# This test forks, and JAX warns if earlier tests have used it.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_openvino_matches_predict(classifier, export_once):
    openvino = pytest.importorskip("openvino")
    path = export_once("openvino", "float32")
    assert {file.name for file in path.parent.iterdir()} == {"model.xml", "model.bin"}
    loaded_model = openvino.Core().read_model(path)
    check_description(loaded_model.get_rt_info("keras_bert").astype(str))
    model = openvino.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for inputs in (make_features(3, 7), make_features(1, 64), make_features(5, 1)):
        expected = classifier.predict(inputs, verbose=0)
        np.testing.assert_allclose(model(inputs)["logits"], expected, atol=1e-4)


@pytest.mark.filterwarnings("ignore:(?s).*tf.lite.Interpreter is deprecated")
def test_litert_has_a_fixed_length(classifier, export_once):
    path = export_once("litert", "float32")
    check_description(zipfile.ZipFile(path).read("task.json"))
    runner = tf.lite.Interpreter(str(path)).get_signature_runner()
    for inputs in (make_features(1, 16), make_features(3, 16)):
        expected = classifier.predict(inputs, verbose=0)
        np.testing.assert_allclose(runner(**inputs)["logits"], expected, atol=1e-4)
    for token_id in (-1, classifier.config.vocabulary_size):
        inputs["token_ids"][1, 2] = token_id
        with pytest.raises(RuntimeError, match="gather index out of bounds"):
            runner(**inputs)


# === MediaPipe. `tests/installed/mediapipe_client.py` runs MediaPipe itself ===


def read_metadata(path):
    """Returns a function that reads a field of TFLite metadata.

    Its arguments are the field's index in each table on the way to it, as in
    `metadata_schema.fbs`, and the index of the table in a vector.
    """
    flatbuffers = pytest.importorskip("flatbuffers")
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model(str(path))
    (buffer,) = (entry.buffer for entry in model.metadata if entry.name == b"TFLITE_METADATA")
    content = bytearray(model.buffers[buffer].data)
    assert content[4:8] == b"M001"
    types = flatbuffers.number_types

    def read(*way, kind=bytes):
        table = flatbuffers.table.Table(content, 0)
        table.Pos = table.Get(types.UOffsetTFlags, 0)
        for slot in way[:-1]:
            slot, index = slot if isinstance(slot, tuple) else (slot, None)
            start = table.Offset(4 + 2 * slot)
            if index is None:
                table.Pos = table.Indirect(table.Pos + start)
            else:
                assert index < table.VectorLen(start)
                table.Pos = table.Indirect(table.Vector(start) + 4 * index)
        start = table.Offset(4 + 2 * way[-1])
        if kind is int:
            return table.Get(types.Int8Flags, table.Pos + start)
        return table.String(table.Pos + start)

    return read


@pytest.mark.filterwarnings("ignore:(?s).*tf.lite.Interpreter is deprecated")
def test_mediapipe_model_contains_tokenizer_and_labels(classifier, export_once):
    path = export_once("mediapipe", "float32")
    with zipfile.ZipFile(path) as archive:
        check_description(archive.read("task.json"))
        assert archive.read("labels.txt") == b"0\n1\n2"
        vocabulary = tuple(archive.read("vocab.txt").decode().split("\n"))
        assert vocabulary == classifier.preprocessor.tokenizer.vocabulary
        # MediaPipe does not decompress files.
        assert {file.compress_type for file in archive.infolist()} == {zipfile.ZIP_STORED}
    read, graph = read_metadata(path), (3, 0)
    names = [read(graph, (2, index), 0) for index in range(3)]
    assert sorted(names) == [b"ids", b"mask", b"segment_ids"]
    tokenizer, label_file = (graph, (5, 0)), (graph, (3, 0), (6, 0))
    assert (read(*tokenizer, 0, kind=int), read(*tokenizer, 1, (0, 0), 0)) == (4, b"vocab.txt")
    assert read(*tokenizer, 1, (0, 0), 2, kind=int) == 5
    assert (read(*label_file, 0), read(*label_file, 2, kind=int)) == (b"labels.txt", 2)
    assert read(graph, (3, 0), 0) == b"probability"
    # MediaPipe recognizes the inputs by their position in the metadata.
    interpreter = tf.lite.Interpreter(str(path))
    interpreter.allocate_tensors()
    features = make_features(1, 48)  # The preprocessor's sequence length
    inputs = {b"ids": "token_ids", b"segment_ids": "segment_ids", b"mask": "padding_mask"}
    for name, tensor in zip(names, interpreter.get_input_details(), strict=True):
        interpreter.set_tensor(tensor["index"], features[inputs[name]])
    interpreter.invoke()
    (output,) = interpreter.get_output_details()
    probabilities = tf.nn.softmax(classifier.predict(features, verbose=0))
    np.testing.assert_allclose(interpreter.get_tensor(output["index"]), probabilities, atol=1e-5)


def test_mediapipe_rejects_tasks_with_other_answers(classifier, tmp_path):
    tokens = classifier.preprocessor.tokenizer.vocabulary

    def export(task, **options):
        task.export(tmp_path / "m.tflite", "mediapipe", **options)

    for options, reason in (
        ({"lowercase": False}, "MediaPipe lowercases all texts"),
        ({"tokenize_chinese_chars": False}, "MediaPipe splits ideographs"),
        ({"special_tokens_in_text": True}, r"finds \[PAD\], .*\[SEP\] in texts"),
        ({"truncation_side": "left"}, "truncates on the right"),
    ):
        preprocessor = TextClassifierPreprocessor(
            keras_bert.WordPieceTokenizer(tokens, **options), 48
        )
        task = keras_bert.TextClassifier(classifier.backbone, 2, preprocessor=preprocessor)
        with pytest.raises(ExportError, match=rf"Received: a WordPieceTokenizer .*{reason}"):
            export(task)
    preprocessor = TextClassifierPreprocessor(small_tokenizers.make("byte_pair"), 48)
    config = classifier.config.replace(vocabulary_size=preprocessor.tokenizer.vocabulary_size)
    task = keras_bert.TextEmbedder(keras_bert.Backbone(config), preprocessor)
    with pytest.raises(ExportError, match=r"a BytePairTokenizer \(kind='byte_pair'\)"):
        export(task)
    for task in (
        keras_bert.TokenClassifier(classifier.backbone, num_classes=2),
        keras_bert.NextSentencePredictor(classifier.backbone),
    ):
        with pytest.raises(ExportError, match=f"single text. Received: a {type(task).__name__}"):
            export(task)
    preprocessor = TextClassifierPreprocessor(
        classifier.preprocessor.tokenizer, 48, long_texts="mean"
    )
    with pytest.raises(ExportError, match=r"long_texts='truncate', .* Received: 'mean'"):
        export(keras_bert.TextEmbedder(classifier.backbone, preprocessor))
    with pytest.raises(ExportError, match=r"one line, .*Received: 'a\\nb'"):
        export(classifier, class_names=["a\nb", "c", "d"])
    with pytest.raises(ValueError, match="does not accept text pairs"):
        export(classifier, pair=True)


# === Int8: predictions are close to the float32 predictions ===


def test_onnx_int8_is_close_to_predict(classifier, export_once):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("tf2onnx")
    path = export_once("onnx", "int8")
    assert list(path.parent.iterdir()) == [path]
    assert b"MatMulInteger" in path.read_bytes()
    session = onnxruntime.InferenceSession(path)
    inputs = make_features(5, 40)
    (logits,) = session.run(["logits"], inputs)
    expected = classifier.predict(inputs, verbose=0)
    # The 7-bit weights of this small model change its logits (up to 3.8) by up to 0.4.
    np.testing.assert_allclose(logits, expected, atol=0.5)
    assert np.max(np.abs(logits - expected)) > 0


@pytest.mark.filterwarnings("ignore:(?s).*tf.lite.Interpreter is deprecated")
def test_litert_int8_is_close_to_predict(classifier, export_once):
    int8_path, path = export_once("litert", "int8"), export_once("litert", "float32")
    assert int8_path.stat().st_size < path.stat().st_size
    runner = tf.lite.Interpreter(str(int8_path)).get_signature_runner()
    inputs = make_features(2, 16)
    logits = runner(**inputs)["logits"]
    np.testing.assert_allclose(logits, classifier.predict(inputs, verbose=0), atol=0.3)

# SPDX-License-Identifier: Apache-2.0
"""Compares OpenVINO models with text input with the tokenizers and with the tasks."""

import itertools
import json
import random
import subprocess
import sys
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
openvino = pytest.importorskip("openvino")
pytest.importorskip("openvino_tokenizers")
pytest.importorskip("sentencepiece")

import keras_bert  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from keras_bert.data.arrays import NUMPY  # noqa: E402
from keras_bert.export import ExportError  # noqa: E402
from keras_bert.export.openvino_text import (  # noqa: E402
    _merge_windows,
    answers_of_logits,
    text_model,
)
from keras_bert.text import (  # noqa: E402
    BytePairTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
    tokenizer_from_config,
    train_byte_pair_vocabulary,
    train_sentence_piece_model,
)
from tests.checkpoints.small_models import small_config  # noqa: E402
from tests.export.small_classifier import make_classifier  # noqa: E402
from tests.text import families, real_text, small_tokenizers  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent, pytest.mark.slow]

CHARACTERS = (
    "abAB09éÉßİıΑΣσςΩ'.-_$`~¿—…«」「、。ﬁ½①²\u00ad\u200b\u200d\ufeff\u2028\x85\x1c\t\n\r  \xa0"
    "\u3000\ufffd中国\uf900\U0002f81a한국ｶﾞがガกำ่ำ\u0e49हिन्दी\u0301\u0327\u0323\u0345\u20e3#[]MASK"
    "😀👍🏽\ue000\uffff\U0010ffff𝚺ᾼǅﬁ,,``''0,1,"
)
TEXTS = [
    "", " ", "a test that fails", "Größe été naïve 中国 Ελλάδα, in 1990, and 2,000; it's, they'll",
    "ΑΣ ΣΑ ΑΣΑ ΟΔΟΣ. Α'Σ ΑΣ\u0301 ΑΣ\u0301Α İI", "a [MASK] [SEP] <mask> </s>", "##able ## #",
    "y" * 200, "y" * 201 + " " + "é" * 200 + " " + "é" * 201 + "!", "中" * 201, "b" * 5000,
    "the case is a class of tests " * 40,
]  # fmt: skip
PAIRS = ["", "a method", "é" * 40, "it is run, and more of it " * 20, "setUp"]
LENGTH = 48


def compile_text_model(preprocessor, pair=False):
    return openvino.compile_model(text_model(preprocessor, pair=pair), "CPU")


def to_string_tensor(texts):
    return openvino.Tensor(np.array([t if isinstance(t, bytes) else t.encode() for t in texts]))


def find_mismatches(preprocessor, model, *columns):
    """Returns the rows whose features differ from the preprocessor's."""
    actual = model(dict(zip(("text", "text_pair"), map(to_string_tensor, columns), strict=False)))
    expected = preprocessor(*map(tf.constant, columns))
    is_mismatch = np.zeros(len(columns[0]), bool)
    for name, values in expected.items():
        is_mismatch |= np.any(actual[name] != tf.cast(values, tf.int32).numpy(), axis=1)
    return [
        row
        for row, mismatch in zip(zip(*columns, strict=True), is_mismatch, strict=True)
        if mismatch
    ]


def mixed_texts(count=400):
    generator = random.Random(0)
    return [
        "".join(generator.choices(CHARACTERS, k=generator.randint(1, 25))) + "."
        for _ in range(count)
    ]


def make_added_tokens_tokenizer():
    return WordPieceTokenizer(
        [*small_tokenizers.wordpiece_vocabulary(), "[E1]", "Éa"],
        special_tokens_in_text=True,
        added_tokens=["[E1]", "Éa"],
        normalized_tokens=["Éa"],
    )


def make_eurobert_tokenizer():
    """Creates the tokenizer without the only word that no merge produces."""
    config = families.CONFIGS["eurobert"]()
    return tokenizer_from_config(
        {**config, "vocabulary": [t for t in config["vocabulary"] if t != "Ġhello"]}
    )


TOKENIZERS = {
    "uncased": lambda: small_tokenizers.make("wordpiece"),
    "cased": lambda: small_tokenizers.make("wordpiece", lowercase=False),
    "strip_accents, tokenize_chinese_chars=False": lambda: small_tokenizers.make(
        "wordpiece", strip_accents=False, tokenize_chinese_chars=False
    ),
    "mpnet": lambda: tokenizer_from_config(small_tokenizers.mpnet_config()),
    "added": make_added_tokens_tokenizer,
    "byte_pair": lambda: small_tokenizers.make("byte_pair"),
    "add_prefix_space": lambda: small_tokenizers.make("byte_pair", add_prefix_space=True),
    "sentence_piece": lambda: small_tokenizers.make("sentence_piece"),
    "keep_accents": lambda: small_tokenizers.make("sentence_piece", keep_accents=True),
    "eurobert": lambda: make_eurobert_tokenizer(),
    "xlm_roberta": lambda: families.make("xlm_roberta"),
    "albert_rules=False": lambda: small_tokenizers.make(
        "sentence_piece", lowercase=False, keep_accents=True, albert_rules=False
    ),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_features_match_preprocessor(name):
    preprocessor = TextClassifierPreprocessor(TOKENIZERS[name](), LENGTH)
    model = compile_text_model(preprocessor)
    assert find_mismatches(preprocessor, model, TEXTS) == []
    assert find_mismatches(preprocessor, model, [""]) == []
    assert find_mismatches(preprocessor, model, mixed_texts()) == []
    invalid_texts = [
        b"a\xffb",
        b"\xe2\x82A b",
        b"\xed\xa0\x80 c\xc0\x80.",
        b"nul\0in it",
        b"\xf5\x80\x80\x80a",
    ]
    assert find_mismatches(preprocessor, model, invalid_texts) == []


# The ids of all kinds are truncated by the same nodes, so one kind covers the left side.
@pytest.mark.parametrize(
    ("kind", "side"),
    [
        ("wordpiece", "right"),
        ("wordpiece", "left"),
        ("byte_pair", "right"),
        ("sentence_piece", "right"),
    ],
)
def test_pair_truncation_matches_preprocessor(kind, side):
    tokenizer = small_tokenizers.make(kind, truncation_side=side)
    preprocessor = TextClassifierPreprocessor(tokenizer, 20 + (side == "left"))
    model = compile_text_model(preprocessor, pair=True)
    columns = zip(*itertools.product(TEXTS, PAIRS), strict=True)
    assert find_mismatches(preprocessor, model, *map(list, columns)) == []


@pytest.mark.parametrize(
    ("kind", "side", "overlap"),
    [("wordpiece", "left", None), ("byte_pair", "right", 3), ("sentence_piece", "right", None)],
)
@pytest.mark.parametrize("pair", [False, True])
def test_windows_match_preprocessor(kind, side, overlap, pair):
    tokenizer = small_tokenizers.make(kind, truncation_side=side)
    preprocessor = TextClassifierPreprocessor(tokenizer, 21, long_texts="mean", overlap=overlap)
    model = compile_text_model(preprocessor, pair=pair)
    columns = [*zip(*itertools.product(TEXTS, PAIRS), strict=True)] if pair else [TEXTS]
    for rows in (slice(None), slice(1)):
        texts = [list(column[rows]) for column in columns]
        inputs = dict(zip(("text", "text_pair"), map(to_string_tensor, texts), strict=False))
        actual = model(inputs)
        windows, counts = preprocessor.pack_windows(*texts)
        assert actual["num_windows"].tolist() == counts.tolist()
        expected = windows.padded_to_longest(NUMPY, len(columns), tokenizer.pad_token_id)
        for name, values in expected.items():
            width = values.shape[1]
            np.testing.assert_array_equal(actual[name][:, :width], values)
            assert not actual["padding_mask"][:, width:].any()


@pytest.mark.parametrize(("long_texts", "normalize"), [("mean", True), ("max", False)])
def test_windows_are_merged_by_text(long_texts, normalize):
    outputs = openvino.opset15.parameter([-1, 3], openvino.Type.f32)
    counts = openvino.opset15.parameter([-1], openvino.Type.i32)
    preprocessor = SimpleNamespace(long_texts=long_texts)
    task = SimpleNamespace(preprocessor=preprocessor, normalize=normalize)
    merged = _merge_windows(outputs.output(0), counts.output(0), task)
    model = openvino.Model([merged], [outputs, counts], "merge")
    values = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    actual = openvino.compile_model(model, "CPU", options)([values, np.array([1, 3, 2], "int32")])
    parts = np.split(values, [1, 4])
    expected = np.array([getattr(np, long_texts)(part, axis=0) for part in parts])
    norms = np.linalg.norm(expected, axis=1, keepdims=True) if normalize else 1
    np.testing.assert_allclose(actual[0], expected / norms, atol=1e-6)


def test_mismatched_pair_counts_raise():
    preprocessor = TextClassifierPreprocessor(small_tokenizers.make("wordpiece"), LENGTH)
    # With one thread, OpenVINO only raises errors of asynchronous requests.
    one_thread = {"INFERENCE_NUM_THREADS": 1}
    model = openvino.compile_model(text_model(preprocessor, pair=True), "CPU", one_thread)
    request = model.create_infer_request()

    def compute_ids(texts, pairs):
        request.start_async({"text": texts, "text_pair": pairs})
        request.wait()
        return request.get_tensor("token_ids").data

    empty = openvino.Tensor(openvino.Type.string, openvino.Shape([0]))
    four, single = to_string_tensor(["a", "b", "c", "d"]), to_string_tensor(["a"])
    for texts, pairs in (
        (four, single),
        (single, four),
        (empty, empty),
        (empty, single),
        (four, empty),
    ):
        assert compute_ids(four, four).shape == (4, 5)
        with pytest.raises(RuntimeError, match="mismatch"):
            compute_ids(texts, pairs)


# An empty name, names of different lengths, and names with multi-byte characters
CLASS_NAMES = ["bad", "", "größer", "中国", "x" * 40]


@pytest.fixture(scope="module")
def labeled_export(tmp_path_factory):
    """A pair classifier with five classes, its export, and pairs that cover all classes."""
    path = tmp_path_factory.mktemp("labeled_export") / "model.xml"
    classifier = make_classifier(class_names=CLASS_NAMES)
    generator = random.Random(0)
    texts = [
        "".join(generator.choices("abcdefgh ,?", k=generator.randint(0, 40))) for _ in range(800)
    ]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    # Scale the logits so that every class is the best for some pairs.
    logits = classifier.predict(pairs)
    dense = classifier.head.dense
    dense.kernel.assign(dense.kernel / logits.std(axis=0))
    dense.bias.assign((dense.bias - logits.mean(axis=0)) / logits.std(axis=0))
    classifier.export(path, "openvino", text=True, pair=True)
    return classifier, path, pairs


def to_columns(pairs):
    return dict(zip(("text", "text_pair"), map(list, zip(*pairs, strict=True)), strict=True))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("threads", [{}, {"INFERENCE_NUM_THREADS": 1}])
def test_labels_match_classify(labeled_export, threads, is_async):
    classifier, path, pairs = labeled_export
    labels = [prediction["label"] for prediction in classifier.classify(pairs)]
    assert set(labels) == set(CLASS_NAMES)
    options = {"INFERENCE_PRECISION_HINT": "f32", **threads}
    model = openvino.compile_model(path, "CPU", options)
    request = model.create_infer_request()
    generator = random.Random(1)
    for _ in range(60):
        rows = generator.choices(range(len(pairs)), k=generator.choice([1, 2, 3, 7, 30]))
        inputs = to_columns([pairs[row] for row in rows])
        inputs = {name: to_string_tensor(texts) for name, texts in inputs.items()}
        if is_async:
            request.start_async(inputs)
            request.wait()
            actual_labels = request.get_tensor("label").str_data
        else:
            actual_labels = model(inputs)["label"]
        assert actual_labels.tolist() == [labels[row] for row in rows]


@pytest.mark.parametrize("names", [CLASS_NAMES, ["", "", ""], ["", "", "größer"]])
def test_label_output_selects_best_class(names):
    logits = openvino.opset15.parameter([-1, len(names)], openvino.Type.f32)
    model = openvino.Model([answers_of_logits(logits, names)["label"]], [logits], "answers")
    request = openvino.compile_model(model, "CPU").create_infer_request()
    # OpenVINO only checks batch shapes if they differ from the previous batch.
    for pair in itertools.product(range(len(names)), repeat=2):
        for classes in (pair, pair[:1], pair * 2):
            request.start_async([np.eye(len(names), dtype="float32")[list(classes)]])
            request.wait()
            actual_labels = request.get_output_tensor().str_data.tolist()
            assert actual_labels == [names[index] for index in classes]


def test_label_below_min_score_is_empty():
    logits = openvino.opset15.parameter([-1, 2], openvino.Type.f32)
    label = answers_of_logits(logits, ["a", "b"], min_score=0.75)["label"]
    model = openvino.compile_model(openvino.Model([label], [logits], "answers"), "CPU")
    outputs = model([np.array([[0, 1], [0, 2], [1, 0], [2, 0]], "float32")])
    assert outputs[0].tolist() == ["", "b", "", "a"]


def test_multi_label_outputs():
    logits = openvino.opset15.parameter([-1, 2], openvino.Type.f32)
    nodes = answers_of_logits(logits, ["a", "b"], [0.5, 0.9])
    model = openvino.Model(list(nodes.values()), [logits], "answers")
    outputs = openvino.compile_model(model, "CPU")([np.array([[0.0, 2.0], [-1, 3]], "float32")])
    assert list(nodes) == ["probabilities", "applies"]
    np.testing.assert_allclose(outputs[0], 1 / (1 + np.exp([[0, -2], [1, -3]])), rtol=1e-6)
    assert outputs[1].tolist() == [[True, False], [False, True]]


# A process with OpenVINO, but without TensorFlow, Keras and this package
FRESH_PROCESS = """
import json, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tensorflow_text", "keras", "keras_bert"):
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Blocker())
import openvino
import openvino_tokenizers
model = openvino.compile_model(sys.argv[1], "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
answers = model(json.loads(sys.argv[2]))
print(json.dumps({output.get_any_name(): answers[output].tolist() for output in model.outputs}))
"""


def test_classifier_runs_without_tensorflow(labeled_export):
    classifier, path, _ = labeled_export
    assert {file.name for file in path.parent.iterdir()} == {"model.xml", "model.bin"}
    pairs = [*zip([*TEXTS[:4], "Café? " * 30], PAIRS, strict=True)]
    finished = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(path), json.dumps(to_columns(pairs))],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    outputs = json.loads(finished.stdout)
    expected = classifier.classify(pairs)
    assert outputs["label"] == [prediction["label"] for prediction in expected]
    scores = [prediction["score"] for prediction in expected]
    np.testing.assert_allclose(outputs["score"], scores, atol=1e-5)
    np.testing.assert_allclose(np.max(outputs["probabilities"], axis=1), scores, atol=1e-5)


@pytest.mark.release  # The conversion takes fifteen seconds, and the parts are tested above.
def test_byte_pair_embedder_matches_embed(tmp_path):
    tokenizer = small_tokenizers.make("byte_pair")
    config = small_config(
        vocabulary_size=tokenizer.vocabulary_size,
        num_layers=1,
        max_sequence_length=LENGTH,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.5,
    )
    embedder = keras_bert.TextEmbedder(
        keras_bert.Backbone(config), TextClassifierPreprocessor(tokenizer, LENGTH)
    )
    embedder.export(tmp_path / "model.xml", "openvino", text=True)
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    outputs = openvino.compile_model(tmp_path / "model.xml", "CPU", options)({"text": TEXTS[:6]})
    np.testing.assert_allclose(outputs["embedding"], embedder.embed(TEXTS[:6]), atol=1e-4)


def test_unsupported_tokenizers_raise(tmp_path):
    classifier = make_classifier(num_classes=2)
    for name, format in (("model.onnx", "onnx"), ("model.tflite", "litert")):
        with pytest.raises(ExportError, match="Pass format='openvino'"):
            classifier.export(tmp_path / name, format, text=True)
    tagger = keras_bert.TokenClassifier(classifier.backbone, num_classes=2)
    with pytest.raises(ExportError, match=r"do not return token offsets\. Received: a TokenC"):
        tagger.export(tmp_path / "model.xml", "openvino", text=True)
    tokenizer = small_tokenizers.make("byte_pair", special_tokens_in_text=True)
    with pytest.raises(ExportError, match="finds special tokens in texts"):
        text_model(TextClassifierPreprocessor(tokenizer), pair=False)
    spaces = {**families.CONFIGS["modernbert"](), "compose": False}
    for tokenizer, reason in (
        (families.make("modernbert"), "composes characters"),
        (families.make("eurobert"), "has words that no merge produces"),
        (families.make("mmbert"), r"merges characters across words \(byte_fallback=True\)"),
        (tokenizer_from_config(spaces), "has a word equal to the added token ' +'"),
    ):
        with pytest.raises(ExportError, match=reason):
            text_model(TextClassifierPreprocessor(tokenizer), pair=False)


# === All characters, and real text ===


CORPUS = "pretraining/wikitext-2.valid.tokens"
REAL_TOKENIZERS = {
    "uncased": lambda: WordPieceTokenizer(real_text.vocabulary("uncased")),
    "cased": lambda: WordPieceTokenizer(real_text.vocabulary("cased"), lowercase=False),
    "byte_pair": lambda: BytePairTokenizer(
        *train_byte_pair_vocabulary(real_text.data_directory() / CORPUS, 8000, progress=False)
    ),
    "sentence_piece": lambda: SentencePieceTokenizer(
        train_sentence_piece_model(real_text.data_directory() / CORPUS, 8000, progress=False)
    ),
}


@real_text.requires_data
@pytest.mark.parametrize("name", REAL_TOKENIZERS)
def test_characters_and_real_text_match_preprocessor(name):
    preprocessor = TextClassifierPreprocessor(REAL_TOKENIZERS[name](), 512)
    model = compile_text_model(preprocessor)
    assigned = [
        chr(point)
        for point in range(1, 0x110000, 4 if real_text.WHOLE else 16)
        if unicodedata.category(chr(point)) not in ("Cn", "Cs", "Co")
    ]
    texts = [f"a{character}b {character} the." for character in assigned]
    for start in range(0, len(texts), 1024):
        assert find_mismatches(preprocessor, model, texts[start : start + 1024]) == []
    for lines in real_text.batches(512, every=60):
        assert find_mismatches(preprocessor, model, [f"{line}." for line in lines]) == []

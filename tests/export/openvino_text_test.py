# SPDX-License-Identifier: Apache-2.0
"""OpenVINO models that take text: the same ids as the tokenizer's, the same answers."""

import itertools
import json
import random
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
openvino = pytest.importorskip("openvino")
pytest.importorskip("openvino_tokenizers")
pytest.importorskip("sentencepiece")

import keras_bert  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from keras_bert.export import ExportError  # noqa: E402
from keras_bert.export.openvino_text import answers_of_logits, text_model  # noqa: E402
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


def compiled(preprocessor, pair=False):
    return openvino.compile_model(text_model(preprocessor, pair=pair), "CPU")


def strings(texts):
    return openvino.Tensor(np.array([t if isinstance(t, bytes) else t.encode() for t in texts]))


def differing(preprocessor, model, *columns):
    """The rows of texts whose features are not the preprocessor's."""
    received = model(dict(zip(("text", "text_pair"), map(strings, columns), strict=False)))
    expected = preprocessor(*map(tf.constant, columns))
    wrong = np.zeros(len(columns[0]), bool)
    for name, values in expected.items():
        wrong |= np.any(received[name] != tf.cast(values, tf.int32).numpy(), axis=1)
    return [
        row for row, is_wrong in zip(zip(*columns, strict=True), wrong, strict=True) if is_wrong
    ]


def mixed_texts(count=1500):
    draw = random.Random(0)
    return ["".join(draw.choices(CHARACTERS, k=draw.randint(1, 25))) + "." for _ in range(count)]


def added_tokens():
    return WordPieceTokenizer(
        [*small_tokenizers.wordpiece_vocabulary(), "[E1]", "Éa"],
        special_tokens_in_text=True,
        added_tokens=["[E1]", "Éa"],
        normalized_tokens=["Éa"],
    )


def eurobert():
    """Without the one word that no merges lead to."""
    config = families.CONFIGS["eurobert"]()
    return tokenizer_from_config(
        {**config, "vocabulary": [t for t in config["vocabulary"] if t != "Ġhello"]}
    )


TOKENIZERS = {
    "uncased": lambda: small_tokenizers.make("wordpiece"),
    "cased": lambda: small_tokenizers.make("wordpiece", lowercase=False),
    "accents": lambda: small_tokenizers.make("wordpiece", strip_accents=False),
    "ideographs": lambda: small_tokenizers.make("wordpiece", tokenize_chinese_chars=False),
    "mpnet": lambda: tokenizer_from_config(small_tokenizers.mpnet_config()),
    "added": added_tokens,
    "byte_pair": lambda: small_tokenizers.make("byte_pair"),
    "prefixed": lambda: small_tokenizers.make("byte_pair", add_prefix_space=True),
    "sentence_piece": lambda: small_tokenizers.make("sentence_piece"),
    "pieces_with_accents": lambda: small_tokenizers.make("sentence_piece", keep_accents=True),
    "eurobert": lambda: eurobert(),
    "xlm_roberta": lambda: families.make("xlm_roberta"),
    "plain": lambda: small_tokenizers.make(
        "sentence_piece", lowercase=False, keep_accents=True, albert_rules=False
    ),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_ids_are_the_preprocessors(name):
    preprocessor = TextClassifierPreprocessor(TOKENIZERS[name](), LENGTH)
    model = compiled(preprocessor)
    assert differing(preprocessor, model, TEXTS) == []
    assert differing(preprocessor, model, [""]) == []
    assert differing(preprocessor, model, mixed_texts()) == []
    broken = [
        b"a\xffb",
        b"\xe2\x82A b",
        b"\xed\xa0\x80 c\xc0\x80.",
        b"nul\0in it",
        b"\xf5\x80\x80\x80a",
    ]
    assert differing(preprocessor, model, broken) == []


@pytest.mark.parametrize("kind", ["wordpiece", "byte_pair", "sentence_piece"])
def test_pairs_are_cut_as_in_training(kind):
    preprocessor = TextClassifierPreprocessor(small_tokenizers.make(kind), 20)
    model = compiled(preprocessor, pair=True)
    columns = zip(*itertools.product(TEXTS, PAIRS), strict=True)
    assert differing(preprocessor, model, *map(list, columns)) == []
    odd = TextClassifierPreprocessor(small_tokenizers.make(kind, truncation_side="left"), 21)
    columns = zip(*itertools.product(TEXTS, PAIRS), strict=True)
    assert differing(odd, compiled(odd, pair=True), *map(list, columns)) == []


def test_mismatched_pair_counts_raise():
    preprocessor = TextClassifierPreprocessor(small_tokenizers.make("wordpiece"), LENGTH)
    # With one thread, OpenVINO raises the errors of asynchronous requests only.
    one_thread = {"INFERENCE_NUM_THREADS": 1}
    model = openvino.compile_model(text_model(preprocessor, pair=True), "CPU", one_thread)
    request = model.create_infer_request()

    def answered(texts, pairs):
        request.start_async({"text": texts, "text_pair": pairs})
        request.wait()
        return request.get_tensor("token_ids").data

    none = openvino.Tensor(openvino.Type.string, openvino.Shape([0]))
    four, one = strings(["a", "b", "c", "d"]), strings(["a"])
    for texts, pairs in ((four, one), (one, four), (none, none), (none, one), (four, none)):
        assert answered(four, four).shape == (4, 5)
        with pytest.raises(RuntimeError, match="mismatch"):
            answered(texts, pairs)


# An empty name, names of several lengths, and names of more bytes than characters
CLASS_NAMES = ["bad", "", "größer", "中国", "x" * 40]


@pytest.fixture(scope="module")
def labeled(tmp_path_factory):
    """A classifier of pairs in five classes, the file of its export, and pairs of all classes."""
    path = tmp_path_factory.mktemp("labeled") / "model.xml"
    classifier = make_classifier(class_names=CLASS_NAMES)
    draw = random.Random(0)
    texts = ["".join(draw.choices("abcdefgh ,?", k=draw.randint(0, 40))) for _ in range(800)]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    # Every class is the best of some pairs
    logits = classifier.predict(pairs)
    dense = classifier.head.dense
    dense.kernel.assign(dense.kernel / logits.std(axis=0))
    dense.bias.assign((dense.bias - logits.mean(axis=0)) / logits.std(axis=0))
    classifier.export(path, "openvino", text=True, pair=True)
    return classifier, path, pairs


def columns(pairs):
    return dict(zip(("text", "text_pair"), map(list, zip(*pairs, strict=True)), strict=True))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("threads", [{}, {"INFERENCE_NUM_THREADS": 1}])
def test_labels_in_any_order_of_classes(labeled, threads, is_async):
    classifier, path, pairs = labeled
    labels = [answer["label"] for answer in classifier.classify(pairs)]
    assert set(labels) == set(CLASS_NAMES)
    options = {"INFERENCE_PRECISION_HINT": "f32", **threads}
    model = openvino.compile_model(path, "CPU", options)
    request = model.create_infer_request()
    draw = random.Random(1)
    for _ in range(60):
        rows = draw.choices(range(len(pairs)), k=draw.choice([1, 2, 3, 7, 30]))
        inputs = columns([pairs[row] for row in rows])
        inputs = {name: strings(texts) for name, texts in inputs.items()}
        if is_async:
            request.start_async(inputs)
            request.wait()
            received = request.get_tensor("label").str_data
        else:
            received = model(inputs)["label"]
        assert received.tolist() == [labels[row] for row in rows]


@pytest.mark.parametrize("names", [CLASS_NAMES, ["", "", ""], ["", "", "größer"]])
def test_labels_of_logits(names):
    logits = openvino.opset15.parameter([-1, len(names)], openvino.Type.f32)
    model = openvino.Model([answers_of_logits(logits, names)["label"]], [logits], "answers")
    request = openvino.compile_model(model, "CPU").create_infer_request()
    # OpenVINO checks the shapes of a batch only if they differ from those of the one before.
    for pair in itertools.product(range(len(names)), repeat=2):
        for classes in (pair, pair[:1], pair * 2):
            request.start_async([np.eye(len(names), dtype="float32")[list(classes)]])
            request.wait()
            received = request.get_output_tensor().str_data.tolist()
            assert received == [names[index] for index in classes]


def test_multi_label_outputs():
    logits = openvino.opset15.parameter([-1, 2], openvino.Type.f32)
    answers = answers_of_logits(logits, ["a", "b"], [0.5, 0.9])
    model = openvino.Model(list(answers.values()), [logits], "answers")
    outputs = openvino.compile_model(model, "CPU")([np.array([[0.0, 2.0], [-1, 3]], "float32")])
    assert list(answers) == ["probabilities", "applies"]
    np.testing.assert_allclose(outputs[0], 1 / (1 + np.exp([[0, -2], [1, -3]])), rtol=1e-6)
    assert outputs[1].tolist() == [[True, False], [False, True]]


# A process that has OpenVINO and neither TensorFlow nor Keras nor this package
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


def test_a_classifier_answers_without_tensorflow(labeled):
    classifier, path, _ = labeled
    assert {file.name for file in path.parent.iterdir()} == {"model.xml", "model.bin"}
    pairs = [*zip([*TEXTS[:4], "Café? " * 30], PAIRS, strict=True)]
    finished = subprocess.run(
        [sys.executable, "-c", FRESH_PROCESS, str(path), json.dumps(columns(pairs))],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    answers = json.loads(finished.stdout)
    expected = classifier.classify(pairs)
    assert answers["label"] == [answer["label"] for answer in expected]
    scores = [answer["score"] for answer in expected]
    np.testing.assert_allclose(answers["score"], scores, atol=1e-5)
    np.testing.assert_allclose(np.max(answers["probabilities"], axis=1), scores, atol=1e-5)


def test_an_embedder_of_byte_pairs_answers(tmp_path):
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
    answers = openvino.compile_model(tmp_path / "model.xml", "CPU", options)({"text": TEXTS[:6]})
    np.testing.assert_allclose(answers["embedding"], embedder.embed(TEXTS[:6]), atol=1e-4)


def test_tokenizers_that_openvino_lacks_are_refused(tmp_path):
    classifier = make_classifier(num_classes=2)
    for name, format in (("model.onnx", "onnx"), ("model.tflite", "litert")):
        with pytest.raises(ExportError, match="Pass format='openvino'"):
            classifier.export(tmp_path / name, format, text=True)
    tagger = keras_bert.TokenClassifier(classifier.backbone, num_classes=2)
    with pytest.raises(ExportError, match="a TokenClassifier, which also needs values"):
        tagger.export(tmp_path / "model.xml", "openvino", text=True)
    tokenizer = small_tokenizers.make("byte_pair", special_tokens_in_text=True)
    with pytest.raises(ExportError, match="finds special tokens in texts"):
        text_model(TextClassifierPreprocessor(tokenizer), pair=False)
    spaces = {**families.CONFIGS["modernbert"](), "compose": False}
    for tokenizer, what in (
        (families.make("modernbert"), "composes characters"),
        (families.make("eurobert"), "has words that no merge produces"),
        (families.make("mmbert"), r"merges characters across words \(byte_fallback=True\)"),
        (tokenizer_from_config(spaces), "has a word equal to the added token ' +'"),
    ):
        with pytest.raises(ExportError, match=what):
            text_model(TextClassifierPreprocessor(tokenizer), pair=False)


# === Every character, and real text ===


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
def test_many_characters_match_preprocessor(name):
    preprocessor = TextClassifierPreprocessor(REAL_TOKENIZERS[name](), 512)
    model = compiled(preprocessor)
    assigned = [
        chr(point)
        for point in range(1, 0x110000, 4)
        if unicodedata.category(chr(point)) not in ("Cn", "Cs", "Co")
    ]
    texts = [f"a{character}b {character} the." for character in assigned]
    for start in range(0, len(texts), 1024):
        assert differing(preprocessor, model, texts[start : start + 1024]) == []
    for lines in real_text.batches(512, every=20):
        assert differing(preprocessor, model, [f"{line}." for line in lines]) == []

# SPDX-License-Identifier: Apache-2.0

import dataclasses

import keras
import numpy as np
import pytest

from keras_bert import Backbone, Ensemble, TokenClassifier
from keras_bert.checkpoints import CheckpointError
from keras_bert.data import TokenClassifierPreprocessor
from keras_bert.data.tagging_schemes import deviations
from keras_bert.export import ExportError
from keras_bert.optimizers import AdamW
from tests import small_tasks
from tests.export.served_tasks import OPTIONS
from tests.text.small_tokenizers import make_tokenizer

pytestmark = pytest.mark.on_torch

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ann", "bo", "in", "rome", "##s", ".", "a"]
NAMES = ["O", "B-PER", "B-LOC"]
SPAN_NAMES = ["O", "B-PER", "I-PER", "B-LOC"]


def make_tagger(backbone=None, **arguments):
    # With such a high initializer_range, a few steps are enough.
    config = small_tasks.CONFIG.replace(
        vocabulary_size=len(TOKENS), max_sequence_length=24, initializer_range=0.3
    )
    preprocessor = TokenClassifierPreprocessor(make_tokenizer(*TOKENS), 16, overlap=4)
    arguments = {"class_names": NAMES, "preprocessor": preprocessor, **arguments}
    return TokenClassifier(backbone or Backbone(config), **arguments)


def make_sentences(count=40):
    """Generates words of one or two pieces that determine their labels. Some need two windows."""
    label_ids = {"ann": 1, "bos": 1, "in": 0, "romes": 2, "a": 0}
    generator = np.random.default_rng(0)
    words = [
        [str(word) for word in generator.choice(list(label_ids), 1 + index % 18)]
        for index in range(count)
    ]
    return words, [[label_ids[word] for word in sentence] for sentence in words]


@pytest.fixture(scope="module")
def trained_tagger():
    keras.utils.set_random_seed(1)
    tagger = make_tagger()
    tagger.compile(AdamW(1e-2))
    words, labels = make_sentences()
    # One epoch of repeated rows, because each epoch sets up a pipeline.
    history = tagger.fit(words * 12, labels * 12, batch_size=8, validation_split=0.1, verbose=0)
    return tagger, history.history


def test_word_logits_do_not_depend_on_batch(trained_tagger):
    tagger, _ = trained_tagger
    words, labels = make_sentences(20)
    together = tagger.predict(words, batch_size=4, verbose=0)
    assert [part.shape for part in together] == [(len(sentence), 3) for sentence in words]
    assert all(part.dtype == np.float32 for part in together)
    for index in (0, 9, 17):
        (single_logits,) = tagger.predict([words[index]], verbose=0)
        np.testing.assert_allclose(single_logits, together[index], atol=1e-5)
        assert single_logits.argmax(-1).tolist() == labels[index]


def test_tag_returns_labels_scores_and_spans(trained_tagger):
    tags = trained_tagger[0].tag("Ann  in Romes\u200b.")
    spans = [(tag["word"], tag["start"], tag["end"]) for tag in tags]
    assert spans == [("Ann", 0, 3), ("in", 5, 7), ("Romes\u200b", 8, 14), (".", 14, 15)]
    assert [tag["label"] for tag in tags[:3]] == ["B-PER", "O", "B-LOC"]
    assert all(1 / 3 < tag["score"] <= 1 for tag in tags)
    assert trained_tagger[0].tag(["Ann  in Romes\u200b.", ""]) == [tags, []]
    with pytest.raises(
        ValueError,
        match=r"Row 1 must only contain characters that UTF-8 can represent\. Received: the lone",
    ):
        trained_tagger[0].tag(["Ann", "in \ud83d"])


def test_entities_join_words(monkeypatch):
    tagger = make_tagger(class_names=["O", "B-PER", "I-PER"])

    def predict_rows(rows, batch_size, verbose):
        # The number in each word is its label.
        return rows.nest_like_input(
            [5 * np.eye(3)[[int(word) for word in sentence]] for sentence in rows.sentences]
        )

    monkeypatch.setattr(tagger, "_predict_rows", predict_rows)
    probability = pytest.approx(np.exp(5) / (np.exp(5) + 2))

    def person(text, start, end):
        return {"type": "PER", "text": text, "score": probability, "start": start, "end": end}

    assert tagger.entities("0 1  2 0 1 1") == [
        person("1  2", 2, 6),
        person("1", 9, 10),
        person("1", 11, 12),
    ]
    assert tagger.entities(["0 2", "", "0", b"\xff1"]) == [
        [person("2", 2, 3)],
        [],
        [],
        [person("1", 0, 1)],
    ]
    assert tagger.entities([["0", "1", "2"], []]) == [[person("1 2", 1, 3)], []]
    assert tagger.entities([[["1"]], [["0"], ["2"]]]) == [
        [[person("1", 0, 1)]],
        [[], [person("2", 0, 1)]],
    ]
    for names in (None, ["NOUN", "ADJ", "X"]):
        with pytest.raises(ValueError, match="class_names must encode spans"):
            make_tagger(num_classes=3, class_names=names).entities("a")


def test_texts_are_split_like_training_words(tmp_path):
    tagger = make_tagger()
    tagger.compile("sgd")
    words, labels = [list("a in romes.")], [[1, *[0] * 10]]
    with pytest.warns(UserWarning, match="split by word_unit='characters_and_spaces', like the"):
        tagger.fit(words, labels, verbose=0)
    tags = tagger.tag("ab \u1100.")
    assert [tag["word"] for tag in tags] == ["a", "b", " ", "\u1100", "."]
    assert [(tag["start"], tag["end"]) for tag in tags] == [(i, i + 1) for i in range(5)]
    tagger.save(tmp_path / "model.keras")
    tagger.save_to_preset(tmp_path / "preset")
    tagger.save_hugging_face(tmp_path / "hf")
    copies = [TokenClassifier.from_preset(tmp_path / name) for name in ("preset", "hf")]
    for copy in (keras.saving.load_model(tmp_path / "model.keras"), *copies):
        assert [tag["word"] for tag in copy.tag("a b")] == ["a", " ", "b"]
    with pytest.warns(UserWarning, match="word_unit is 'characters_and_spaces', but .* 'words'"):
        tagger.fit([[f"word{number}" for number in range(11)]], labels, verbose=0)
    with pytest.raises(ValueError, match="word_unit must be one of words, words_or_c"):
        TokenClassifier.from_preset(tmp_path / "preset", word_unit="letters")


def test_segmented_text_warns_once():
    tagger = make_tagger()
    with pytest.warns(UserWarning, match="'んで' is in a script without .* Pass lists of words"):
        tagger.tag("ann 住んで")
    tagger.tag("ann 住んで")
    tagger = make_tagger()
    tagger.compile("sgd")
    with pytest.warns(UserWarning, match="training words come from a segmenter"):
        tagger.fit([[f"東京{number}" for number in range(10)]], [[0] * 10], verbose=0)
    assert tagger.word_unit == "segmented"


def test_document_sentences_are_context(trained_tagger):
    tagger, _ = trained_tagger
    (single_logits,) = tagger.predict([["in"]], verbose=0)
    ((_, among),) = tagger.predict([[["ann"], ["in"]]], verbose=0)
    assert np.abs(single_logits - among).max() > 1e-4
    tagger.evaluate([[["ann"], ["in"]], [["a"]]], [[[1], [0]], [[0]]], verbose=0)


def test_labels_accept_names_and_ignored_ids(trained_tagger):
    tagger, _ = trained_tagger
    words = [["ann", "in", "romes"]]
    scores_by_id = tagger.evaluate(words, [[1, 0, 0]], verbose=0)
    assert tagger.evaluate(words, [["B-PER", "O", "O"]], verbose=0) == pytest.approx(scores_by_id)
    ignored_scores = tagger.evaluate(words, [[1, 0, -1]], verbose=0)
    weighted_scores = tagger.evaluate(words, [[1, 0, 2]], sample_weight=[[1, 1, 0]], verbose=0)
    assert ignored_scores[1] == 1.0
    assert weighted_scores == pytest.approx(ignored_scores, abs=1e-5)


@pytest.fixture(scope="module")
def crf_tagger():
    """Trains a tagger whose labels depend on the label before, in sentences of repeated words."""
    keras.utils.set_random_seed(1)
    tagger = make_tagger(class_names=SPAN_NAMES, crf=True, scheme="IOB2")
    tagger.compile(AdamW(1e-2))
    words = [["a"] * (1 + index % 5) + ["in", "romes"] for index in range(30)]
    labels = [[1] + [2] * (len(sentence) - 3) + [0, 3] for sentence in words]
    labels[0] = [1, -1, 3]
    tagger.fit(words * 16, labels * 16, batch_size=8, verbose=0)
    return tagger, words, labels


def test_crf_learns_transitions(crf_tagger):
    tagger, words, labels = crf_tagger
    transitions = keras.ops.convert_to_numpy(tagger.crf_layer.transitions)
    assert transitions[1, 2] > transitions[0, 2]
    loss, accuracy = tagger.evaluate(words, labels, verbose=0)
    assert accuracy > 0.9
    logits = tagger.predict(words, verbose=0)
    assert loss == pytest.approx(tagger.sequence_loss(logits, labels), abs=1e-5)
    # All words of a sentence share its mean weight. Words with weight 0 are ignored.
    weights = [[0.0, 2.0, *[1.0] * (len(sentence) - 2)] for sentence in words[:1]]
    weighted = tagger.evaluate(words[:1], [[0, 1, 3]], sample_weight=weights, verbose=0)
    ignored = tagger.evaluate(words[:1], [[-1, 1, 3]], verbose=0)
    assert weighted[0] == pytest.approx(ignored[0], abs=1e-5)


def test_crf_survives_files(crf_tagger, tmp_path):
    tagger, words, labels = crf_tagger
    tags = tagger.tag(words[:5])
    tagger.save(tmp_path / "model.keras")
    tagger.save_to_preset(tmp_path / "preset")
    reordered = TokenClassifier.from_preset(tmp_path / "preset", class_names=SPAN_NAMES[::-1])
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for copy in (loaded, TokenClassifier.from_preset(tmp_path / "preset"), reordered):
        assert (copy.crf, copy.scheme) == (True, "IOB2")
        for sentence, expected in zip(copy.tag(words[:5]), tags, strict=True):
            assert [tag["label"] for tag in sentence] == [tag["label"] for tag in expected]
            scores = [tag["score"] for tag in expected]
            np.testing.assert_allclose([tag["score"] for tag in sentence], scores, atol=1e-5)
    loaded.fit(words, labels, verbose=0)
    with pytest.raises(CheckpointError, match=r"Received: token_classifier, crf\. Save it with"):
        tagger.save_hugging_face(tmp_path / "hf")
    with pytest.raises(ValueError, match=r"With crf=True, the loss is .* Received: loss"):
        tagger.compile(loss="mse")
    with pytest.raises(ValueError, match="members of an ensemble must be without a CRF"):
        Ensemble([tagger])


def make_constrained_tagger(crf):
    """Creates a tagger whose best labels without a scheme are invalid: I-PER first and after O."""
    tagger = make_tagger(class_names=SPAN_NAMES, crf=crf, scheme="IOB2")
    tagger.head.dense.bias.assign([0.0, -1.0, 3.0, 0.0])
    return tagger


@pytest.mark.parametrize("crf", [False, True])
def test_scheme_constrains_tags(crf):
    tagger = make_constrained_tagger(crf)
    tags = tagger.tag(["ann in bos.", "", "romes"])
    labels = [[tag["label"] for tag in sentence] for sentence in tags]
    assert not any(deviations(sentence, "IOB2") for sentence in labels)
    assert "B-PER" in labels[0]
    assert tagger.tag([["ann"], []])[1] == []
    unconstrained = make_tagger(class_names=SPAN_NAMES, backbone=tagger.backbone)
    unconstrained.head.set_weights(tagger.head.get_weights())
    assert unconstrained.tag(["ann in"])[0][0]["label"] == "I-PER"
    for names in (["NOUN", "O"], None):
        with pytest.raises(ValueError, match="With a scheme, class_names must be span labels"):
            make_tagger(num_classes=2, class_names=names, scheme="IOB2")


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_signatures_split_and_decode_like_tag(tmp_path):
    tf = pytest.importorskip("tensorflow")
    tagger = make_constrained_tagger(crf=True)
    tagger.preprocessor.word_unit = "characters_and_spaces"
    texts = ["ab \u1100.", "", "a"]
    tags = tagger.tag(texts)
    assert [tag["word"] for tag in tags[0]] == ["a", "b", " ", "\u1100", "."]
    options = dataclasses.replace(OPTIONS, class_names=tuple(SPAN_NAMES))
    signatures = tagger.serving_signatures(options)
    outputs = {
        name: values.numpy()
        for name, values in signatures["serving_default"](tf.constant(texts)).items()
    }
    for index, sentence in enumerate(tags):
        for name, key in (("words", "word"), ("labels", "label")):
            served = [value.decode() for value in outputs[name][index][: len(sentence)]]
            assert served == [tag[key] for tag in sentence]
        for name, key in (("starts", "start"), ("scores", "score")):
            served = outputs[name][index][: len(sentence)]
            np.testing.assert_allclose(served, [tag[key] for tag in sentence], atol=1e-5)
    assert signatures["serving_default"](tf.constant([""]))["labels"].shape == (1, 0)
    of_ids = signatures["serve_ids"](tf.constant([[2, 4, 3]]))
    assert set(of_ids) == {"logits", "error"}
    with pytest.raises(ExportError, match="'onnx_hugging_face' only supports taggers without a CR"):
        tagger.export(tmp_path / "directory", "onnx_hugging_face")


@pytest.mark.needs_tensorflow
@pytest.mark.on_tensorflow
def test_words_accept_tensors_and_arrays():
    tf = pytest.importorskip("tensorflow")
    tagger = make_tagger()
    tagger.compile("sgd")
    words = [["ann", "in"], ["romes", "a"]]
    expected = tagger.tag(words)
    for form in (tf.ragged.constant(words), tf.constant(words), np.array(words, object)):
        assert tagger.tag(form) == expected
        tagger.evaluate(form, np.array([[1, 0], [2, 0]]), verbose=0)
    assert tagger.tag(np.array(["ann in"])) == [tagger.tag("ann in")]
    with pytest.raises(ValueError, match="Received: _TensorSliceDataset of text in an"):
        tagger.fit(tf.data.Dataset.from_tensor_slices(["a"]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.fit(["a text"], [0]), "Each word must have a label. Pass a list of sentences"),
        (lambda t: t.fit([["ann"]]), "and labels in the same nesting"),
        (
            lambda t: t.fit([["ann"]], [[0, 1]]),
            "Row 0 must have a label or weight for each of its 1 words. Received: 2",
        ),
        (lambda t: t.fit([["ann"]], [0]), "Row 0 must have a list of labels. Received: 0"),
        (lambda t: t.fit([["ann"]], [["X"]]), "one of O, B-PER, B-LOC. Received: 'X'"),
        (
            lambda t: t.fit([["ann"]], [[3]]),
            "The label in row 0 must be an id from 0 to 2. Received: 3",
        ),
        (
            lambda t: t.fit([[["a"], ["a"]]], [[["O"], []]]),
            "Sentence 1 of document 0 must have a label or weight for each of its 1 words. "
            "Received: 0",
        ),
        (
            lambda t: t.predict(np.array([[99]])),
            "token_ids must be at least 0 and below 11. Received: 99",
        ),
        (
            lambda t: t.tag(np.array([[4]])),
            "must be a text, a list of texts, .* each a list of such sentences. Received: ndarray",
        ),
    ],
)
def test_invalid_input_raises(trained_tagger, call, message):
    with pytest.raises(ValueError, match=message):
        call(trained_tagger[0])

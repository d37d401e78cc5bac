# SPDX-License-Identifier: Apache-2.0

import dataclasses

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_tensorflow

from keras_bert import Backbone, QuestionAnswerer  # noqa: E402
from keras_bert.data import QuestionAnswererPreprocessor  # noqa: E402
from keras_bert.optimizers import AdamW  # noqa: E402
from tests import small_tasks  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

WORDS = ["der", "die", "das", "Hund", "Katze", "läuft", "schläft", "und", "dann", "🏔"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "wo", "gold", "##en", "?", *WORDS]


def make_answerer(**arguments):
    # So high an initializer_range that a few steps are enough
    config = small_tasks.CONFIG.replace(
        vocabulary_size=len(TOKENS), max_sequence_length=24, initializer_range=0.3
    )
    tokenizer = make_tokenizer(*TOKENS, lowercase=False)
    preprocessor = QuestionAnswererPreprocessor(tokenizer, 16, 5, 4)
    return QuestionAnswerer(Backbone(config), preprocessor, **arguments)


def questions(count=40, seed=0):
    """Passages of up to three windows in which "golden" is the answer, where it is."""
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        words = list(generator.choice(WORDS, generator.integers(3, 24)))
        answers = []
        if number % 4:
            place = generator.integers(len(words))
            words.insert(place, "golden")
            start = len(" ".join([*words[:place], ""]))
            answers = [{"text": "golden", "answer_start": start}]
        rows.append({"question": "wo ?", "context": " ".join(words), "answers": answers})
    return rows


@pytest.fixture(scope="module")
def trained():
    keras.utils.set_random_seed(1)
    answerer = make_answerer(null_threshold=0.0)
    answerer.compile(AdamW(2e-2))
    pooler = [np.array(weight) for weight in answerer.backbone.pooler.get_weights()]
    # One epoch of repeated rows, because each epoch sets up a pipeline.
    rows = questions(48) * 12 + questions(60)[48:]
    share = 12 / len(rows)
    history = answerer.fit(rows, batch_size=16, validation_split=share, verbose=0)
    # Nothing depends on it, and weight decay must not change it.
    for weight, value in zip(answerer.backbone.pooler.get_weights(), pooler, strict=True):
        np.testing.assert_array_equal(weight, value)
    return answerer, history.history


def test_answers_are_slices_of_the_passage(trained):
    answerer, _ = trained
    rows = questions(40, seed=7)
    answers = answerer.answer(
        [row["question"] for row in rows], [row["context"] for row in rows], batch_size=8
    )
    right = 0
    for row, answer in zip(rows, answers, strict=True):
        assert row["context"][answer["start"] : answer["end"]] == answer["answer"]
        assert 0 < answer["score"] <= 1
        expected = row["answers"][0]["text"] if row["answers"] else ""
        right += answer["answer"] == expected
    assert right >= 36


def test_without_a_threshold_there_always_is_an_answer(trained):
    answerer, _ = trained
    context = "der Hund läuft und dann"
    assert answerer.answer("wo ?", context)["answer"] == ""
    answerer.null_threshold = None
    try:
        assert answerer.answer("wo ?", context)["answer"] != ""
    finally:
        answerer.null_threshold = 0.0


def test_windows_and_their_features_give_the_same_logits(trained):
    answerer, _ = trained
    row = questions(2, seed=4)[1]
    windows = answerer.preprocessor([row["question"]], [row["context"]])
    features = answerer.preprocessor.pad(windows)
    lengths = windows.features["token_ids"].lengths
    expected = answerer.predict(features, verbose=0)
    received = answerer.predict([row], verbose=0)
    for name, rows in received.items():
        for index, length in enumerate(lengths):
            np.testing.assert_allclose(rows[index], expected[name][index, :length], atol=1e-5)


def test_a_preset_brings_head_windows_and_threshold_back(trained, tmp_path):
    answerer, _ = trained
    answerer.save_to_preset(tmp_path / "preset")
    same = QuestionAnswerer.from_preset(tmp_path / "preset")
    assert same.preprocessor.get_config() == answerer.preprocessor.get_config()
    assert same.null_threshold == 0.0
    text = ("wo ?", "der Hund läuft golden und dann")
    assert same.answer(*text) == pytest.approx(answerer.answer(*text))
    other = QuestionAnswerer.from_preset(tmp_path / "preset", sequence_length=20, doc_stride=2)
    assert other.preprocessor.sequence_length == 20
    assert other.preprocessor.doc_stride == 2
    assert other.preprocessor.max_query_length == 4


def test_an_answer_without_a_token_is_named_in_training(trained):
    answers = [{"text": "\u200b", "answer_start": 4}]
    rows = [*questions(3), {"question": "wo ?", "context": "der \u200b", "answers": answers}]
    read = trained[0].adapters[0].read(rows)
    options = trained[0]._options(4)
    read.batches(trained[0].preprocessor, options)
    with pytest.warns(UserWarning, match="1 of 4 questions, starting with '3'"):
        read.batches(trained[0].preprocessor, dataclasses.replace(options, training=True))


def test_questions_that_are_cut_are_counted(trained):
    trained[0].preprocessor.truncated_rows.reset()
    with pytest.warns(UserWarning, match=r"1 of 2 rows is truncated: .* than max_query_length=4"):
        trained[0].answer(["wo " * 4, "wo " * 5], "der Hund", verbose=0)


def one(**changes):
    return [{"question": "wo ?", "context": "der Hund", "answers": [], **changes}]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q: q.fit(["wo ?"]), "must be a list of dicts .*Received: list of text in an unsup"),
        (
            lambda q: q.predict("wo ?"),
            "must be a list of dicts .*Received: str of text in an unsup",
        ),
        (lambda q: q.fit(one(), [1]), "questions contain their answers"),
        (lambda q: q.fit(one(answers=None)), "Question '0' must have a list of answers"),
        (
            lambda q: q.fit(one(context=7)),
            "Question 0: context must be a string",
        ),
        (lambda q: q.fit(one(answers=["Hund"])), "each answer must have \"text\" .*'Hund'"),
        (
            lambda q: q.fit(one(answers=[{"text": "Hund", "answer_start": 3}])),
            "Question 0: .* must contain 'Hund' at answer_start 3. Received: ' Hun'",
        ),
        (lambda q: q.fit({"question": ["?"], "context": []}), "the same length"),
        (lambda q: q.answer(["?", "?"], ["a"]), "2 questions and 1 contexts"),
        (lambda q: q.fit(np.array([[99]]), {}), "token_ids must be .* Received: 99"),
    ],
)
def test_misuse_is_explained(trained, call, message):
    with pytest.raises(ValueError, match=message):
        call(trained[0])

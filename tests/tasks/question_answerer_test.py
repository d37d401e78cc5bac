# SPDX-License-Identifier: Apache-2.0

import dataclasses

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

from keras_bert import Backbone, QuestionAnswerer  # noqa: E402
from keras_bert.data import QuestionAnswererPreprocessor  # noqa: E402
from keras_bert.optimizers import AdamW  # noqa: E402
from tests import small_tasks  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

WORDS = ["der", "die", "das", "Hund", "Katze", "läuft", "schläft", "und", "dann", "🏔"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "wo", "gold", "##en", "?", *WORDS]


def make_answerer(**arguments):
    # With such a high initializer_range, a few steps are enough.
    config = small_tasks.CONFIG.replace(
        vocabulary_size=len(TOKENS), max_sequence_length=24, initializer_range=0.3
    )
    tokenizer = make_tokenizer(*TOKENS, lowercase=False)
    preprocessor = QuestionAnswererPreprocessor(tokenizer, 16, 5, 4)
    return QuestionAnswerer(Backbone(config), preprocessor, **arguments)


def make_questions(count=40, seed=0):
    """Generates contexts of up to three windows. In most of them, the answer is "golden"."""
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
def trained_answerer():
    keras.utils.set_random_seed(1)
    answerer = make_answerer(null_threshold=0.0)
    answerer.compile(AdamW(2e-2))
    pooler = [np.array(weight) for weight in answerer.backbone.pooler.get_weights()]
    # One epoch of repeated rows, because each epoch sets up a pipeline.
    rows = make_questions(48) * 12 + make_questions(60)[48:]
    validation_split = 12 / len(rows)
    history = answerer.fit(rows, batch_size=16, validation_split=validation_split, verbose=0)
    # No output depends on the pooler, and weight decay must not change it.
    for weight, value in zip(answerer.backbone.pooler.get_weights(), pooler, strict=True):
        np.testing.assert_array_equal(weight, value)
    return answerer, history.history


def test_answers_are_slices_of_the_context(trained_answerer):
    answerer, _ = trained_answerer
    rows = make_questions(40, seed=7)
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


def test_no_threshold_always_answers(trained_answerer):
    answerer, _ = trained_answerer
    context = "der Hund läuft und dann"
    assert answerer.answer("wo ?", context)["answer"] == ""
    answerer.null_threshold = None
    try:
        assert answerer.answer("wo ?", context)["answer"] != ""
    finally:
        answerer.null_threshold = 0.0


def test_question_logits_match_window_features(trained_answerer):
    answerer, _ = trained_answerer
    row = make_questions(2, seed=4)[1]
    windows = answerer.preprocessor([row["question"]], [row["context"]])
    features = answerer.preprocessor.pad(windows)
    lengths = windows.features["token_ids"].lengths
    expected = answerer.predict(features, verbose=0)
    received = answerer.predict([row], verbose=0)
    for name, rows in received.items():
        for index, length in enumerate(lengths):
            np.testing.assert_allclose(rows[index], expected[name][index, :length], atol=1e-5)


def test_preset_round_trip(trained_answerer, tmp_path):
    answerer, _ = trained_answerer
    answerer.save_to_preset(tmp_path / "preset")
    loaded = QuestionAnswerer.from_preset(tmp_path / "preset")
    assert loaded.preprocessor.get_config() == answerer.preprocessor.get_config()
    assert loaded.null_threshold == 0.0
    text = ("wo ?", "der Hund läuft golden und dann")
    assert loaded.answer(*text) == pytest.approx(answerer.answer(*text))
    other = QuestionAnswerer.from_preset(tmp_path / "preset", sequence_length=20, doc_stride=2)
    assert other.preprocessor.sequence_length == 20
    assert other.preprocessor.doc_stride == 2
    assert other.preprocessor.max_query_length == 4


def test_training_warns_about_answer_without_tokens(trained_answerer):
    answers = [{"text": "\u200b", "answer_start": 4}]
    rows = [*make_questions(3), {"question": "wo ?", "context": "der \u200b", "answers": answers}]
    read = trained_answerer[0].adapters[0].read(rows)
    options = trained_answerer[0]._options(4)
    read.batches(trained_answerer[0].preprocessor, options)
    with pytest.warns(UserWarning, match="1 of 4 questions, starting with '3'"):
        read.batches(trained_answerer[0].preprocessor, dataclasses.replace(options, training=True))


def test_truncated_questions_are_counted(trained_answerer):
    trained_answerer[0].preprocessor.truncated_rows.reset()
    with pytest.warns(
        UserWarning,
        match=r"1 of 2 rows is truncated: it has more tokens than max_query_length=4 allows",
    ):
        trained_answerer[0].answer(["wo " * 4, "wo " * 5], "der Hund", verbose=0)


def make_question(**changes):
    return [{"question": "wo ?", "context": "der Hund", "answers": [], **changes}]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q: q.fit(["wo ?"]), "must be a list of dicts .*Received: list of text in an unsup"),
        (
            lambda q: q.predict("wo ?"),
            "must be a list of dicts .*Received: str of text in an unsup",
        ),
        (lambda q: q.fit(make_question(), [1]), "questions contain their answers"),
        (lambda q: q.fit(make_question(answers=None)), "Question '0' must have a list of answers"),
        (
            lambda q: q.fit(make_question(context=7)),
            "Question 0: context must be a string",
        ),
        (
            lambda q: q.fit(make_question(answers=["Hund"])),
            r"must have \"text\" and \"answer_start\"\. Received: 'Hund'",
        ),
        (
            lambda q: q.fit(make_question(answers=[{"text": "Hund", "answer_start": 3}])),
            "Question 0: the context must contain 'Hund' at answer_start 3. Received: ' Hun'",
        ),
        (lambda q: q.fit({"question": ["?"], "context": []}), "the same length"),
        (lambda q: q.answer(["?", "?"], ["a"]), "2 questions and 1 contexts"),
        (
            lambda q: q.fit(np.array([[99]]), {}),
            "token_ids must be at least 0 and below 18. Received: 99",
        ),
    ],
)
def test_invalid_input_raises(trained_answerer, call, message):
    with pytest.raises(ValueError, match=message):
        call(trained_answerer[0])

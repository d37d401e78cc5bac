# SPDX-License-Identifier: Apache-2.0
"""A served question answerer gives the answers of the task, from text alone."""

import numpy as np
import pytest

from tests.export.served_tasks import OPTIONS
from tests.export.small_classifier import make_answerer

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_bert.export.question_signatures import question_signatures  # noqa: E402

# What a SavedModel answers is the same on all backends: saved_model_test.py exports on each.
pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]

QUESTIONS = ("the cat?", "mat", "a " * 40, "", "中?", "cat")
CONTEXTS = (
    "the cat sat on the mat",
    "naïve 🏔 café, ÉTÉ? 中 able unable cats 7 mats 42 in a big red hat of no use",  # windows
    "b",
    "the mat",
    "",
    "x",
)


@pytest.fixture(scope="module")
def answerer():
    answerer = make_answerer(max_answer_length=5)
    odds = answerer.answer_spans(
        {"question": list(QUESTIONS[:4]), "context": list(CONTEXTS[:4])}
    ).null_odds
    # So that some questions have an answer, and some have none
    answerer.null_threshold = float(np.median(odds))
    return answerer


@pytest.fixture(scope="module")
def signatures(answerer):
    """What an export writes down; served_model_test.py has the export."""
    return question_signatures(answerer, OPTIONS)


def serve(signatures, questions, contexts):
    outputs = signatures["serving_default"](
        question=tf.constant(questions, tf.string), context=tf.constant(contexts, tf.string)
    )
    return {name: value.numpy() for name, value in outputs.items()}


def check_answers(received, expected):
    assert list(received["answer"]) == [answer["answer"] for answer in expected]
    for name in ("start", "end"):
        assert list(received[name]) == [answer[name] for answer in expected]
    np.testing.assert_allclose(
        received["score"], [answer["score"] for answer in expected], atol=1e-4
    )


def test_export_answers_match_task(answerer, signatures):
    expected = answerer.answer(list(QUESTIONS), list(CONTEXTS))
    assert {bool(answer["answer"]) for answer in expected} == {True, False}
    received = serve(signatures, QUESTIONS, CONTEXTS)
    received["answer"] = [answer.decode() for answer in received["answer"]]
    check_answers(received, expected)


def test_without_a_threshold_there_always_is_an_answer():
    answerer = make_answerer()
    signatures = question_signatures(answerer, OPTIONS)
    received = serve(signatures, QUESTIONS, CONTEXTS)
    received["answer"] = [answer.decode() for answer in received["answer"]]
    assert list(map(bool, received["answer"])) == list(map(bool, CONTEXTS))
    check_answers(received, answerer.answer(list(QUESTIONS), list(CONTEXTS)))


def test_a_passage_of_more_windows_than_are_read_at_a_time(answerer, signatures):
    words = ["cat", "mat", "able", "the", "no", "42", "é"]
    context = " ".join(np.random.default_rng(0).choice(words, 300))
    assert len(answerer.preprocessor(["cat"], [context]).question_index) > 32
    received = serve(signatures, ["cat", "mat?"], [context, "the mat"])
    received["answer"] = [answer.decode() for answer in received["answer"]]
    check_answers(received, answerer.answer(["cat", "mat?"], [context, "the mat"]))


def test_invalid_bytes_are_left_out_of_the_count(signatures):
    plain = serve(signatures, ["cat?"], ["the cat sat"])
    strange = serve(signatures, [b"c\xffat?"], [b"\xfethe ca\xfft sat"])
    for name, value in plain.items():
        np.testing.assert_array_equal(strange[name], value)

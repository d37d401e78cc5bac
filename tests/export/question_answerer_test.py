# SPDX-License-Identifier: Apache-2.0
"""A served question answerer returns the task's predictions for text."""

import numpy as np
import pytest

from tests.export.served_tasks import OPTIONS
from tests.export.small_classifier import make_answerer

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from keras_bert.export.question_signatures import question_signatures  # noqa: E402

# SavedModels are the same on all backends. saved_model_test.py exports on each.
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
    # With this threshold, some questions have an answer and some do not.
    answerer.null_threshold = float(np.median(odds))
    return answerer


@pytest.fixture(scope="module")
def signatures(answerer):
    """The signature functions of an export. served_model_test.py tests the export itself."""
    return question_signatures(answerer, OPTIONS)


def serve(signatures, questions, contexts):
    outputs = signatures["serving_default"](
        question=tf.constant(questions, tf.string), context=tf.constant(contexts, tf.string)
    )
    return {name: value.numpy() for name, value in outputs.items()}


def check_answers(outputs, expected):
    assert list(outputs["answer"]) == [answer["answer"] for answer in expected]
    for name in ("start", "end"):
        assert list(outputs[name]) == [answer[name] for answer in expected]
    np.testing.assert_allclose(
        outputs["score"], [answer["score"] for answer in expected], atol=1e-4
    )


def test_signature_matches_answer(answerer, signatures):
    expected = answerer.answer(list(QUESTIONS), list(CONTEXTS))
    assert {bool(answer["answer"]) for answer in expected} == {True, False}
    outputs = serve(signatures, QUESTIONS, CONTEXTS)
    outputs["answer"] = [answer.decode() for answer in outputs["answer"]]
    check_answers(outputs, expected)


def test_no_threshold_always_returns_an_answer():
    answerer = make_answerer()
    signatures = question_signatures(answerer, OPTIONS)
    outputs = serve(signatures, QUESTIONS, CONTEXTS)
    outputs["answer"] = [answer.decode() for answer in outputs["answer"]]
    assert list(map(bool, outputs["answer"])) == list(map(bool, CONTEXTS))
    check_answers(outputs, answerer.answer(list(QUESTIONS), list(CONTEXTS)))


def test_windows_can_exceed_max_batch_size(answerer, signatures):
    words = ["cat", "mat", "able", "the", "no", "42", "é"]
    context = " ".join(np.random.default_rng(0).choice(words, 300))
    assert len(answerer.preprocessor(["cat"], [context]).question_index) > 32
    outputs = serve(signatures, ["cat", "mat?"], [context, "the mat"])
    outputs["answer"] = [answer.decode() for answer in outputs["answer"]]
    check_answers(outputs, answerer.answer(["cat", "mat?"], [context, "the mat"]))


def test_invalid_bytes_do_not_shift_offsets(signatures):
    expected = serve(signatures, ["cat?"], ["the cat sat"])
    outputs = serve(signatures, [b"c\xffat?"], [b"\xfethe ca\xfft sat"])
    for name, value in expected.items():
        np.testing.assert_array_equal(outputs[name], value)

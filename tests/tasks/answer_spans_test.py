# SPDX-License-Identifier: Apache-2.0
"""Answer spans match a plain implementation of the search in the original BERT code."""

import math
from typing import NamedTuple

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert.data import QuestionAnswererPreprocessor, QuestionExample  # noqa: E402
from keras_bert.data.questions import question_rows  # noqa: E402
from keras_bert.tasks import answer_spans  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

LETTERS = [*"abcdefghijklmnop", "京"]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS]


class Pair(NamedTuple):
    text: str
    start_logit: float
    end_logit: float

    @property
    def score(self):
        return self.start_logit + self.end_logit


def reference_answers(rows, contexts, start_logits, end_logits, n_best, max_length, with_null):
    """Searches each window in plain loops. Returns the distinct answers to each question."""
    answers = []
    for question, context in enumerate(contexts):
        pairs, nulls = [], []
        for window in np.flatnonzero(rows.question_index == question):
            tokens = slice(rows.row_splits[window], rows.row_splits[window + 1])
            start, end = start_logits[tokens].tolist(), end_logits[tokens].tolist()
            nulls.append((start[0] + end[0], start[0], end[0]))
            for first in sorted(range(len(start)), key=lambda i: -start[i])[:n_best]:
                for last in sorted(range(len(end)), key=lambda i: -end[i])[:n_best]:
                    if not rows.is_max_context[tokens][first] or rows.char_ends[tokens][last] == 0:
                        continue
                    if not first <= last < first + max_length:
                        continue
                    a, b = rows.char_starts[tokens][first], rows.char_ends[tokens][last]
                    pairs.append(Pair(context[a:b], start[first], end[last]))
        null = Pair("", *min(nulls)[1:])
        if with_null:
            pairs.append(null)
        distinct = {}
        for pair in sorted(pairs, key=lambda pair: -pair.score):
            if len(distinct) < n_best:
                distinct.setdefault(pair.text, pair)
        if with_null:
            distinct.setdefault("", null)
        answers.append(list(distinct.values()) or [Pair("", 0.0, 0.0)])
    return answers


def random_questions(count=40, seed=0):
    generator = np.random.default_rng(seed)

    def text(low, high):
        return " ".join(generator.choice(LETTERS, generator.integers(low, high)))

    return [QuestionExample(str(n), text(1, 6), text(0, 30)) for n in range(count)]


def random_logits(rows, seed=1, scale=3.0):
    generator = np.random.default_rng(seed)
    shape = (2, len(rows.token_ids))
    # Few distinct values make ties likely.
    return (generator.integers(-4, 5, shape) * scale / 4).astype("float32")


@pytest.fixture(scope="module")
def questions():
    examples = random_questions()
    preprocessor = QuestionAnswererPreprocessor(make_tokenizer(*TOKENS), 18, 4, 5)
    return question_rows(examples, preprocessor), [example.context for example in examples]


@pytest.mark.parametrize("with_null", [False, True])
@pytest.mark.parametrize(("n_best", "max_length"), [(20, 30), (3, 4), (1, 1)])
def test_n_best_matches_original_bert(questions, n_best, max_length, with_null, monkeypatch):
    rows, contexts = questions
    logits = random_logits(rows)
    monkeypatch.setattr(answer_spans, "CHUNK", 7)
    spans = answer_spans.find_answer_spans(
        rows, *logits, n_best=n_best, max_answer_length=max_length
    )
    received = spans.n_best(contexts, n_best, with_null)
    expected = reference_answers(rows, contexts, *logits, n_best, max_length, with_null)
    for answers, pairs in zip(received, expected, strict=True):
        assert [answer["text"] for answer in answers] == [pair.text for pair in pairs]
        total = sum(math.exp(pair.score) for pair in pairs)
        for answer, pair in zip(answers, pairs, strict=True):
            assert (answer["start_logit"], answer["end_logit"]) == pair[1:]
            assert answer["probability"] == pytest.approx(math.exp(pair.score) / total)


def test_best_texts_and_null_odds_match_n_best(questions):
    rows, contexts = questions
    logits = random_logits(rows, seed=2)
    spans = answer_spans.find_answer_spans(rows, *logits)
    for question, entries in enumerate(spans.n_best(contexts, with_null=True)):
        null = next(entry for entry in entries if not entry["text"])
        best = next((entry for entry in entries if entry["text"]), None)
        assert spans.best_texts(contexts)[question] == (best["text"] if best else "")
        null_score = null["start_logit"] + null["end_logit"]
        assert spans.null_scores[question] == null_score
        score = best["start_logit"] + best["end_logit"] if best else answer_spans.NO_SPAN
        assert spans.null_odds[question] == pytest.approx(null_score - score)

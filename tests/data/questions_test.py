# SPDX-License-Identifier: Apache-2.0
"""Compares passage windows with a plain implementation of the original BERT code's algorithm."""

import os
from pathlib import Path

import numpy as np
import pytest

from keras_bert import Backbone, BertConfig, QuestionAnswerer
from keras_bert.data import (
    QuestionAnswererPreprocessor,
    QuestionExample,
    SpanAnswer,
    read_squad,
)
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.questions import question_rows
from keras_bert.text.wordpiece import WordPieceTokenizer
from tests.text.small_tokenizers import make_tokenizer
from tests.text.vocabularies import released_vocabulary

pytestmark = pytest.mark.backend_independent

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh?", "##c", "##d", "京"]
CLS, SEP = TOKENS.index("[CLS]"), TOKENS.index("[SEP]")


def make_preprocessor(sequence_length=12, doc_stride=3, max_query_length=4, tokens=TOKENS):
    return QuestionAnswererPreprocessor(
        make_tokenizer(*tokens), sequence_length, doc_stride, max_query_length
    )


def reference_windows(question, passage, sequence_length, doc_stride, max_query_length):
    """Returns the rows and each window's (first token, length), as in the original BERT code."""
    question = question[:max_query_length]
    space = sequence_length - len(question) - 3
    spans, start = [], 0
    while True:
        length = min(space, len(passage) - start)
        spans.append((start, length))
        if start + length == len(passage):
            break
        start += min(length, doc_stride)
    rows = [[CLS, *question, SEP, *passage[start : start + n], SEP] for start, n in spans]
    return rows, spans


def max_context_window(spans, position):
    """Returns the window in which a passage token has the most context."""
    best_score, best = None, None
    for index, (start, length) in enumerate(spans):
        end = start + length - 1
        if not start <= position <= end:
            continue
        score = min(position - start, end - position) + 0.01 * length
        if best_score is None or score > best_score:
            best_score, best = score, index
    return best


def random_letters(generator, count):
    return " ".join(generator.choice(list("abcdefgh"), count))


def ids(text):
    return [TOKENS.index(letter) for letter in text.split()]


@pytest.mark.parametrize("settings", [(12, 3, 4), (11, 1, 6), (9, 9, 2), (40, 7, 3)])
def test_windows_match_reference(settings):
    generator = np.random.default_rng(0)
    questions = [random_letters(generator, count) for count in generator.integers(0, 8, 60)]
    passages = [random_letters(generator, count) for count in generator.integers(0, 60, 60)]
    windows = make_preprocessor(*settings)(questions, passages)
    rows, first_tokens, question_index, is_max_context = [], [], [], []
    for number, (question, passage) in enumerate(zip(questions, passages, strict=True)):
        question_rows_expected, spans = reference_windows(ids(question), ids(passage), *settings)
        rows += question_rows_expected
        for window, (start, length) in enumerate(spans):
            question_index.append(number)
            first_tokens.append(start)
            before = len(question_rows_expected[window]) - length - 1
            flags = [max_context_window(spans, start + place) == window for place in range(length)]
            is_max_context.append([False] * before + flags + [False])
    assert windows.features["token_ids"].to_list() == rows
    assert windows.question_index.tolist() == question_index
    assert windows.first_token.tolist() == first_tokens
    assert windows.is_max_context.to_list() == is_max_context


def test_character_spans_of_tokens():
    passage = "b  Ccd京 🏔e"
    (starts,), (ends,) = (part.to_list() for part in make_preprocessor(16)(["a?"], [passage])[3:5])
    spans = [passage[a:b] for a, b in zip(starts, ends, strict=True)]
    assert spans == ["", "", "", "", "b", "C", "c", "d", "京", "🏔e", ""]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((10, 3, 7), "sequence_length must be at least 11"),
        ((10, 0, 3), "doc_stride must be an integer above 0. Received: 0"),
        ((10, 3, 0), "max_query_length must be an integer above 0. Received: 0"),
    ],
)
def test_too_short_lengths_raise(settings, message):
    with pytest.raises(ValueError, match=message):
        make_preprocessor(*settings)


def example(context, answer=None, start=0, question="a?"):
    answers = () if answer is None else (SpanAnswer(answer, start),)
    return QuestionExample(f"{context}{start}", question, context, answers)


def positions(rows):
    return list(zip(rows.start_positions.tolist(), rows.end_positions.tolist(), strict=True))


def test_targets_cover_the_answer_tokens():
    # Rows are [CLS] a ? [SEP] passage [SEP], so the passage starts at token 4.
    examples = [
        example("a bcd e", "bcd", 2),
        example("a bcd e", "cd", 3),
        example("a bcd e", "cd e", 3),
        example("a 京 e", "京", 2),
        example("a bcd e"),
        QuestionExample("unlabeled", "a?", "a b"),
        example("a \u200b b", "\u200b", 2),  # The tokenizer drops this character.
        QuestionExample("2", "a?", "a \u200b b", (SpanAnswer("\u200b", 2), SpanAnswer("b", 4))),
    ]
    rows = question_rows(examples, make_preprocessor(20))
    assert positions(rows) == [(5, 7), (6, 7), (6, 8), (5, 5), *[(0, 0)] * 3, (5, 5)]


def test_window_without_answer_points_to_cls():
    rows = question_rows([example("a b c d e f g h", "d e", 6)], make_preprocessor(9, 2, 3))
    # The windows have 4 tokens: a b c d, c d e f, e f g h.
    assert rows.question_index.tolist() == [0, 0, 0]
    assert positions(rows) == [(0, 0), (4 + 1, 4 + 2), (0, 0)]


def test_negative_fraction_keeps_random_windows(monkeypatch):
    long = " ".join("abcdefgh" * 30)
    examples = [
        QuestionExample(str(index), "a?", long, (SpanAnswer("d", 6),) if index % 3 else ())
        for index in range(60)
    ]
    all_rows = question_rows(examples, make_preprocessor(9, 2, 3))
    is_positive = all_rows.end_positions > 0
    has_answer = np.isin(all_rows.question_index, all_rows.question_index[is_positive])
    assert 0 < is_positive.sum() < has_answer.sum() < len(all_rows)
    for fraction in (0.0, 0.3, 0.999):
        rows = question_rows(examples, make_preprocessor(9, 2, 3), fraction)
        # All windows with the answer and all windows of unanswerable questions are kept.
        assert (rows.end_positions > 0).sum() == is_positive.sum()
        unanswerable = np.isin(rows.question_index, np.arange(0, 60, 3))
        assert unanswerable.sum() == (~has_answer).sum()
        negatives = len(rows) - unanswerable.sum() - is_positive.sum()
        num_negative = (has_answer & ~is_positive).sum()
        assert (
            abs(negatives - fraction * num_negative)
            <= 4 * np.sqrt(num_negative * fraction * (1 - fraction)) + 1e-9
        )
        # Each kept window is one of all windows, with its own tokens.
        windows = [
            {
                (index, *tokens.tolist())
                for index, tokens in zip(
                    row_set.question_index,
                    np.split(row_set.token_ids, row_set.row_splits[1:-1]),
                    strict=True,
                )
            }
            for row_set in (all_rows, rows)
        ]
        assert windows[1] <= windows[0]
        assert len(rows.row_splits) == len(rows) + 1
    single_chunk = question_rows(examples, make_preprocessor(9, 2, 3), 0.3)
    monkeypatch.setattr("keras_bert.data.questions.CHUNK", 7)
    chunks = question_rows(examples, make_preprocessor(9, 2, 3), 0.3)
    for name, value in vars(single_chunk).items():
        np.testing.assert_array_equal(getattr(chunks, name), value)


def test_chunks_match_single_chunk(monkeypatch):
    examples = [example("a b c d e f g h"[: 2 * n + 1], "b", 2) for n in (1, 4, 1, 7, 4)]
    all_rows = question_rows(examples, make_preprocessor())
    monkeypatch.setattr("keras_bert.data.questions.CHUNK", 2)
    chunks = question_rows(examples, make_preprocessor())
    for name, value in vars(all_rows).items():
        np.testing.assert_array_equal(getattr(chunks, name), value)
    assert len(question_rows([], make_preprocessor())) == 0


def test_batches_contain_each_window_once():
    generator = np.random.default_rng(1)
    texts = [random_letters(generator, count) for count in generator.integers(2, 40, 30)]
    config = BertConfig(
        vocabulary_size=len(TOKENS), num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=4
    )
    task = QuestionAnswerer(Backbone(config), make_preprocessor())
    examples = [example(text, text[2], 2) for text in texts]
    rows = question_rows(examples, task.preprocessor)
    options = BatchOptions(8, compiles=True, training=True, shuffle_seed=3)
    batches = task._batches(task._read(examples, None, None, options), options)
    assert len(batches) == -(-len(rows) // 8)
    seen = []
    for features, targets, weights in batches:
        assert features["token_ids"].shape in {(8, 12)}
        for number in np.flatnonzero(weights["end_logits"]):
            length = features["padding_mask"][number].sum()
            seen.append(
                (
                    *features["token_ids"][number, :length],
                    *features["segment_ids"][number, :length],
                    targets["start_logits"][number],
                    targets["end_logits"][number],
                )
            )
    expected = [
        (*rows.token_ids[a:b], *rows.segment_ids[a:b], start, end)
        for a, b, (start, end) in zip(
            rows.row_splits[:-1], rows.row_splits[1:], positions(rows), strict=True
        )
    ]
    assert sorted(map(tuple, seen)) == sorted(map(tuple, expected))


@pytest.mark.skipif("KERAS_BERT_DATA" not in os.environ, reason="needs the data sets")
def test_squad_targets_contain_answers():
    file = read_squad(Path(os.environ["KERAS_BERT_DATA"]) / "squad" / "dev-v1.1.json")
    examples = file.examples[:1500]
    preprocessor = QuestionAnswererPreprocessor(WordPieceTokenizer(list(released_vocabulary())))
    rows = question_rows(examples, preprocessor)
    count = exact = 0
    for window, (start, end) in enumerate(positions(rows)):
        if start == 0:
            continue
        count += 1
        question = examples[rows.question_index[window]]
        tokens = slice(*rows.row_splits[window : window + 2])
        a, b = rows.char_starts[tokens][start], rows.char_ends[tokens][end]
        assert question.answers[0].text.strip() in question.context[a:b]
        exact += question.context[a:b] == question.answers[0].text
    assert len(set(rows.question_index[rows.start_positions > 0])) > 0.99 * len(examples)
    assert exact > 0.98 * count  # The other answers start or end within a word piece.


def test_default_query_length_fits_short_rows():
    assert QuestionAnswererPreprocessor(make_tokenizer(*TOKENS), 384).max_query_length == 64
    for length in (5, 16, 64, 68):
        preprocessor = QuestionAnswererPreprocessor(make_tokenizer(*TOKENS), length)
        assert 1 <= preprocessor.max_query_length <= (length - 3) / 2
        restored = QuestionAnswererPreprocessor.from_config(preprocessor.get_config())
        assert restored.max_query_length == preprocessor.max_query_length

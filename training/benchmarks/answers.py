# SPDX-License-Identifier: Apache-2.0
"""Benchmarks the span search in question answering, from logits to answers.

A step is one question. It includes the search over random logits, the 20 best answers, the null
odds and the final answer.
"""

from __future__ import annotations

import numpy as np

from keras_bert.data.questions import QuestionRows
from keras_bert.tasks.answer_spans import find_answer_spans

from .subject import Function
from .workload import Workload

# Number of characters per token, including the space after it
TOKEN_WIDTH = 5
QUESTION_TOKENS = 15
MIN_TOKENS, MAX_TOKENS = 80, 384


def answer_subjects(workload: Workload) -> list[Function]:
    """Returns the span search, for one question per step.

    About 5% of the questions have two windows. A window has 80 to 384 tokens.
    """
    rows = random_rows(workload.steps)
    generator = np.random.default_rng(1)
    logits = generator.normal(0, 3, (2, len(rows.token_ids))).astype("float32")
    contexts = ["abcd " * MAX_TOKENS] * workload.steps

    def answer() -> int:
        spans = find_answer_spans(rows, *logits)
        spans.n_best(contexts, with_null=True)
        spans.null_odds.tolist()
        spans.answers(contexts, null_threshold=0.0)
        return len(rows.token_ids)

    return [Function("keras_bert", answer, workload.steps)]


def random_rows(num_questions: int) -> QuestionRows:
    """Returns random windows. Their first 15 tokens are the question and special tokens."""
    generator = np.random.default_rng(0)
    counts = generator.choice([1, 2], num_questions, p=[0.95, 0.05])
    lengths = generator.integers(MIN_TOKENS, MAX_TOKENS + 1, counts.sum())
    row_splits = np.concatenate([[0], np.cumsum(lengths)])
    position = np.arange(row_splits[-1]) - np.repeat(row_splits[:-1], lengths)
    is_passage = (position >= QUESTION_TOKENS) & (position < np.repeat(lengths, lengths) - 1)
    starts = np.where(is_passage, (position - QUESTION_TOKENS) * TOKEN_WIDTH, 0)
    nothing = np.zeros(len(lengths), "int32")
    return QuestionRows(
        row_splits=row_splits,
        token_ids=np.zeros(len(position), "int32"),
        segment_ids=is_passage.astype("int32"),
        char_starts=starts,
        char_ends=np.where(is_passage, starts + TOKEN_WIDTH - 1, 0),
        is_max_context=is_passage,
        question_index=np.repeat(np.arange(num_questions), counts),
        start_positions=nothing,
        end_positions=nothing,
        num_questions=num_questions,
    )

# SPDX-License-Identifier: Apache-2.0
"""Benchmark of the span search in question answering, from logits to answers.

    python -m training.benchmarks.answers

It uses random logits, with as many questions as SQuAD 2.0's development set, in windows of similar
sizes, and includes the search, the 20 best answers of each question, the null odds and the
predictions.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import numpy as np

from keras_bert.data.questions import QuestionRows
from keras_bert.tasks.answer_spans import find_answer_spans

# Characters of a token and the space after it
TOKEN_WIDTH = 5
QUESTION_TOKENS = 15


def run(rounds: int = 5, num_questions: int = 11_873) -> dict[str, Any]:
    """Measures the search on random logits.

    Args:
        rounds: Number of repetitions.
        num_questions: Number of questions. One in twenty has two windows; windows have 80 to 384
            tokens.

    Returns:
        A dict of `windows`, `spans` (the number of candidates) and, over the rounds,
        `questions_per_second` (the median), `slowest` and `fastest`.
    """
    rows = random_rows(num_questions)
    generator = np.random.default_rng(1)
    logits = generator.normal(0, 3, (2, len(rows.token_ids))).astype("float32")
    contexts = ["abcd " * 384] * num_questions
    speeds, spans = [], None
    for _ in range(rounds):
        start = time.perf_counter()
        spans = find_answer_spans(rows, *logits)
        spans.n_best(contexts, with_null=True)
        spans.null_odds.tolist()
        spans.answers(contexts, null_threshold=0.0)
        speeds.append(num_questions / (time.perf_counter() - start))
    return {
        "windows": len(rows),
        "spans": 0 if spans is None else len(spans.char_starts),
        "questions_per_second": statistics.median(speeds),
        "slowest": min(speeds),
        "fastest": max(speeds),
    }


def random_rows(num_questions: int) -> QuestionRows:
    """Returns random windows, whose first 15 tokens are the question and special tokens."""
    generator = np.random.default_rng(0)
    counts = generator.choice([1, 2], num_questions, p=[0.95, 0.05])
    lengths = generator.integers(80, 385, counts.sum())
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


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))

# SPDX-License-Identifier: Apache-2.0
"""Finds candidate answers for extractive question answering from window logits."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from keras_bert import checks
from keras_bert.data.questions import QuestionRows, likely_spans

# Number of windows to process at a time. With 384 tokens each, they have 3 MB of start logits, and
# about a million token pairs.
CHUNK = 2048
# The best score if a question has no spans
NO_SPAN = -1e6

# The offset of the first character, the offset after the last character, and both logits
_Span = tuple[int, int, float, float]
# The text and both logits
_Answer = tuple[str, float, float]


@dataclasses.dataclass(frozen=True, eq=False)
class AnswerSpans:
    """The candidate spans of all questions in flat arrays, by descending score per question.

    Args:
        splits: Row splits of the questions in the flat arrays, int64 `(questions + 1,)`.
        char_starts: Offset of each span's first character in the context, `(spans,)`.
        char_ends: Offset after each span's last character, `(spans,)`.
        start_logits: Start logit of each span's first token, float64 `(spans,)`.
        end_logits: End logit of each span's last token, float64 `(spans,)`.
        null_start_logits: Start logit of `[CLS]` in the window with the lowest null score, float64
            `(questions,)`.
        null_end_logits: End logit of `[CLS]` in the same window, float64 `(questions,)`.
    """

    splits: np.ndarray
    char_starts: np.ndarray
    char_ends: np.ndarray
    start_logits: np.ndarray
    end_logits: np.ndarray
    null_start_logits: np.ndarray
    null_end_logits: np.ndarray

    def __len__(self) -> int:
        return len(self.null_start_logits)

    @property
    def scores(self) -> np.ndarray:
        """The score of each span (the sum of its logits), float64 `(spans,)`."""
        return np.asarray(self.start_logits + self.end_logits)

    @property
    def null_scores(self) -> np.ndarray:
        """The null score of each question, the sum of the `[CLS]` logits, `(questions,)`."""
        return np.asarray(self.null_start_logits + self.null_end_logits)

    @property
    def best_scores(self) -> np.ndarray:
        """The score of each question's best span, float64 `(questions,)`."""
        best = np.where(self._lacks_spans, -1, self.splits[:-1])
        return np.append(self.scores, NO_SPAN)[best]

    @property
    def null_odds(self) -> np.ndarray:
        """The null score of each question minus its best span's score, float64 `(questions,)`."""
        return np.asarray(self.null_scores - self.best_scores)

    def best_texts(self, contexts: Sequence[str]) -> list[str]:
        """Returns the text of each question's best span, or an empty string if it has no spans."""
        offsets = self._offsets(self._lacks_spans)
        return [context[start:end] for context, start, end in zip(contexts, *offsets, strict=True)]

    def answers(
        self, contexts: Sequence[str], null_threshold: float | None = None
    ) -> list[dict[str, Any]]:
        """Returns the best answer to each question.

        Args:
            contexts: The context of each question.
            null_threshold: If a question's null score minus its best score exceeds this threshold,
                the answer is empty. With `None`, the answer is only empty if the question has no
                spans.

        Returns:
            A list of dicts with `answer`, `start` and `end` (its character offsets in the context)
            and `score` (its probability among all spans, and with `null_threshold` also the null
            answer). Both offsets of empty answers are 0.
        """
        is_null = self._lacks_spans
        if null_threshold is not None:
            is_null |= self.null_odds > null_threshold
        probabilities = self._probabilities(is_null, null_threshold is not None).tolist()
        columns = zip(contexts, *self._offsets(is_null), probabilities, strict=True)
        return [
            {"answer": context[start:end], "start": start, "end": end, "score": score}
            for context, start, end, score in columns
        ]

    @property
    def _lacks_spans(self) -> np.ndarray:
        return np.asarray(np.diff(self.splits) == 0)

    def _offsets(self, is_null: np.ndarray) -> list[list[int]]:
        """Returns the character offsets of each question's best span, or 0 for null answers."""
        best = np.where(is_null, -1, self.splits[:-1])
        return [
            np.append(column, 0)[best].tolist() for column in (self.char_starts, self.char_ends)
        ]

    def _probabilities(self, is_null: np.ndarray, with_null: bool) -> np.ndarray:
        """Returns the probability of each answer, `(questions,)`, or 0 without candidates."""
        best = self.best_scores
        null = self.null_scores if with_null else np.full(len(self), -np.inf)
        largest = np.maximum(best, null)
        question = np.repeat(np.arange(len(self)), np.diff(self.splits))
        weights = np.exp(self.scores - largest[question])
        total = np.bincount(question, weights, minlength=len(self)) + np.exp(null - largest)
        chosen = np.exp(np.where(is_null, null, best) - largest)
        return np.asarray(np.divide(chosen, total, out=np.zeros(len(self)), where=total > 0))

    def n_best(
        self, contexts: Sequence[str], n_best: int = 20, with_null: bool = False
    ) -> list[list[dict[str, Any]]]:
        """Returns the best answers to each question, as in the original BERT code's n-best file.

        The answers have different texts. With `with_null`, they include the null answer, whose text
        is empty.
        """
        nulls = zip(self.null_start_logits.tolist(), self.null_end_logits.tolist(), strict=True)
        bounds = itertools.pairwise(self.splits.tolist())
        return [
            _add_probabilities(
                _distinct(
                    self._spans(first, behind, 2 * n_best),
                    context,
                    n_best,
                    null if with_null else None,
                )
            )
            for context, null, (first, behind) in zip(contexts, nulls, bounds, strict=True)
        ]

    def _spans(self, first: int, behind: int, step: int) -> Iterator[_Span]:
        """Yields the spans between two indices of the flat arrays, converted in chunks."""
        columns = (self.char_starts, self.char_ends, self.start_logits, self.end_logits)
        for start in range(first, behind, step):
            part = slice(start, min(start + step, behind))
            yield from zip(*(column[part].tolist() for column in columns), strict=True)


def find_answer_spans(
    rows: QuestionRows,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    *,
    n_best: int = 20,
    max_answer_length: int = 30,
) -> AnswerSpans:
    """Finds all questions' candidate answers from the logits `(tokens,)` of their windows.

    `keras_bert.data.questions.likely_spans` determines the candidate spans, as in exported models.
    """
    checks.POSITIVE_INT.check(n_best=n_best, max_answer_length=max_answer_length)
    parts = [
        _pairs(
            rows, slice(first, first + CHUNK), start_logits, end_logits, n_best, max_answer_length
        )
        for first in range(0, len(rows) or 1, CHUNK)
    ]
    window, start, end = (np.concatenate(part) for part in zip(*parts, strict=True))
    columns = {
        "char_starts": rows.char_starts[start],
        "char_ends": rows.char_ends[end],
        "start_logits": start_logits[start].astype("float64"),
        "end_logits": end_logits[end].astype("float64"),
    }
    question = rows.question_index[window]
    splits = np.searchsorted(question, np.arange(rows.num_questions + 1))
    order = _order(-(columns["start_logits"] + columns["end_logits"]), splits.tolist())
    null_start, null_end = _null_logits(rows, start_logits, end_logits)
    return AnswerSpans(
        splits=splits,
        **{name: column[order] for name, column in columns.items()},
        null_start_logits=null_start,
        null_end_logits=null_end,
    )


def _order(values: np.ndarray, splits: Sequence[int]) -> np.ndarray:
    """Returns the indices that sort the values within each part, with a stable sort."""
    # Sorting a few dozen values at a time is four times as fast as sorting all values by two keys.
    parts = [
        np.argsort(values[first:behind], kind="stable") + first
        for first, behind in itertools.pairwise(splits)
    ]
    return np.concatenate([np.zeros(0, "int64"), *parts])


def _pairs(
    rows: QuestionRows,
    windows: slice,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    n_best: int,
    max_answer_length: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the window, start token and end token (as flat indices) of all candidate spans."""
    begin, lengths = rows.row_splits[:-1][windows, None], rows.lengths[windows, None]
    columns = np.arange(lengths.max(initial=0))
    mask = columns < lengths
    # (windows, 1) + (longest,) -> (windows, longest)
    tokens = np.where(mask, begin + columns, 0)
    first, last, is_allowed = (
        np.asarray(x)
        for x in likely_spans(
            (start_logits[tokens], end_logits[tokens]),
            mask,
            rows.is_max_context[tokens],
            rows.char_ends[tokens] > 0,
            n_best=n_best,
            max_answer_length=max_answer_length,
        )
    )
    window, start, end = np.nonzero(is_allowed)
    begin = begin[window, 0]
    return window + windows.start, begin + first[window, start], begin + last[window, end]


def _null_logits(
    rows: QuestionRows, start_logits: np.ndarray, end_logits: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the logits of `[CLS]` in each question's window with the lowest null score."""
    cls = rows.row_splits[:-1]
    start, end = start_logits[cls].astype("float64"), end_logits[cls].astype("float64")
    order = np.lexsort((start + end, rows.question_index))
    first = order[np.searchsorted(rows.question_index, np.arange(rows.num_questions))]
    return start[first], end[first]


def _distinct(
    spans: Iterable[_Span], context: str, count: int, null: tuple[float, float] | None
) -> list[_Answer]:
    """Returns the best spans with different texts and the null answer, sorted by score."""
    logits: dict[str, tuple[float, float]] = {}
    for first, behind, start, end in spans:
        if null is not None and sum(null) > start + end:
            logits.setdefault("", null)
        if len(logits) >= count:
            break
        logits.setdefault(context[first:behind], (start, end))
    if null is not None:
        logits.setdefault("", null)
    return [(text, *text_logits) for text, text_logits in logits.items()] or [("", 0.0, 0.0)]


def _add_probabilities(answers: list[_Answer]) -> list[dict[str, Any]]:
    largest = max(start + end for _, start, end in answers)
    weights = [math.exp(start + end - largest) for _, start, end in answers]
    total = sum(weights)
    return [
        {"text": text, "probability": weight / total, "start_logit": start, "end_logit": end}
        for (text, start, end), weight in zip(answers, weights, strict=True)
    ]

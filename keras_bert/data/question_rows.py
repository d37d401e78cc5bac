# SPDX-License-Identifier: Apache-2.0
"""The windows of many questions in memory, and batches of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
import tensorflow as tf

from keras_bert.data.question_windows import QuestionAnswererPreprocessor, TokenizedQuestions
from keras_bert.data.row_batches import BatchOptions, row_batches
from keras_bert.data.squad import QuestionExample

# Questions that are tokenized in one call
CHUNK = 512


@dataclasses.dataclass(frozen=True, eq=False)
class QuestionRows:
    """The windows of questions, in their order, row behind row in flat arrays.

    Args:
        row_splits: Where each window's tokens begin in the flat arrays, int64 `(windows + 1,)`.
        token_ids: int32 `(tokens,)`.
        segment_ids: int32 `(tokens,)`, 1 for the passage in families that tell segments apart.
        char_starts: The first character in the passage of each token, int32 `(tokens,)`.
        char_ends: One past its last, int32 `(tokens,)`; 0 outside the passage.
        is_max_context: Whether a token's own window is the one to speak for it `(tokens,)`.
        question_index: Which question a window is of, int32 `(windows,)`.
        start_positions: Which token of the window an answer begins with, int32 `(windows,)`; 0,
            the place of `[CLS]`, if the window does not hold the answer whole.
        end_positions: The answer's last token, likewise.
        num_questions: How many questions there are.
    """

    row_splits: np.ndarray
    token_ids: np.ndarray
    segment_ids: np.ndarray
    char_starts: np.ndarray
    char_ends: np.ndarray
    is_max_context: np.ndarray
    question_index: np.ndarray
    start_positions: np.ndarray
    end_positions: np.ndarray
    num_questions: int

    def __len__(self) -> int:
        return len(self.question_index)

    @property
    def lengths(self) -> np.ndarray:
        """The windows' lengths in tokens, int64 `(windows,)`."""
        return np.diff(self.row_splits)


def question_rows(
    examples: Sequence[QuestionExample], preprocessor: QuestionAnswererPreprocessor
) -> QuestionRows:
    """Tokenizes questions, and cuts their passages into windows.

    Args:
        examples: The questions. The first answer of each decides its targets.
        preprocessor: Makes the windows.
    """
    starts = range(0, len(examples), CHUNK) or (0,)
    chunks = [_chunk(examples[start : start + CHUNK], preprocessor, start) for start in starts]
    columns = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    row_splits = np.concatenate([[0], np.cumsum(columns.pop("lengths"))]).astype("int64")
    return QuestionRows(row_splits=row_splits, num_questions=len(examples), **columns)


def window_batches(
    rows: QuestionRows,
    preprocessor: QuestionAnswererPreprocessor,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Length-bucketed batches of windows.

    Args:
        rows: The windows.
        preprocessor: What made them.
        **options: `BatchOptions`.

    Returns:
        A dataset of `(features, index)`, with which windows are in the batch, int64 `(batch,)`;
        of `(features, index, is_real)` if the last batch is filled up, float32 `(batch,)`.
    """
    names = ("token_ids", "segment_ids")
    ragged = {
        name: tf.RaggedTensor.from_row_splits(getattr(rows, name), rows.row_splits, validate=False)
        for name in names
    }

    def featurize(index: tf.Tensor) -> Any:
        return {name: tf.gather(value, index) for name, value in ragged.items()}, (index,)

    batches = row_batches(len(rows), featurize, preprocessor, **options)
    return batches.map(lambda features, rest: (features, *rest))


def with_targets(batches: tf.data.Dataset, rows: QuestionRows) -> tf.data.Dataset:
    """Batches of `window_batches` as `fit` takes them: `(features, targets, weights)`."""
    starts, ends = tf.constant(rows.start_positions), tf.constant(rows.end_positions)

    def add(features: Any, index: tf.Tensor, is_real: tf.Tensor | None = None) -> Any:
        weight = tf.ones_like(index, tf.float32) if is_real is None else is_real
        targets = {"start_logits": tf.gather(starts, index), "end_logits": tf.gather(ends, index)}
        return features, targets, dict.fromkeys(targets, weight)

    return batches.map(add, num_parallel_calls=tf.data.AUTOTUNE)


def _chunk(
    examples: Sequence[QuestionExample], preprocessor: QuestionAnswererPreprocessor, first: int
) -> dict[str, np.ndarray]:
    # SQuAD asks some five questions on each passage, which is tokenized once.
    contexts = dict.fromkeys(example.context for example in examples)
    places = {context: place for place, context in enumerate(contexts)}
    tokens = preprocessor.tokenize(
        tf.constant([example.question for example in examples], tf.string),
        tf.constant(list(contexts), tf.string),
    )
    context_index = np.array([places[example.context] for example in examples], "int64")
    spans = _answer_tokens(examples, context_index, tokens)
    windows = preprocessor.windows(
        TokenizedQuestions(
            tokens.question_ids, *(tf.gather(part, context_index) for part in tokens[1:])
        )
    )
    question_index, first_token = windows.question_index.numpy(), windows.first_token.numpy()
    passage_starts, passage_lengths = windows.passage_start.numpy(), windows.passage_length.numpy()
    start, end = (spans[question_index] - first_token[:, None]).T
    is_inside = (spans[question_index, 0] >= 0) & (start >= 0) & (end < passage_lengths)
    return {
        "lengths": windows.features["token_ids"].row_lengths().numpy(),
        "token_ids": windows.features["token_ids"].flat_values.numpy(),
        "segment_ids": windows.features["segment_ids"].flat_values.numpy(),
        "char_starts": windows.char_starts.flat_values.numpy(),
        "char_ends": windows.char_ends.flat_values.numpy(),
        "is_max_context": windows.is_max_context.flat_values.numpy(),
        "question_index": (question_index + first).astype("int32"),
        "start_positions": np.where(is_inside, start + passage_starts, 0).astype("int32"),
        "end_positions": np.where(is_inside, end + passage_starts, 0).astype("int32"),
    }


def _answer_tokens(
    examples: Sequence[QuestionExample], context_index: np.ndarray, tokens: TokenizedQuestions
) -> np.ndarray:
    """The first and last token of each first answer in its passage, int64 `(batch, 2)`.

    They are those that have a part of the answer; -1 where there is none.
    """
    splits = tokens.char_starts.row_splits.numpy()
    starts, ends = tokens.char_starts.flat_values.numpy(), tokens.char_ends.flat_values.numpy()
    spans = np.full((len(examples), 2), -1, "int64")
    for number, (example, context) in enumerate(zip(examples, context_index, strict=True)):
        if not example.answers:
            continue
        answer = example.answers[0]
        passage = slice(splits[context], splits[context + 1])
        # Places never go backwards, so they are sorted.
        first = np.searchsorted(ends[passage], answer.start, side="right")
        behind = np.searchsorted(starts[passage], answer.start + len(answer.text), side="left")
        if first < behind:
            spans[number] = first, behind - 1
    return spans

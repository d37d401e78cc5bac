# SPDX-License-Identifier: Apache-2.0
"""Questions on passages: overlapping windows that fit into a model, and batches of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Self, Unpack

import numpy as np
import tensorflow as tf

from keras_bert.data.batching import BatchOptions, row_batches
from keras_bert.data.squad import QuestionExample
from keras_bert.data.text_batches import (
    num_special_tokens,
    pack_texts,
    padded,
    start_of_second,
    surround_second,
)
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.normalization import drop_invalid
from keras_bert.text.tokenizer import Tokenizer

# Questions that are tokenized in one call
CHUNK = 512


class TokenizedQuestions(NamedTuple):
    """Questions and their passages as tokens.

    Args:
        question_ids: Ragged int32 `(batch, None)`, cut to the longest question.
        passage_ids: Ragged int32 `(batch, None)`.
        char_starts: The first character of each token of the passages, of the same shape.
        char_ends: One past its last character.
    """

    question_ids: tf.RaggedTensor
    passage_ids: tf.RaggedTensor
    char_starts: tf.RaggedTensor
    char_ends: tf.RaggedTensor


class QuestionWindows(NamedTuple):
    """Rows for a model, in the order of the questions, and their offsets in the passages.

    Args:
        features: `token_ids` and `segment_ids` (1 for the passage, in families that tell
            segments apart), ragged int32 `(windows, None)`.
        question_index: Which question a window is of, int64 `(windows,)`.
        first_token: Which token of the passage the window begins with, int64 `(windows,)`.
        char_starts: The first character in the passage of each token, int32, of the features'
            shape; 0 outside the passage.
        char_ends: One past its last character; 0 outside the passage.
        is_max_context: Boolean, of the same shape: whether this is the window with
            the maximum context of the token. False outside the passage.
        passage_start: The position in the window of the passage's first token, int64
            `(windows,)`.
        passage_length: How many tokens of the passage the window holds, int64 `(windows,)`.
    """

    features: dict[str, tf.RaggedTensor]
    question_index: tf.Tensor
    first_token: tf.Tensor
    char_starts: tf.RaggedTensor
    char_ends: tf.RaggedTensor
    is_max_context: tf.RaggedTensor
    passage_start: tf.Tensor
    passage_length: tf.Tensor


class QuestionAnswererPreprocessor:
    """Packs a question and a window of its passage: `[CLS] question [SEP] window [SEP]`.

    A passage that is too long for one row becomes several that overlap. Graph operations alone,
    as the tokenizer's.

    Args:
        tokenizer: Text to ids.
        sequence_length: The longest row in tokens, special ones counted.
        doc_stride: How many tokens further on in the passage the next window begins.
        max_query_length: The longest question in tokens; longer ones are cut.

    Call arguments:
        question: Strings `(batch,)`.
        context: Their passages, strings `(batch,)`.

    Returns:
        The `QuestionWindows`, one or more for each question.

    Raises:
        ValueError: If a row with the longest question had no room for a passage.

    Example:

    >>> from keras_bert.data import QuestionAnswererPreprocessor
    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "?"]
    >>> tokenizer = keras_bert.WordPieceTokenizer(tokens)
    >>> preprocessor = QuestionAnswererPreprocessor(tokenizer, 6, doc_stride=1, max_query_length=1)
    >>> preprocessor(["?"], ["a b c"]).features["token_ids"].to_list()
    [[2, 7, 3, 4, 5, 3], [2, 7, 3, 5, 6, 3]]

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 4.2; windows as in the released code.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 384,
        doc_stride: int = 128,
        max_query_length: int = 64,
    ) -> None:
        if doc_stride < 1 or max_query_length < 1:
            raise ValueError(
                f"doc_stride is {doc_stride} and max_query_length {max_query_length}; both must "
                "be at least 1."
            )
        # The special tokens, and a token of the passage
        shortest = max_query_length + num_special_tokens(tokenizer, 2) + 1
        if sequence_length < shortest:
            raise ValueError(
                f"sequence_length is {sequence_length} and max_query_length {max_query_length}; "
                f"sequence_length must be at least {shortest}."
            )
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.doc_stride = doc_stride
        self.max_query_length = max_query_length

    def __call__(self, question: Any, context: Any) -> QuestionWindows:
        return self.windows(self.tokenize(question, context))

    def tokenize(self, question: Any, context: Any) -> TokenizedQuestions:
        """The first step of a call."""
        ids = self.tokenizer(question)[:, : self.max_query_length]
        return TokenizedQuestions(ids, *self.tokenizer.tokenize_with_offsets(context))

    def windows(self, tokens: TokenizedQuestions) -> QuestionWindows:
        """The second step of a call."""
        row, first, length = self._spans(tokens)
        # Of each window, the positions of its tokens among those of all passages
        begin = tf.gather(tokens.passage_ids.row_splits, row) + first
        positions = tf.ragged.range(begin, begin + length)
        question = tf.gather(tokens.question_ids, row)

        def passage(values: tf.RaggedTensor) -> tf.RaggedTensor:
            return positions.with_flat_values(tf.gather(values.flat_values, positions.flat_values))

        def surrounded(values: tf.RaggedTensor) -> tf.RaggedTensor:
            return surround_second(self.tokenizer, question, values)

        return QuestionWindows(
            features=pack_texts(self.tokenizer, question, passage(tokens.passage_ids)),
            passage_start=start_of_second(self.tokenizer, question),
            passage_length=length,
            question_index=row,
            first_token=first,
            char_starts=surrounded(passage(tokens.char_starts)),
            char_ends=surrounded(passage(tokens.char_ends)),
            is_max_context=surrounded(
                _is_max_context(positions, tf.size(tokens.passage_ids.flat_values))
            ),
        )

    def _spans(self, tokens: TokenizedQuestions) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Of each window, its question, its first token in the passage, and its length there."""
        passage_length = tokens.passage_ids.row_lengths()
        special = num_special_tokens(self.tokenizer, 2)
        room = self.sequence_length - special - tokens.question_ids.row_lengths()
        stride = tf.minimum(room, self.doc_stride)
        # Rounded up: the last window holds the rest. A passage without tokens gets a window too.
        num_windows = 1 + (tf.maximum(passage_length - room, 0) + stride - 1) // stride
        row = tf.repeat(tf.range(tokens.passage_ids.nrows()), num_windows)
        first = tf.ragged.range(num_windows).flat_values * tf.gather(stride, row)
        length = tf.minimum(tf.gather(room, row), tf.gather(passage_length, row) - first)
        return row, first, length

    def padded(self, windows: QuestionWindows) -> dict[str, tf.Tensor]:
        """The features of windows, `(windows, length)`, with `padding_mask`, for the model."""
        return padded(self.tokenizer, windows.features, num_special_tokens(self.tokenizer, 2))

    @staticmethod
    def passage_slice(context: tf.Tensor, start: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        """The characters of passages from `start` up to `end`, counted as the windows count.

        Args:
            context: Strings `(batch,)`.
            start: int32 `(batch,)`.
            end: int32 `(batch,)`.
        """
        return tf.strings.substr(drop_invalid(context), start, end - start, unit="UTF8_CHAR")

    def get_config(self) -> dict[str, Any]:
        """Plain values from which `from_config` makes the same preprocessor."""
        return {
            "tokenizer": self.tokenizer.get_config(),
            "sequence_length": self.sequence_length,
            "doc_stride": self.doc_stride,
            "max_query_length": self.max_query_length,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The inverse of `get_config`."""
        values = dict(config)
        tokenizer = tokenizer_from_config(values.pop("tokenizer"))
        return cls(tokenizer, **values)


def _is_max_context(positions: tf.RaggedTensor, num_tokens: tf.Tensor) -> tf.RaggedTensor:
    """Whether a window has the maximum context of a token: most tokens on its shorter side.

    Each token of a window counts a hundredth more, and of equal windows the first is taken.

    Args:
        positions: Of each window `(windows, None)`, which of all passages' tokens it holds.
        num_tokens: How many they are.

    Returns:
        Ragged booleans of the shape of `positions`.
    """
    length = positions.row_lengths()
    left = tf.ragged.range(length).flat_values
    window = positions.value_rowids()
    right = tf.gather(length, window) - 1 - left
    # In double precision, where equals and unequals are those of the released code
    score = tf.cast(tf.minimum(left, right), tf.float64) + 0.01 * tf.cast(
        tf.gather(length, window), tf.float64
    )
    position = positions.flat_values
    best = tf.gather(tf.math.unsorted_segment_max(score, position, num_tokens), position)
    best_windows = tf.where(score == best, window, window.dtype.max)
    first = tf.gather(tf.math.unsorted_segment_min(best_windows, position, num_tokens), position)
    return positions.with_flat_values(first == window)


@dataclasses.dataclass(frozen=True, eq=False)
class QuestionRows:
    """The windows of questions, in their order, row after row in flat arrays.

    Args:
        row_splits: Where each window's tokens begin in the flat arrays, int64 `(windows + 1,)`.
        token_ids: int32 `(tokens,)`.
        segment_ids: int32 `(tokens,)`, 1 for the passage in families that tell segments apart.
        char_starts: The first character in the passage of each token, int32 `(tokens,)`.
        char_ends: One past its last, int32 `(tokens,)`; 0 outside the passage.
        is_max_context: Whether the window is the one with a token's maximum context `(tokens,)`.
        question_index: Which question a window is of, int32 `(windows,)`.
        start_positions: Which token of the window an answer begins with, int32 `(windows,)`; 0,
            the position of `[CLS]`, if the window does not hold the whole answer.
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
        preprocessor: The preprocessor that made them.
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


def likely_spans(
    logits: tuple[tf.Tensor, tf.Tensor],
    mask: tf.Tensor,
    may_start: tf.Tensor,
    may_end: tf.Tensor,
    *,
    n_best: int,
    max_answer_length: int,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Pairs the likeliest first tokens of each window with its likeliest last ones.

    Args:
        logits: That an answer starts and that it ends at a token, float32 `(windows, length)`.
        mask: True at real tokens, boolean `(windows, length)`.
        may_start: Where an answer may start: in the window with the most context of the token.
        may_end: Where it may end: in the passage.
        n_best: How many first and last tokens of each window are paired; of equally likely ones
            the earlier.
        max_answer_length: The longest answer, in tokens.

    Returns:
        The first and the last tokens, int32 `(windows, best)`, the likeliest first; and which pairs
        of them may be an answer, boolean `(windows, best, best)`: those whose last token is not
        before the first.

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), sections 4.2 and 4.3; the released code.
    """
    count = tf.minimum(n_best, tf.shape(mask)[1])
    (first, starts), (last, ends) = (
        (tokens, tf.gather(allowed & mask, tokens, batch_dims=1))
        for tokens, allowed in (
            (tf.math.top_k(tf.where(mask, values, -float("inf")), count).indices, allowed)
            for values, allowed in zip(logits, (may_start, may_end), strict=True)
        )
    )
    # (windows, 1, best) - (windows, best, 1) -> (windows, best, best)
    distance = last[:, None, :] - first[:, :, None]
    is_allowed = starts[:, :, None] & ends[:, None, :]
    return first, last, is_allowed & (distance >= 0) & (distance < max_answer_length)


def _chunk(
    examples: Sequence[QuestionExample], preprocessor: QuestionAnswererPreprocessor, first: int
) -> dict[str, np.ndarray]:
    # SQuAD asks some five questions on each passage, which is tokenized once.
    contexts = dict.fromkeys(example.context for example in examples)
    positions = {context: position for position, context in enumerate(contexts)}
    tokens = preprocessor.tokenize(
        tf.constant([example.question for example in examples], tf.string),
        tf.constant(list(contexts), tf.string),
    )
    context_index = np.array([positions[example.context] for example in examples], "int64")
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
        # Offsets never decrease, so they are sorted.
        first = np.searchsorted(ends[passage], answer.start, side="right")
        end = np.searchsorted(starts[passage], answer.start + len(answer.text), side="left")
        if first < end:
            spans[number] = first, end - 1
    return spans

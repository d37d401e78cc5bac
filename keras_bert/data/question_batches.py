# SPDX-License-Identifier: Apache-2.0
"""Questions on passages: overlapping windows that fit the model's input, and batching."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Self, Unpack

import numpy as np
import tensorflow as tf

from keras_bert import checks
from keras_bert.data.batching import BatchOptions, row_batches, without_autograph
from keras_bert.data.squad import QuestionExample
from keras_bert.data.text_batches import (
    num_special_tokens,
    pack_texts,
    padded,
    start_of_second,
    surround_second,
)
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.graph.normalization import drop_invalid
from keras_bert.text.tokenizer import Tokenizer

# Number of questions that are tokenized in one call
CHUNK = 512


class TokenizedQuestions(NamedTuple):
    """Tokenized questions and passages.

    Args:
        question_ids: Ragged int32 `(batch, None)`, truncated to `max_query_length`.
        passage_ids: Ragged int32 `(batch, None)`.
        char_starts: The offset of the first character of each passage token, ragged int32 of the
            shape of `passage_ids`.
        char_ends: The offset one past its last character, of the same shape.
    """

    question_ids: tf.RaggedTensor
    passage_ids: tf.RaggedTensor
    char_starts: tf.RaggedTensor
    char_ends: tf.RaggedTensor


class QuestionWindows(NamedTuple):
    """Windows in the order of the questions, and their offsets in the passages.

    Args:
        features: A dict of `token_ids` and `segment_ids` (1 for the passage in families with two
            segments), ragged int32 `(windows, None)`.
        question_index: The index of each window's question, int64 `(windows,)`.
        first_token: The index in the passage of each window's first passage token, int64
            `(windows,)`.
        char_starts: The offset in the passage of each token's first character, ragged int32
            `(windows, None)`; 0 outside the passage.
        char_ends: The offset one past each token's last character, of the same shape; 0 outside
            the passage.
        is_max_context: Ragged bool of the same shape: whether this is the window in which the
            token has the maximum context. False outside the passage.
        passage_start: The position in the window of its first passage token, int64 `(windows,)`.
        passage_length: The number of passage tokens in the window, int64 `(windows,)`.
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
    """Packs a question and a window of its passage into `[CLS] question [SEP] window [SEP]`.

    A passage that is too long for one row is split into overlapping windows. It uses graph
    operations only, and so can be part of a `tf.data` pipeline or a SavedModel.

    Args:
        tokenizer: The tokenizer that converts text to ids.
        sequence_length: Maximum length of a row in tokens, including the special tokens.
        doc_stride: Number of tokens between the starts of consecutive windows.
        max_query_length: Maximum length of a question in tokens; longer ones are truncated.

    Call arguments:
        question: Strings of shape `(batch,)`.
        context: The passages, strings of shape `(batch,)`.

    Returns:
        `QuestionWindows`, with at least one window for each question.

    Raises:
        ValueError: If `doc_stride` or `max_query_length` is below 1, or a row with the longest
            question has no room for a token of the passage.

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
        checks.POSITIVE_INT.check(
            sequence_length=sequence_length,
            doc_stride=doc_stride,
            max_query_length=max_query_length,
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
        """Tokenizes questions and passages, the first step of a call."""
        tokenizer = self.tokenizer.graph
        ids = tokenizer(question)[:, : self.max_query_length]
        return TokenizedQuestions(ids, *tokenizer.tokenize_with_offsets(context))

    def windows(self, tokens: TokenizedQuestions) -> QuestionWindows:
        """Splits tokenized passages into windows, the second step of a call."""
        row, first, length = self._spans(tokens)
        # The indices of each window's tokens among the tokens of all passages
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
        """Returns each window's question, first token in the passage, and number of tokens."""
        passage_length = tokens.passage_ids.row_lengths()
        special = num_special_tokens(self.tokenizer, 2)
        room = self.sequence_length - special - tokens.question_ids.row_lengths()
        stride = tf.minimum(room, self.doc_stride)
        # Rounded up: the last window has the rest. A passage without tokens has one window too.
        num_windows = 1 + (tf.maximum(passage_length - room, 0) + stride - 1) // stride
        row = tf.repeat(tf.range(tokens.passage_ids.nrows()), num_windows)
        first = tf.ragged.range(num_windows).flat_values * tf.gather(stride, row)
        length = tf.minimum(tf.gather(room, row), tf.gather(passage_length, row) - first)
        return row, first, length

    def padded(self, windows: QuestionWindows) -> dict[str, tf.Tensor]:
        """Pads windows to dense features `(windows, length)` with a `padding_mask`."""
        return padded(self.tokenizer, windows.features, num_special_tokens(self.tokenizer, 2))

    @staticmethod
    def passage_slice(context: tf.Tensor, start: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
        """Returns the text of passages between two offsets.

        Args:
            context: Passages, strings of shape `(batch,)`.
            start: The offset of the first character as in `char_starts`, int32 `(batch,)`.
            end: The offset one past the last character as in `char_ends`, int32 `(batch,)`.

        Returns:
            Strings of shape `(batch,)`.
        """
        return tf.strings.substr(drop_invalid(context), start, end - start, unit="UTF8_CHAR")

    def get_config(self) -> dict[str, Any]:
        """Returns the config from which `from_config` creates the same preprocessor."""
        return {
            "tokenizer": self.tokenizer.get_config(),
            "sequence_length": self.sequence_length,
            "doc_stride": self.doc_stride,
            "max_query_length": self.max_query_length,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a preprocessor from the config that `get_config` returned."""
        values = dict(config)
        tokenizer = tokenizer_from_config(values.pop("tokenizer"))
        return cls(tokenizer, **values)


def _is_max_context(positions: tf.RaggedTensor, num_tokens: tf.Tensor) -> tf.RaggedTensor:
    """Returns whether a token has its maximum context in a window.

    A token's context in a window is the smaller of the numbers of tokens to its left and to its
    right, plus 0.01 times the length of the window. On a tie, the first window is taken.

    Args:
        positions: The indices of each window's tokens among the tokens of all passages, ragged
            `(windows, None)`.
        num_tokens: The number of tokens of all passages.

    Returns:
        A ragged bool tensor of the shape of `positions`.
    """
    length = positions.row_lengths()
    left = tf.ragged.range(length).flat_values
    window = positions.value_rowids()
    right = tf.gather(length, window) - 1 - left
    # In float64, so that ties are the same as in the released code
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
    """The windows of all questions, concatenated in flat arrays.

    Args:
        row_splits: The index of each window's first token in the flat arrays, int64
            `(windows + 1,)`.
        token_ids: int32 `(tokens,)`.
        segment_ids: int32 `(tokens,)`, 1 for the passage in families with two segments.
        char_starts: The offset in the passage of each token's first character, int32
            `(tokens,)`; 0 outside the passage.
        char_ends: The offset one past its last character, int32 `(tokens,)`; 0 outside the
            passage.
        is_max_context: Whether the token has its maximum context in this window, bool
            `(tokens,)`.
        question_index: The index of each window's question, int32 `(windows,)`.
        start_positions: The position in the window of the answer's first token, int32
            `(windows,)`; 0, the position of `[CLS]`, if the window does not contain the whole
            answer.
        end_positions: The position in the window of the answer's last token, likewise.
        num_questions: Number of questions.
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
        """The length of each window in tokens, int64 `(windows,)`."""
        return np.diff(self.row_splits)


def question_rows(
    examples: Sequence[QuestionExample], preprocessor: QuestionAnswererPreprocessor
) -> QuestionRows:
    """Tokenizes questions, and splits their passages into windows.

    Args:
        examples: The questions. The targets are those of the first answer to each.
        preprocessor: The preprocessor that creates the windows.

    Returns:
        `QuestionRows`, the windows in the order of the questions.
    """
    starts = range(0, len(examples), CHUNK) or (0,)
    chunks = [_chunk(examples[start : start + CHUNK], preprocessor, start) for start in starts]
    columns = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    row_splits = np.concatenate([[0], np.cumsum(columns.pop("lengths"))]).astype("int64")
    return QuestionRows(row_splits=row_splits, num_questions=len(examples), **columns)


@without_autograph
def window_batches(
    rows: QuestionRows,
    preprocessor: QuestionAnswererPreprocessor,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Groups windows into length-bucketed batches.

    Args:
        rows: The windows.
        preprocessor: The preprocessor that created them.
        **options: `BatchOptions`.

    Returns:
        A dataset of `(features, index)`, where `index` (int64 `(batch,)`) holds the indices of
        the batch's windows; with `pad_last_batch`, of `(features, index, is_real)`, where
        `is_real` (float32 `(batch,)`) is 0 for filler rows.
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


@without_autograph
def with_targets(batches: tf.data.Dataset, rows: QuestionRows) -> tf.data.Dataset:
    """Converts batches of `window_batches` to `(features, targets, weights)` for `fit`."""
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
    """Finds the most likely start and end tokens of each window, and pairs them to spans.

    Args:
        logits: Start logits and end logits, each float32 `(windows, length)`.
        mask: Bool `(windows, length)`, False at padding.
        may_start: Bool `(windows, length)`, where an answer may start: at tokens that have their
            maximum context in this window.
        may_end: Bool `(windows, length)`, where an answer may end: in the passage.
        n_best: Number of start tokens and of end tokens of each window. On a tie, the earlier
            token is taken.
        max_answer_length: Maximum length of an answer, in tokens.

    Returns:
        A tuple of the positions of the start tokens and of the end tokens, int32
        `(windows, best)`, in descending order of their logits, and of which pairs of them are
        valid spans, bool `(windows, best, best)`: both tokens allowed, the end not before the
        start, and no more than `max_answer_length` tokens.

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
    # SQuAD has about five questions on each passage, which is tokenized once.
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
    """Returns the token span of each question's first answer in its passage, int64 `(batch, 2)`.

    The span is from the first to the last token that overlap the answer; -1 if there is none.
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

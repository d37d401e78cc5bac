# SPDX-License-Identifier: Apache-2.0
"""Questions on passages of any length, as rows that a model can take: overlapping windows."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import tensorflow as tf

from keras_bert.data.text_packing import (
    num_special_tokens,
    pack_texts,
    padded,
    start_of_second,
    surround_second,
)
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.normalization import drop_invalid
from keras_bert.text.tokenizer import Tokenizer


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


class Windows(NamedTuple):
    """Rows for a model, in the order of the questions, and what leads back to the passages.

    Args:
        features: `token_ids` and `segment_ids` (1 for the passage, in families that tell
            segments apart), ragged int32 `(windows, None)`.
        question_index: Which question a window is of, int64 `(windows,)`.
        first_token: Which token of the passage the window begins with, int64 `(windows,)`.
        char_starts: The first character in the passage of each token, int32, of the features'
            shape; 0 outside the passage.
        char_ends: One past its last character; 0 outside the passage.
        is_max_context: Boolean, of the same shape: whether of all windows that hold this token
            of the passage, this one shows the most of its surroundings. False outside.
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
        max_query_length: What is longer in tokens of a question is cut.

    Call arguments:
        question: Strings `(batch,)`.
        context: Their passages, strings `(batch,)`.

    Returns:
        The `Windows`, one or more for each question.

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

    def __call__(self, question: Any, context: Any) -> Windows:
        return self.windows(self.tokenize(question, context))

    def tokenize(self, question: Any, context: Any) -> TokenizedQuestions:
        """The first step of a call."""
        ids = self.tokenizer(question)[:, : self.max_query_length]
        return TokenizedQuestions(ids, *self.tokenizer.tokenize_with_offsets(context))

    def windows(self, tokens: TokenizedQuestions) -> Windows:
        """The second step of a call."""
        row, first, length = self._spans(tokens)
        # Of each window, where its tokens lie in the tokens of all passages
        begin = tf.gather(tokens.passage_ids.row_splits, row) + first
        places = tf.ragged.range(begin, begin + length)
        question = tf.gather(tokens.question_ids, row)

        def passage(values: tf.RaggedTensor) -> tf.RaggedTensor:
            return places.with_flat_values(tf.gather(values.flat_values, places.flat_values))

        def surrounded(values: tf.RaggedTensor) -> tf.RaggedTensor:
            return surround_second(self.tokenizer, question, values)

        return Windows(
            features=pack_texts(self.tokenizer, question, passage(tokens.passage_ids)),
            passage_start=start_of_second(self.tokenizer, question),
            passage_length=length,
            question_index=row,
            first_token=first,
            char_starts=surrounded(passage(tokens.char_starts)),
            char_ends=surrounded(passage(tokens.char_ends)),
            is_max_context=surrounded(
                _is_max_context(places, tf.size(tokens.passage_ids.flat_values))
            ),
        )

    def _spans(self, tokens: TokenizedQuestions) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Of each window, its question, its first token in the passage, and its length there."""
        passage_length = tokens.passage_ids.row_lengths()
        special = num_special_tokens(self.tokenizer, 2)
        room = self.sequence_length - special - tokens.question_ids.row_lengths()
        stride = tf.minimum(room, self.doc_stride)
        # Rounded up: the last window holds what is left. A passage without tokens gets one too.
        num_windows = 1 + (tf.maximum(passage_length - room, 0) + stride - 1) // stride
        row = tf.repeat(tf.range(tokens.passage_ids.nrows()), num_windows)
        first = tf.ragged.range(num_windows).flat_values * tf.gather(stride, row)
        length = tf.minimum(tf.gather(room, row), tf.gather(passage_length, row) - first)
        return row, first, length

    def padded(self, windows: Windows) -> dict[str, tf.Tensor]:
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


def _is_max_context(places: tf.RaggedTensor, num_tokens: tf.Tensor) -> tf.RaggedTensor:
    """Which window speaks for a token: the one with the most tokens on its poorer side.

    A window's length counts a hundredth each, and the first of equals wins.

    Args:
        places: Of each window `(windows, None)`, which of all passages' tokens it holds.
        num_tokens: How many they are.

    Returns:
        Ragged booleans of the shape of `places`.
    """
    length = places.row_lengths()
    left = tf.ragged.range(length).flat_values
    window = places.value_rowids()
    right = tf.gather(length, window) - 1 - left
    # In double precision, where equals and unequals are those of the released code
    score = tf.cast(tf.minimum(left, right), tf.float64) + 0.01 * tf.cast(
        tf.gather(length, window), tf.float64
    )
    place = places.flat_values
    best = tf.gather(tf.math.unsorted_segment_max(score, place, num_tokens), place)
    best_windows = tf.where(score == best, window, window.dtype.max)
    first = tf.gather(tf.math.unsorted_segment_min(best_windows, place, num_tokens), place)
    return places.with_flat_values(first == window)

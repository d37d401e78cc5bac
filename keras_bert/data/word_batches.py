# SPDX-License-Identifier: Apache-2.0
"""Sentences of words: windows in which each word is tagged at its first subword, and batching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self, Unpack

import numpy as np
import tensorflow as tf

from keras_bert import checks
from keras_bert.data.batching import BatchOptions, row_batches, without_autograph
from keras_bert.data.text_batches import cut_rows, num_special_tokens, pack_texts, padded
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.graph.words import words_with_offsets
from keras_bert.text.tokenizer import Tokenizer

_FEATURES = ("token_ids", "segment_ids", "padding_mask")


class WordWindows(NamedTuple):
    """Windows of sentences, and the window and position of each word's tag.

    Args:
        token_ids: Ragged int32 `(windows, None)`, including `[CLS]` and `[SEP]`.
        word_window: int64 `(words,)`, the index of the window in which each word is tagged.
        word_position: int64 `(words,)`, the position in that window of the word's first subword.
    """

    token_ids: tf.RaggedTensor
    word_window: tf.Tensor
    word_position: tf.Tensor

    def scatter(self, values: tf.Tensor) -> tf.RaggedTensor:
        """Scatters a value of each word, `(words,)`, to its first subword; 0 everywhere else."""
        positions = tf.gather(self.token_ids.row_starts(), self.word_window) + self.word_position
        size = tf.size(self.token_ids.flat_values, tf.int64)
        flat = tf.scatter_nd(positions[:, tf.newaxis], values, size[tf.newaxis])
        return self.token_ids.with_flat_values(flat)


class TokenClassifierPreprocessor:
    """Packs sentences of words into `[CLS] subwords [SEP]`; a word's tag is at its first subword.

    A sentence that is too long for one row is split into overlapping windows at word boundaries,
    and a word is tagged in the window in which it has the maximum context. A word without tokens,
    such as a control character, becomes `[UNK]`, so that it has a tag too. In a sentence of
    several windows, words are truncated to `overlap` subwords.

    Args:
        tokenizer: The tokenizer that converts words to ids.
        sequence_length: Maximum length of a row in tokens, including the special tokens.
        overlap: Number of tokens that consecutive windows of a long sentence share. Defaults to a
            quarter of a window.

    Call arguments:
        words: Sentences of words, ragged `(sentences, None)` or a list of lists; or documents of
            such sentences, ragged `(documents, None, None)` or a list of lists of lists. In a
            document, the rest of a sentence's window is filled with the sentences around it, to
            the left and to the right in equal parts where possible.

    Returns:
        A dict of `token_ids` (int32), `segment_ids` (int32, all 0) and `padding_mask` (bool), each
        of shape `(windows, length)`, where `length` is that of the longest window. The method
        `windows` also returns the window and the position of each word.

    Raises:
        ValueError: If `sequence_length` or `overlap` is out of range, or words are not nested as
            described.

    Example:

    >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "caf", "##es", "in", "paris"]
    >>> preprocessor = TokenClassifierPreprocessor(keras_bert.WordPieceTokenizer(tokens))
    >>> windows = preprocessor.windows([["Cafes", "in", "Paris"]])
    >>> windows.token_ids.to_list(), windows.word_position.numpy().tolist()
    ([[2, 4, 5, 6, 7, 3]], [1, 3, 4])

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 5.3.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        sequence_length: int = 512,
        overlap: int | None = None,
    ) -> None:
        checks.Numbers(at_least=4, integer=True).check(sequence_length=sequence_length)
        room = sequence_length - num_special_tokens(tokenizer)
        checks.Numbers(at_least=1, below=room, integer=True).check_given(overlap=overlap)
        self.tokenizer = tokenizer
        self.sequence_length = sequence_length
        self.overlap = max(1, room // 4) if overlap is None else overlap
        self._room = room

    def __call__(self, words: Any) -> dict[str, tf.Tensor]:
        return self.padded(self.windows(words))

    @staticmethod
    def split(
        text: Any,
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Splits texts into words.

        Args:
            text: Strings of shape `(batch,)`.

        Returns:
            A tuple of the words, the offset of the first character of each, and the offset one
            past its last character, ragged `(batch, None)`; see
            `keras_bert.text.graph.words.words_with_offsets`.
        """
        return words_with_offsets(tf.convert_to_tensor(text, tf.string))

    def padded(self, windows: WordWindows) -> dict[str, tf.Tensor]:
        """Pads windows to dense features `(windows, length)`, with the length of the longest."""
        features = self.ragged_features(windows)
        return padded(self.tokenizer, features, num_special_tokens(self.tokenizer))

    @staticmethod
    def ragged_features(windows: WordWindows) -> dict[str, tf.RaggedTensor]:
        """Returns ragged `token_ids` and `segment_ids` of windows, int32 `(windows, None)`."""
        return {
            "token_ids": windows.token_ids,
            "segment_ids": tf.zeros_like(windows.token_ids),
        }

    def windows(self, words: Any) -> WordWindows:
        """Splits sentences or documents into windows.

        Args:
            words: See the call arguments.

        Returns:
            `WordWindows` in the order of the sentences. A sentence without words has no window.
        """
        words = ragged_words(words)
        documents = None
        if words.ragged_rank == 2:
            documents, words = words.row_splits, words.values
        with tf.device("CPU:0"):
            return self._windows(words, documents)

    def _windows(self, words: tf.RaggedTensor, documents: tf.Tensor | None) -> WordWindows:
        room, overlap = self._room, self.overlap
        pieces, splits = self._pieces(words)
        # === Spans of sentences among all tokens ===
        first_token = tf.gather(splits, words.row_splits)
        begin, end = first_token[:-1], first_token[1:]
        lengths = end - begin
        step = room - overlap
        counts = tf.where(lengths > room, 1 - (room - lengths) // step, 1)
        counts = tf.where(lengths > 0, counts, 0)
        # === Spans of windows ===
        sentence = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)
        number = tf.ragged.range(counts).flat_values
        start = tf.gather(begin, sentence) + number * step
        start, stop = _between_words(
            start, tf.minimum(start + room, tf.gather(end, sentence)), splits
        )
        if documents is not None:
            borders = tf.gather(first_token, documents)
            # The document of each sentence: the last one that begins at or before it.
            document = tf.searchsorted(documents, sentence, side="right", out_type=tf.int64) - 1
            first, last = tf.gather(borders, document), tf.gather(borders, document + 1)
            start, stop = _widened(start, stop, first, last, room)
            start, stop = _between_words(start, stop, splits)
        # === The window of each word ===
        of_sentence = words.value_rowids()
        word_begin, word_end = splits[:-1], splits[1:]
        within = tf.gather(begin, of_sentence)
        nearest = _nearest_window(word_begin - within, word_end - within, room, step)
        nearest = tf.clip_by_value(nearest, 0, tf.gather(counts, of_sentence) - 1)
        window = tf.gather(tf.cumsum(counts, exclusive=True), of_sentence) + nearest
        return WordWindows(
            self._with_special_tokens(tf.ragged.range(start, stop), pieces),
            window,
            word_begin - tf.gather(start, window) + 1,
        )

    def _pieces(self, words: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the flat ids of all words, and the row splits of words, int64 `(words + 1,)`."""
        pieces = self.tokenizer.graph.tokenize_words(words.flat_values)
        is_empty = tf.cast(pieces.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(is_empty)], self.tokenizer.unk_token_id)
        pieces = tf.concat([pieces, tf.RaggedTensor.from_row_lengths(unknown, is_empty)], axis=1)
        lengths = tf.reduce_sum(words.with_values(pieces.row_lengths()), axis=1)
        is_long = lengths > self._room
        limits = tf.where(is_long, tf.constant(self.overlap, tf.int64), tf.int64.max)
        kept = cut_rows(pieces, tf.gather(limits, words.value_rowids()))
        return kept.flat_values, kept.row_splits

    def _with_special_tokens(
        self, positions: tf.RaggedTensor, pieces: tf.Tensor
    ) -> tf.RaggedTensor:
        inner = positions.with_flat_values(tf.gather(pieces, positions.flat_values))
        return pack_texts(self.tokenizer, inner)["token_ids"]

    def get_config(self) -> dict[str, Any]:
        """Returns the config from which `from_config` creates the same preprocessor."""
        return {
            "tokenizer": self.tokenizer.get_config(),
            "sequence_length": self.sequence_length,
            "overlap": self.overlap,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Creates a preprocessor from the config that `get_config` returned."""
        tokenizer = tokenizer_from_config(config["tokenizer"])
        return cls(tokenizer, config["sequence_length"], config.get("overlap"))


def ragged_words(words: Any) -> tf.RaggedTensor:
    """Converts sentences or documents of words to a ragged string tensor with int64 splits.

    Args:
        words: A list of words for each sentence, or a list of such sentences for each document;
            or a ragged tensor.

    Raises:
        ValueError: If the lists are nested differently, or contain anything but words.
    """
    if isinstance(words, tf.RaggedTensor):
        return words.with_row_splits_dtype(tf.int64)
    lengths: list[list[int]] = []
    items = list(words)
    while any(not isinstance(item, (str, bytes)) for item in items):
        if len(lengths) == 2 or any(isinstance(item, (str, bytes)) for item in items):
            raise _badly_nested(items)
        lengths.append([len(item) for item in items])
        items = [word for item in items for word in item]
    if not lengths:
        if items:
            raise _badly_nested(items)
        lengths.append([])
    ragged = tf.constant(items, tf.string)
    for of_level in reversed(lengths):
        ragged = tf.RaggedTensor.from_row_lengths(ragged, tf.constant(of_level, tf.int64))
    return ragged


def _badly_nested(items: Sequence[Any]) -> ValueError:
    return ValueError(
        "Words must be strings in a list for each sentence, or in lists of such lists for each "
        f"document; received {items[0]!r} where a list was expected, or too many levels."
    )


def _between_words(
    start: tf.Tensor, stop: tf.Tensor, splits: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Shortens spans of tokens to word boundaries."""
    first = tf.searchsorted(splits, start, side="left")
    last = tf.searchsorted(splits, stop, side="right") - 1
    return tf.gather(splits, first), tf.gather(splits, last)


def _widened(
    start: tf.Tensor, stop: tf.Tensor, begin: tf.Tensor, end: tf.Tensor, room: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Extends spans on both sides, in equal parts where possible, to the size of a window."""
    spare, left, right = room - (stop - start), start - begin, end - stop
    left = tf.minimum(left, tf.maximum(spare // 2, spare - right))
    return start - left, stop + tf.minimum(right, spare - left)


def _nearest_window(begin: tf.Tensor, end: tf.Tensor, room: int, step: int) -> tf.Tensor:
    """Returns the index of the window with the maximum context of each word.

    Windows are `[k * step, k * step + room)`. In sentences of several windows, words have no more
    than `room - step` subwords, so that at least one window contains the whole word.
    """
    central = (begin + end - room + step) // (2 * step)
    lowest, highest = -((room - end) // step), begin // step
    return tf.clip_by_value(central, lowest, highest)


@without_autograph
def window_batches(
    windows: WordWindows,
    preprocessor: TokenClassifierPreprocessor,
    *,
    labels: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Groups windows into length-bucketed batches.

    Args:
        windows: The windows that `preprocessor.windows` returned.
        preprocessor: The preprocessor that created them.
        labels: Class ids of the words, int32 `(words,)`, for training and evaluation.
        weights: Sample weights of the words, float32 `(words,)`; required with `labels`.
        **options: `BatchOptions`.

    Returns:
        With labels, a dataset of `(features, labels, weights)`, where labels are int32 and weights
        float32 `(batch, length)`, 0 everywhere but at the first subwords of words. Without labels,
        a dataset of `(features, index)`, where `index` (int64 `(batch,)`) holds the indices of the
        batch's windows.
    """
    columns = dict(preprocessor.ragged_features(windows))
    if labels is not None:
        columns["labels"] = windows.scatter(tf.constant(labels, tf.int32))
        columns["weights"] = windows.scatter(tf.constant(weights, tf.float32))

    def featurize(index: tf.Tensor) -> Any:
        return {name: tf.gather(column, index) for name, column in columns.items()}, (index,)

    count = int(windows.token_ids.nrows())
    batches = row_batches(count, featurize, preprocessor, **options)
    return batches.map(_indexed if labels is None else _labelled)


def _indexed(columns: dict[str, tf.Tensor], rest: tuple[tf.Tensor, ...]) -> Any:
    return {name: columns[name] for name in _FEATURES}, rest[0]


def _labelled(columns: dict[str, tf.Tensor], rest: tuple[tf.Tensor, ...]) -> Any:
    weights = columns["weights"]
    if len(rest) > 1:  # `is_real`, (batch,): 0 for filler rows
        weights *= rest[1][:, tf.newaxis]
    return {name: columns[name] for name in _FEATURES}, columns["labels"], weights

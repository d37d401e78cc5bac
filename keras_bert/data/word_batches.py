# SPDX-License-Identifier: Apache-2.0
"""Sentences of words: windows with one position for each word's tag, and batches of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self, Unpack

import numpy as np
import tensorflow as tf

from keras_bert.data.batching import BatchOptions, row_batches
from keras_bert.data.text_batches import cut_rows, num_special_tokens, pack_texts, padded
from keras_bert.text.from_config import tokenizer_from_config
from keras_bert.text.tokenizer import Tokenizer
from keras_bert.text.words import words_with_offsets

_FEATURES = ("token_ids", "segment_ids", "padding_mask")


class WordWindows(NamedTuple):
    """Rows for the model, and the position in them of each word's tag.

    Args:
        token_ids: Ragged int32 `(windows, None)`, `[CLS]` and `[SEP]` included.
        word_window: int64 `(words,)`, the window that decides each word's tag.
        word_position: int64 `(words,)`, the position of the word's first piece in it.
    """

    token_ids: tf.RaggedTensor
    word_window: tf.Tensor
    word_position: tf.Tensor

    def scatter(self, values: tf.Tensor) -> tf.RaggedTensor:
        """Puts a value of each word, `(words,)`, at its first piece, and 0 everywhere else."""
        positions = tf.gather(self.token_ids.row_starts(), self.word_window) + self.word_position
        size = tf.size(self.token_ids.flat_values, tf.int64)
        flat = tf.scatter_nd(positions[:, tf.newaxis], values, size[tf.newaxis])
        return self.token_ids.with_flat_values(flat)


class TokenClassifierPreprocessor:
    """Packs sentences of words: `[CLS] pieces [SEP]`, each word tagged at its first piece.

    A sentence that is longer than a window becomes several, which begin and end between words
    and overlap; a word's tag is predicted in the window with its maximum context. A word without
    tokens, such as a control character, becomes `[UNK]`, so that it has a tag
    too. In a sentence of several windows, no word has more pieces than the overlap: the rest of
    them is cut off.

    Args:
        tokenizer: Words to ids.
        sequence_length: The longest row in tokens, special ones counted.
        overlap: Tokens that neighbouring windows of a long sentence share; `None` takes a
            quarter of a window.

    Call arguments:
        words: Sentences of words, ragged `(sentences, None)` or a list of lists; or documents of
            such sentences, ragged `(documents, None, None)` or a list of lists of lists. In a
            document, the neighbours of a sentence fill its window, as many words on the left
            as on the right while there are any.

    Returns:
        A dict of `token_ids` int32, `segment_ids` int32 (all 0) and `padding_mask` bool, each
        `(windows, length)` with the length of the longest window. `windows` also returns the
        window of each word.

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
        room = sequence_length - num_special_tokens(tokenizer)
        if room < 2:
            raise ValueError(f"sequence_length is {sequence_length}; it must be at least 4.")
        if overlap is not None and not 1 <= overlap < room:
            raise ValueError(
                f"overlap is {overlap}; with a sequence_length of {sequence_length} it must be "
                f"at least 1 and below {room}."
            )
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
        """The words of texts, and the characters between which they lie.

        Args:
            text: Strings `(batch,)`.

        Returns:
            The words, the first character of each, and one past its last: see
            `keras_bert.text.words.words_with_offsets`.
        """
        return words_with_offsets(tf.convert_to_tensor(text, tf.string))

    def padded(self, windows: WordWindows) -> dict[str, tf.Tensor]:
        """Dense features of windows, with the length of the longest."""
        features = self.ragged_features(windows)
        return padded(self.tokenizer, features, num_special_tokens(self.tokenizer))

    @staticmethod
    def ragged_features(windows: WordWindows) -> dict[str, tf.RaggedTensor]:
        """Ragged `token_ids` and `segment_ids` of windows, int32 `(windows, None)`."""
        return {
            "token_ids": windows.token_ids,
            "segment_ids": tf.zeros_like(windows.token_ids),
        }

    def windows(self, words: Any) -> WordWindows:
        """The windows of sentences or documents, in order, and the position of each word.

        Args:
            words: As for a call.

        Returns:
            The windows. A sentence without words has none.
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
        """The ids of all words, flat, and where each word's begin and end, int64 `(words + 1,)`."""
        pieces = self.tokenizer.tokenize_words(words.flat_values)
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
        """Plain values from which `from_config` makes the same preprocessor."""
        return {
            "tokenizer": self.tokenizer.get_config(),
            "sequence_length": self.sequence_length,
            "overlap": self.overlap,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The inverse of `get_config`."""
        tokenizer = tokenizer_from_config(config["tokenizer"])
        return cls(tokenizer, config["sequence_length"], config.get("overlap"))


def ragged_words(words: Any) -> tf.RaggedTensor:
    """Lists of lists of words, or of lists of these, as a ragged string tensor with int64 splits.

    Raises:
        ValueError: If the lists are nested otherwise, or hold anything but words.
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
    """Shortens spans of tokens to whole words."""
    first = tf.searchsorted(splits, start, side="left")
    last = tf.searchsorted(splits, stop, side="right") - 1
    return tf.gather(splits, first), tf.gather(splits, last)


def _widened(
    start: tf.Tensor, stop: tf.Tensor, begin: tf.Tensor, end: tf.Tensor, room: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Widens a span on both sides, evenly where it can, to as many tokens as a window holds."""
    spare, left, right = room - (stop - start), start - begin, end - stop
    left = tf.minimum(left, tf.maximum(spare // 2, spare - right))
    return start - left, stop + tf.minimum(right, spare - left)


def _nearest_window(begin: tf.Tensor, end: tf.Tensor, room: int, step: int) -> tf.Tensor:
    """Of the windows `[k * step, k * step + room)` that hold a word, the one it is most central in.

    Words have no more than `room - step` pieces wherever there are several windows, so that one
    window at least holds the whole word.
    """
    central = (begin + end - room + step) // (2 * step)
    lowest, highest = -((room - end) // step), begin // step
    return tf.clip_by_value(central, lowest, highest)


def window_batches(
    windows: WordWindows,
    preprocessor: TokenClassifierPreprocessor,
    *,
    labels: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Length-bucketed batches of windows.

    Args:
        windows: The windows that `preprocessor.windows` returned.
        preprocessor: The preprocessor that made them.
        labels: Class ids, int32 `(words,)`, for batches to train or evaluate on.
        weights: Of the words, float32 `(words,)`, with labels.
        **options: `BatchOptions`.

    Returns:
        With labels, a dataset of `(features, labels, weights)`, int32 and float32
        `(batch, length)`, the weights 0 everywhere but at the first pieces of words. Without, of
        `(features, index)`: which windows are in the batch, int64 `(batch,)`.
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
    if len(rest) > 1:  # (batch,): 0 at the rows that only fill the batch up
        weights *= rest[1][:, tf.newaxis]
    return {name: columns[name] for name in _FEATURES}, columns["labels"], weights

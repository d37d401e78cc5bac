# SPDX-License-Identifier: Apache-2.0
"""Finds special and added tokens in texts with TensorFlow operations."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from keras_bert.text.characters import WHITE_SPACE
from keras_bert.text.graph.composition import compose, to_characters_before_composition
from keras_bert.text.graph.offsets import Pieces
from keras_bert.text.graph.rows import row_ids, select
from keras_bert.text.graph.tokenizer import GraphTokenizer
from keras_bert.text.special_tokens import (
    AROUND_DROPPED,
    BORDERS,
    FIRST_MARK,
    FIRST_SPACED_MARK,
    NUM_MARKS,
    TokenMarks,
    TokenSplitter,
)


def replace_matches(text: tf.Tensor, replacements: Iterable[tuple[str, str]]) -> tf.Tensor:
    """Replaces the matches of regular expressions, in order. See `TokenMarks`."""
    for pattern, replacement in replacements:
        text = tf.strings.regex_replace(text, pattern, replacement)
    return text


def to_unmarked_characters(
    bordered_text: tf.Tensor, marked_text: tf.Tensor, pieces: Pieces, marks: TokenMarks
) -> Pieces:
    """Converts offsets in a text with marks to offsets in the text before `until_borders`."""
    points = tf.strings.unicode_decode(marked_text, "UTF-8")
    bordered_text = tf.strings.regex_replace(bordered_text, f"[{AROUND_DROPPED}]", "")
    bordered = tf.strings.unicode_decode(bordered_text, "UTF-8").flat_values
    begins, ends = (tf.where(bordered == ord(border))[:, 0] for border in BORDERS)
    # The tokens between borders, and an additional width for texts without such tokens
    widths_between = tf.concat([tf.cast(ends - begins - 1, tf.int32), [0]], axis=0)
    index = points.flat_values - FIRST_MARK
    index = tf.where(index < NUM_MARKS, index, -1)
    spaced_index = points.flat_values - FIRST_SPACED_MARK
    is_spaced = (spaced_index >= 0) & (spaced_index < len(marks.marks) - NUM_MARKS)
    index = tf.where(is_spaced, spaced_index + NUM_MARKS, index)
    num_raw = len(marks.raw_widths)
    is_raw = (index >= 0) & (index < num_raw)
    was_between = (index >= num_raw) & (index < len(marks.marks))
    count = tf.cumsum(tf.cast(was_between, tf.int32), exclusive=True)
    raw_widths = tf.constant([*marks.raw_widths, 1])
    widths = tf.where(
        was_between,
        tf.gather(widths_between, count),
        tf.gather(raw_widths, tf.where(is_raw, index, num_raw)),
    )
    # The spaces around these marks are not in the original text.
    is_space = tf.concat([is_spaced[1:], [False]], axis=0) | tf.concat(
        [[False], is_spaced[:-1]], axis=0
    )
    widths = tf.where(is_space, 0, widths)
    before = tf.concat([[0], tf.cumsum(widths)], axis=0)
    text = tf.cast(tf.gather(points.row_starts(), row_ids(pieces.ids)), tf.int32)

    def moved(offsets: tf.RaggedTensor) -> tf.Tensor:
        return tf.gather(before, text + offsets.flat_values) - tf.gather(before, text)

    return pieces.with_offsets(moved(pieces.starts), moved(pieces.ends))


class SplitTexts:
    """Splits texts at special tokens, and tokenizes the segments between them."""

    def __init__(self, splitter: TokenSplitter) -> None:
        self._patterns = splitter.patterns
        # Constants created while a graph is traced could only be used in that graph.
        with tf.init_scope(), tf.device("CPU:0"):
            tokens = tf.constant(list(splitter.ids))
            ids = tf.constant(list(splitter.ids.values()), tf.int32)
            initializer = tf.lookup.KeyValueTensorInitializer(tokens, ids)
            self._ids = tf.lookup.StaticHashTable(initializer, -1)

    @property
    def resources(self) -> tuple[Any, ...]:
        """The lookup table. A SavedModel must track it."""
        return (self._ids,)

    def __call__(self, text: tf.Tensor, tokenize: Callable[[tf.Tensor], Pieces]) -> Pieces:
        """Tokenizes texts with a function of segments. Offsets are in characters of the texts."""
        segments = self._split(text)
        flat = segments.flat_values
        # The table contains tokens of whitespace, but not the whitespace that other tokens take.
        without_space = tf.strings.regex_replace(flat, rf"\A[{WHITE_SPACE}]+", "")
        token_ids = self._ids.lookup(flat)
        takes_space = token_ids < 0
        token_ids = tf.where(takes_space, self._ids.lookup(without_space), token_ids)
        is_token = token_ids >= 0
        lengths = tf.strings.length(flat, unit="UTF8_CHAR")
        pieces = tokenize(tf.where(is_token, "", flat))

        def insert_tokens(ragged: tf.RaggedTensor, token_values: tf.Tensor) -> tf.RaggedTensor:
            alone = select(token_values, is_token)
            tokens = tf.RaggedTensor.from_row_lengths(
                alone, tf.cast(is_token, tf.int64), validate=False
            )
            return tf.concat([ragged, tokens], axis=1)

        before = tf.concat([[0], tf.cumsum(lengths)], axis=0)
        text_offset = tf.gather(before, tf.gather(segments.row_starts(), row_ids(segments)))
        begin = before[:-1] - text_offset
        ids = insert_tokens(pieces.ids, token_ids)
        spaces = lengths - tf.strings.length(without_space, unit="UTF8_CHAR")
        starts = insert_tokens(pieces.starts, tf.where(takes_space, spaces, 0))
        ends = insert_tokens(pieces.ends, lengths)
        shift = tf.gather(begin, row_ids(ids))
        return Pieces(
            *(
                segments.with_values(values).merge_dims(1, 2)
                for values in (
                    ids,
                    starts.with_flat_values(starts.flat_values + shift),
                    ends.with_flat_values(ends.flat_values + shift),
                )
            )
        )

    def _split(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts before and after special tokens, into ragged strings `(texts, None)`."""
        first, *others = self._patterns
        segments = _split_around(text, first)
        for pattern in others:
            flat = segments.flat_values
            is_token = tf.strings.regex_full_match(flat, first)
            pieces = _split_around(flat, pattern, ~is_token)
            segments = segments.with_values(pieces).merge_dims(1, 2)
        return segments


class SplittingGraph(GraphTokenizer):
    """A tokenizer that can compose texts and split them at special tokens.

    Subclasses implement `_valid`, `_ids` and `_pieces`.
    """

    def __init__(
        self, special_token_ids: Sequence[int], splitter: TokenSplitter | None, compose: bool
    ) -> None:
        super().__init__(special_token_ids)
        self._split_texts = SplitTexts(splitter) if splitter else None
        self._compose = compose

    @property
    def resources(self) -> tuple[Any, ...]:
        """The lookup tables that a SavedModel with this tokenizer must track."""
        return self._split_texts.resources if self._split_texts else ()

    def _tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        texts = self._composed(self._valid(texts))
        return self._split_texts(texts, self._pieces).ids if self._split_texts else self._ids(texts)

    def _tokenize_with_offsets(self, texts: tf.Tensor) -> Pieces:
        texts = self._valid(texts)
        after = self._composed(texts)
        pieces = (
            self._split_texts(after, self._pieces) if self._split_texts else self._pieces(after)
        )
        return to_characters_before_composition(texts, pieces) if self._compose else pieces

    def _composed(self, texts: tf.Tensor) -> tf.Tensor:
        return compose(texts) if self._compose else texts

    @abc.abstractmethod
    def _valid(self, texts: tf.Tensor) -> tf.Tensor:
        """Drops invalid bytes."""

    @abc.abstractmethod
    def _ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Converts texts `(texts,)` in valid UTF-8 to ids, ragged int32 `(texts, None)`."""

    @abc.abstractmethod
    def _pieces(self, texts: tf.Tensor) -> Pieces:
        """Converts texts `(texts,)` in valid UTF-8 to ids with offsets in characters."""


def _split_around(text: tf.Tensor, pattern: str, where: tf.Tensor | bool = True) -> tf.RaggedTensor:
    """Splits the selected texts before and after each pattern match."""
    # Valid UTF-8 does not contain this byte. TF Text's `regex_split` would stop at a NUL.
    border = b"\xff"
    with_borders = tf.strings.regex_replace(text, f"({pattern})", border + rb"\1" + border)
    return tf.strings.split(tf.where(where, with_borders, text), border)

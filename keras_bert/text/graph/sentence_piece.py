# SPDX-License-Identifier: Apache-2.0
"""SentencePiece tokenizers as TensorFlow operations."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text as tf_text

from keras_bert.text.graph.functions import function_of_texts
from keras_bert.text.graph.normalization import drop_invalid
from keras_bert.text.graph.offsets import Characters, Pieces, extend_over_dropped_marks
from keras_bert.text.graph.rows import repeat, row_ids
from keras_bert.text.graph.sentence_piece_cleaning import SentenceCleaner
from keras_bert.text.graph.special_tokens import SplittingGraph
from keras_bert.text.special_tokens import TokenSplitter

_SPACE = "▁"


class SentencePieceGraph(SplittingGraph):
    """The graph operations of a `SentencePieceTokenizer`.

    Args:
        parts: The ids that replace each id. Most ids replace themselves.
        widths: The size of each part in bytes, without the preceding space.
        blank_characters: The characters to exclude from spans at both ends of pieces, in the syntax
            of a regular expression's character class. `None` only excludes preceding spaces.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        special_token_ids: Sequence[int],
        model: bytes,
        cleaner: SentenceCleaner,
        parts: Sequence[Sequence[int]],
        widths: Sequence[Sequence[int]],
        splitter: TokenSplitter | None,
        blank_characters: str | None,
        compose: bool,
    ) -> None:
        super().__init__(special_token_ids, splitter, compose)
        self._cleaner = cleaner
        self._blank_characters = blank_characters
        is_split = any(len(row) > 1 for row in parts)
        self._commas = _NumberCommas(parts, widths) if is_split else None
        with tf.init_scope(), tf.device("CPU:0"):
            self._tokens = tf.constant(list(vocabulary))
            self._is_space = tf.strings.regex_full_match(self._tokens, f"{_SPACE}+")
        # TF Text's tokenizer must be created inside the graph that uses it. If it was created
        # outside, it is lost when TensorFlow clears its operation cache, for example in
        # `tf.random.set_seed`.
        self._search = function_of_texts(
            lambda texts: tf_text.SentencepieceTokenizer(
                model, out_type=tf.int32
            ).tokenize_with_offsets(texts)
        )

    def _valid(self, texts: tf.Tensor) -> tf.Tensor:
        # Some TF Text operations stop at NUL.
        return tf.strings.regex_replace(drop_invalid(texts), r"\x00", "\ue000")

    def _ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        ids, _, _ = self._search(self._cleaner(texts))
        return self._commas.split_ids(ids) if self._commas else ids

    def _pieces(self, texts: tf.Tensor) -> Pieces:
        clean_texts = self._cleaner(texts)
        pieces = Pieces(*self._search(clean_texts))
        text_starts = tf.cumsum(tf.cast(tf.strings.length(clean_texts), tf.int64), exclusive=True)
        # From here on, offsets count from the start of all concatenated texts.
        begin = tf.gather(text_starts, row_ids(pieces.ids))
        starts, ends = (
            tf.cast(offsets.flat_values, tf.int64) + begin
            for offsets in (pieces.starts, pieces.ends)
        )
        pieces = pieces.with_offsets(starts, ends)
        pieces = (
            _strip_spaces(pieces, clean_texts)
            if self._blank_characters is None
            else _drop_blanks(pieces, clean_texts, self._blank_characters)
        )
        if self._commas:
            pieces = self._commas.split(pieces)
        characters = Characters.from_texts(texts)
        is_space = tf.gather(self._is_space, pieces.ids.flat_values)
        return _to_characters(pieces, is_space, characters, *self._cleaner.traces(characters))

    def _join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Concatenates pieces and converts their space characters to spaces."""
        tokens = ids.with_flat_values(tf.gather(self._tokens, ids.flat_values))
        text = tf.strings.reduce_join(tokens, axis=1)
        return tf.strings.regex_replace(tf.strings.regex_replace(text, _SPACE, " "), r"\A ", "")


class _NumberCommas:
    """Splits pieces that end with a digit and a comma. See `SentencePieceGraph`."""

    def __init__(self, parts: Sequence[Sequence[int]], widths: Sequence[Sequence[int]]) -> None:
        with tf.init_scope(), tf.device("CPU:0"):
            lengths = tf.constant([len(row) for row in parts], tf.int64)
            self._is_split = lengths > 1
            flat = tf.constant([index for row in parts for index in row], tf.int32)
            self._ids = tf.RaggedTensor.from_row_lengths(flat, lengths)
            flat = tf.constant([width for row in widths for width in row], tf.int64)
            self._widths = self._ids.with_values(flat)

    def split_ids(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Splits pieces, given by their ids, ragged int32 `(texts, None)`."""

        def split() -> tuple[tf.Tensor, tf.Tensor]:
            parts = tf.gather(self._ids, ids.flat_values)
            return parts.flat_values, tf.gather(parts.row_splits, ids.row_splits)

        values, row_splits = tf.cond(
            tf.reduce_any(tf.gather(self._is_split, ids.flat_values)),
            split,
            lambda: (ids.flat_values, ids.row_splits),
        )
        return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)

    def split(self, pieces: Pieces) -> Pieces:
        """Splits pieces with offsets in bytes, int64."""
        parts = tf.gather(self._ids, pieces.ids.flat_values)
        widths = tf.gather(self._widths, pieces.ids.flat_values)
        piece = row_ids(parts)
        first = tf.gather(pieces.starts.flat_values, piece)
        last = tf.gather(pieces.ends.flat_values, piece)
        before = tf.cumsum(widths.flat_values, exclusive=True)
        before -= tf.gather(before, tf.gather(parts.row_starts(), piece))
        starts = tf.minimum(first + before, last)
        is_last = tf.range(tf.size(last, tf.int64)) + 1 == tf.gather(parts.row_limits(), piece)
        ends = tf.where(is_last, last, tf.minimum(starts + widths.flat_values, last))
        row_splits = tf.gather(parts.row_splits, pieces.ids.row_splits)
        return Pieces.from_rows(row_splits, parts.flat_values, starts, ends)


def _strip_spaces(pieces: Pieces, texts: tf.Tensor) -> Pieces:
    """Excludes the spaces at the start of pieces from their spans, in bytes."""
    all_bytes = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    is_other = all_bytes != ord(" ")
    # `others` contains the positions of all bytes except for spaces.
    others_before = tf.concat([[0], tf.cumsum(tf.cast(is_other, tf.int32))], axis=0)
    others = tf.concat([tf.where(is_other)[:, 0], tf.size(is_other, tf.int64)[tf.newaxis]], axis=0)
    starts, ends = pieces.starts.flat_values, pieces.ends.flat_values
    starts = tf.minimum(tf.gather(others, tf.gather(others_before, starts)), ends)
    return pieces.with_offsets(starts, ends)


def _drop_blanks(pieces: Pieces, texts: tf.Tensor, blank_characters: str) -> Pieces:
    """Excludes blank characters at both ends of pieces from their spans."""
    _, letters, which = Characters.from_texts(texts)
    is_blank = tf.strings.regex_full_match(letters, f"[{blank_characters}]")
    is_other = repeat(~tf.gather(is_blank, which), tf.gather(tf.strings.length(letters), which))
    size = tf.size(is_other, tf.int64)
    others_before = tf.concat([[0], tf.cumsum(tf.cast(is_other, tf.int32))], axis=0)
    others = tf.concat([[-1], tf.where(is_other)[:, 0], [size]], axis=0)
    starts, ends = pieces.starts.flat_values, pieces.ends.flat_values
    # The first non-blank byte at or after the start, and the end of the last non-blank byte
    first = tf.minimum(tf.gather(others, tf.gather(others_before, starts) + 1), ends)
    last = tf.maximum(tf.gather(others, tf.gather(others_before, ends)) + 1, first)
    return pieces.with_offsets(first, last)


def _to_characters(
    pieces: Pieces,
    is_space: tf.Tensor,
    characters: Characters,
    widths: tf.Tensor,
    is_joined: tf.Tensor,
) -> Pieces:
    """Converts offsets in normalized texts to offsets in the original texts.

    Space pieces have an empty span. `widths` contains the size of each original character in the
    normalized texts, in bytes. A character with `is_joined` is merged with the previous character.
    A character's span includes its dropped marks.
    """
    rows = row_ids(pieces.ids)
    points = characters.points
    begin, end = tf.gather(points.row_starts(), rows), tf.gather(points.row_limits(), rows)
    byte_ends = tf.cumsum(tf.cast(widths, tf.int64))
    first, last = pieces.starts.flat_values, pieces.ends.flat_values
    # If the model itself splits a character into multiple pieces, the last piece has its bytes.
    last = tf.where(is_space, last, tf.maximum(last, first + 1))
    # Skip characters without bytes.
    starts = tf.searchsorted(byte_ends, first, side="right", out_type=tf.int64)
    ends = tf.searchsorted(byte_ends, last - 1, side="right", out_type=tf.int64) + 1
    starts = tf.clip_by_value(starts, begin, end)
    ends += tf.cast(tf.gather(tf.concat([is_joined, [False]], axis=0), ends), tf.int64)
    ends = tf.minimum(ends, end)
    is_inside = starts < end
    inside = tf.where(is_inside, starts, 0)
    wide_starts, wide_last = extend_over_dropped_marks(
        characters, widths > 0, inside, tf.where(starts < ends, ends - 1, inside)
    )
    is_empty = (first >= last) | (starts >= ends)
    starts = tf.where(is_inside, wide_starts, starts)
    ends = tf.where(is_empty, starts, wide_last + 1)
    return pieces.with_offsets(tf.cast(starts - begin, tf.int32), tf.cast(ends - begin, tf.int32))

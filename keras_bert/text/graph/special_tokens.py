# SPDX-License-Identifier: Apache-2.0
"""Recognition of special and added tokens in texts as TensorFlow operations."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from keras_bert.text.characters import WHITE_SPACE
from keras_bert.text.graph.offsets import Pieces
from keras_bert.text.special_tokens import FIRST_MARK, TokenMarks, TokenSplitter


def mark_tokens(text: tf.Tensor, marks: TokenMarks) -> tf.Tensor:
    """Replaces tokens with their marks; see `TokenMarks`.

    Args:
        text: String tensor `(texts,)`.
        marks: The tokens.

    Returns:
        A string tensor `(texts,)`.
    """
    for pattern, mark in marks.replacements:
        text = tf.strings.regex_replace(text, pattern, mark)
    return text


def to_unmarked_characters(marked: tf.Tensor, pieces: Pieces, marks: TokenMarks) -> Pieces:
    """Converts offsets in a marked text to offsets in the original text.

    Args:
        marked: String tensor `(texts,)` that `mark_tokens` returned, valid UTF-8.
        pieces: `Pieces` with offsets in characters of `marked`.
        marks: The tokens.

    Returns:
        `Pieces` with offsets in characters of the text before `mark_tokens`.
    """
    points = tf.strings.unicode_decode(marked, "UTF-8")
    lengths = tf.constant(marks.widths)
    index = points.flat_values - FIRST_MARK
    is_mark = (index >= 0) & (index < len(marks.widths))
    widths = tf.where(is_mark, tf.gather(lengths, tf.where(is_mark, index, 0)), 1)
    before = tf.concat([[0], tf.cumsum(widths)], axis=0)
    text = tf.cast(tf.gather(points.row_starts(), pieces.ids.value_rowids()), tf.int32)

    def moved(offsets: tf.RaggedTensor) -> tf.RaggedTensor:
        unmarked = tf.gather(before, text + offsets.flat_values) - tf.gather(before, text)
        return offsets.with_flat_values(unmarked)

    return Pieces(pieces.ids, moved(pieces.starts), moved(pieces.ends))


class SplitTexts:
    """Splits texts at special tokens, and tokenizes the segments between them.

    Args:
        splitter: The special tokens.
    """

    def __init__(self, splitter: TokenSplitter) -> None:
        self._ids = splitter.ids
        self._patterns = splitter.patterns

    def __call__(self, text: tf.Tensor, tokenize: Callable[[tf.Tensor], Pieces]) -> Pieces:
        """Tokenizes texts.

        Args:
            text: String tensor `(texts,)`, valid UTF-8.
            tokenize: A function that tokenizes strings `(segments,)`, with offsets in characters.

        Returns:
            `Pieces` with offsets in characters of `text`.
        """
        segments = self._split(text)
        flat = segments.flat_values
        which = self._which(flat)
        lengths = tf.strings.length(flat, unit="UTF8_CHAR")
        pieces = tokenize(tf.where(which < 0, flat, ""))
        is_token = tf.cast(which >= 0, tf.int64)

        def with_tokens(ragged: tf.RaggedTensor, of_tokens: tf.Tensor) -> tf.RaggedTensor:
            alone = tf.boolean_mask(tf.cast(of_tokens, tf.int32), which >= 0)
            tokens = tf.RaggedTensor.from_row_lengths(alone, is_token, validate=False)
            return tf.concat([ragged, tokens], axis=1)

        before = tf.concat([[0], tf.cumsum(lengths)], axis=0)
        of_text = tf.gather(before, tf.gather(segments.row_starts(), segments.value_rowids()))
        begin = before[:-1] - of_text
        ids = with_tokens(pieces.ids, tf.gather(self._ids, tf.maximum(which, 0)))
        without_space = tf.strings.regex_replace(flat, rf"\A[{WHITE_SPACE}]+", "")
        spaces = lengths - tf.strings.length(without_space, unit="UTF8_CHAR")
        starts = with_tokens(pieces.starts, spaces)
        ends = with_tokens(pieces.ends, lengths)
        moved = tf.gather(begin, ids.value_rowids())
        return Pieces(
            *(
                segments.with_values(part).merge_dims(1, 2)
                for part in (
                    ids,
                    starts.with_flat_values(starts.flat_values + moved),
                    ends.with_flat_values(ends.flat_values + moved),
                )
            )
        )

    def _split(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts before and after special tokens, into ragged strings `(texts, None)`."""
        # A byte that valid UTF-8 does not contain. (TF Text's `regex_split` stops at a NUL.)
        border = b"\xff"
        tokens = f"({'|'.join(self._patterns)})"
        text = tf.strings.regex_replace(text, tokens, border + rb"\1" + border)
        return tf.strings.split(text, border)

    def _which(self, segments: tf.Tensor) -> tf.Tensor:
        """Returns the index of the special token that each segment is, int32; -1 for none."""
        which = tf.fill(tf.shape(segments), -1)
        for index, pattern in enumerate(self._patterns):
            which = tf.where(tf.strings.regex_full_match(segments, pattern), index, which)
        return which

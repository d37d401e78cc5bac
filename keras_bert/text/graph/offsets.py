# SPDX-License-Identifier: Apache-2.0
"""Converts token offsets in normalized text to offsets in the original text."""

from __future__ import annotations

from typing import NamedTuple, Self

import tensorflow as tf

from keras_bert.text.graph.normalization import encode_characters, normalize_slow_path
from keras_bert.text.graph.rows import row_ids
from keras_bert.text.normalization import Normalization

# Canonical decomposition reorders combining marks across characters. These are the marks that it
# can move, and the characters that contain such a mark, without category Mn, which is dropped.
_MOVABLE = (
    r"[\x{302e}\x{302f}\x{16ff0}\x{16ff1}\x{1d15e}-\x{1d166}\x{1d16d}-\x{1d172}"
    r"\x{1d1bb}-\x{1d1c0}]"
)
# Characters that normalization drops and that belong to the previous character: combining marks,
# zero-width joiners and tags (Unicode Standard Annex 29, rule GB9).
_EXTENDING = r"[\p{Mn}\x{200c}\x{200d}\x{e0020}-\x{e007f}]"
_WHITE_SPACE = r"[ \t\n\r\p{Z}]"


class Pieces(NamedTuple):
    """Tokens and their offsets.

    Args:
        ids: Ragged int32 `(texts, None)`.
        starts: The offset of each token's first byte or character, a ragged int tensor of the same
            shape.
        ends: The offset after each token's last byte or character, of the same shape.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor

    @classmethod
    def from_rows(cls, row_splits: tf.Tensor, *values: tf.Tensor) -> Self:
        """Creates tokens from the flat ids, starts and ends of all texts."""
        return cls(
            *(tf.RaggedTensor.from_row_splits(x, row_splits, validate=False) for x in values)
        )

    def with_offsets(self, starts: tf.Tensor, ends: tf.Tensor) -> Self:
        """Returns the tokens with new flat offsets."""
        return self._replace(
            starts=self.ids.with_flat_values(starts), ends=self.ids.with_flat_values(ends)
        )


class Characters(NamedTuple):
    """The characters of texts.

    Args:
        points: Code points, ragged int32 `(texts, None)`.
        letters: The distinct characters, strings.
        which: The index of each character in `letters`, int32 `(characters,)`.
    """

    points: tf.RaggedTensor
    letters: tf.Tensor
    which: tf.Tensor

    @classmethod
    def from_texts(cls, texts: tf.Tensor) -> Self:
        """Decodes strings `(texts,)` in valid UTF-8."""
        points = tf.strings.unicode_decode(texts, "UTF-8")
        distinct, which = tf.unique(points.flat_values)
        return cls(points, encode_characters(distinct), which)


def to_source_characters(source: tf.Tensor, rules: Normalization, pieces: Pieces) -> Pieces:
    """Converts byte offsets in normalized texts to character offsets in the original texts.

    Each character is normalized separately. The result does not depend on other characters, except
    for reordered marks. A token has the shortest span that contains all of its source characters
    and their dropped marks.
    """
    points, letters, which = characters = Characters.from_texts(source)
    widths = tf.gather(tf.strings.length(normalize_slow_path(letters, rules)), which)
    byte_ends = tf.cumsum(tf.cast(widths, tf.int64))
    text = row_ids(pieces.ids)
    text_starts = tf.gather(tf.concat([[0], byte_ends], axis=0), points.row_starts())
    offset = tf.gather(text_starts, text)
    # Skip characters without bytes.
    first, last = (
        tf.searchsorted(byte_ends, offset + positions, side="right")
        for positions in (pieces.starts.flat_values, pieces.ends.flat_values - 1)
    )
    if rules.strip_accents:
        movable = tf.gather(tf.strings.regex_full_match(letters, _MOVABLE), which)
        first, last = tf.cond(
            tf.reduce_any(movable),
            lambda: _extend_over_moved_marks(first, last, row_ids(points), widths > 0, movable),
            lambda: (first, last),
        )
    first, last = extend_over_dropped_marks(characters, widths > 0, first, last)
    text_begins = tf.cast(tf.gather(points.row_starts(), text), tf.int32)
    return pieces.with_offsets(first - text_begins, last - text_begins + 1)


def extend_over_dropped_marks(
    characters: Characters, is_kept: tf.Tensor, first: tf.Tensor, last: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Extends spans by the dropped marks after their last character.

    Marks belong to the next span if they follow whitespace or start the text. `first` and `last`
    contain the indices of each span's first and last character in the concatenated texts.
    """
    points, letters, which = characters
    is_dropped = tf.gather(tf.strings.regex_full_match(letters, _EXTENDING), which) & ~is_kept

    def extend() -> tuple[tf.Tensor, tf.Tensor]:
        text = tf.cast(row_ids(points), tf.int32)
        begins = tf.concat([[True], text[1:] != text[:-1]], axis=0)
        # A cluster is a character and the dropped marks after it.
        cluster = tf.cumsum(tf.cast(begins | ~is_dropped, tf.int32)) - 1
        index = tf.range(tf.size(which, first.dtype), dtype=first.dtype)
        cluster_last = tf.math.segment_max(index, cluster)
        cluster_first = tf.math.segment_min(index, cluster)
        # The index of the first mark in a cluster without a base character
        is_space = tf.gather(tf.strings.regex_full_match(letters, _WHITE_SPACE), which)
        head = cluster_first + tf.cast(tf.gather(is_space, cluster_first), first.dtype)
        head_is_mark = (head <= cluster_last) & tf.gather(
            is_dropped, tf.minimum(head, cluster_last)
        )
        before = tf.gather(cluster, tf.maximum(first - 1, 0))
        has_marks = ~tf.gather(begins, first) & tf.gather(head_is_mark, before)
        return (
            tf.where(has_marks, tf.gather(head, before), first),
            tf.gather(cluster_last, tf.gather(cluster, last)),
        )

    first, last = tf.cond(tf.reduce_any(is_dropped), extend, lambda: (first, last))
    return first, last


def _extend_over_moved_marks(
    first: tf.Tensor, last: tf.Tensor, text: tf.Tensor, is_kept: tf.Tensor, movable: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Extends spans that start or end at a reorderable mark to all marks around it."""
    # Consecutive marks without a kept character between them form a cluster.
    cluster = tf.cumsum(tf.cast(is_kept & ~movable, tf.int32)) + tf.cast(text, tf.int32)
    number = tf.reduce_max(cluster) + 1
    index = tf.range(tf.size(movable))
    begins = tf.math.unsorted_segment_min(
        tf.where(movable, index, tf.size(movable)), cluster, number
    )
    ends = tf.math.unsorted_segment_max(tf.where(movable, index, -1), cluster, number)
    return (
        tf.where(tf.gather(movable, first), tf.gather(begins, tf.gather(cluster, first)), first),
        tf.where(tf.gather(movable, last), tf.gather(ends, tf.gather(cluster, last)), last),
    )

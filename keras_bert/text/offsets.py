# SPDX-License-Identifier: Apache-2.0
"""Tokens with their offsets, and from offsets in a normalized text back to the original text."""

from __future__ import annotations

from typing import NamedTuple, Self

import tensorflow as tf

from keras_bert.text.normalization import normalize_intricate

# Canonical decomposition sorts combining marks, across characters. Of the marks still there
# when category Mn is gone, these are all that it may move, with the characters that contain one.
_MOVABLE = (
    r"[\x{302e}\x{302f}\x{16ff0}\x{16ff1}\x{1d15e}-\x{1d166}\x{1d16d}-\x{1d172}"
    r"\x{1d1bb}-\x{1d1c0}]"
)
# Characters that belong to the one before them, of those that normalization drops: combining
# marks, the joiners, and tags (Unicode Standard Annex 29, rule GB9).
_EXTENDING = r"[\p{Mn}\x{200c}\x{200d}\x{e0020}-\x{e007f}]"
_WHITE_SPACE = r"[ \t\n\r\p{Z}]"


class Pieces(NamedTuple):
    """Tokens and their offsets.

    Args:
        ids: Ragged int32 `(texts, pieces)`.
        starts: Ragged integers, of the same shape; the first byte or character of each piece.
        ends: Ragged integers, of the same shape; one past the last.
    """

    ids: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor


class Characters(NamedTuple):
    """The characters of texts, one after another.

    Args:
        points: Code points, ragged int32 `(texts, None)`.
        letters: The distinct ones, as strings.
        which: Which of `letters` each character is, int32 `(characters,)`.
    """

    points: tf.RaggedTensor
    letters: tf.Tensor
    which: tf.Tensor

    @classmethod
    def of(cls, texts: tf.Tensor) -> Self:
        """The characters of strings `(texts,)`, valid UTF-8."""
        points = tf.strings.unicode_decode(texts, "UTF-8")
        distinct, which = tf.unique(points.flat_values)
        return cls(points, tf.strings.unicode_encode(distinct[:, tf.newaxis], "UTF-8"), which)


def to_source_characters(source: tf.Tensor, lowercase: bool, pieces: Pieces) -> Pieces:
    """Moves the offsets of pieces from the normalized texts to the texts themselves.

    Each character is normalized by itself: which bytes it leaves does not depend on its neighbours,
    but for marks that change their order.

    Args:
        source: String tensor `(texts,)`, valid UTF-8.
        lowercase: As it was for `normalize`.
        pieces: Pieces with offsets in bytes of the normalized texts, int64.

    Returns:
        The pieces with offsets in characters of `source`, int32: the smallest spans that contain
        all characters with a part in the piece, and the dropped marks that belong to them.
    """
    points, letters, which = characters = Characters.of(source)
    widths = tf.gather(tf.strings.length(normalize_intricate(letters, lowercase)), which)
    byte_ends = tf.cumsum(tf.cast(widths, tf.int64))
    text = pieces.ids.value_rowids()
    text_starts = tf.gather(tf.concat([[0], byte_ends], axis=0), points.row_starts())
    offset = tf.gather(text_starts, text)
    first = _character_at(byte_ends, offset + pieces.starts.flat_values)
    last = _character_at(byte_ends, offset + pieces.ends.flat_values - 1)
    if lowercase:
        movable = tf.gather(tf.strings.regex_full_match(letters, _MOVABLE), which)
        first, last = tf.cond(
            tf.reduce_any(movable),
            lambda: _over_moved_marks(first, last, points.value_rowids(), widths > 0, movable),
            lambda: (first, last),
        )
    first, last = over_dropped_marks(characters, widths > 0, first, last)
    text_begins = tf.cast(tf.gather(points.row_starts(), text), tf.int32)
    return Pieces(
        pieces.ids,
        pieces.starts.with_flat_values(first - text_begins),
        pieces.ends.with_flat_values(last - text_begins + 1),
    )


def over_dropped_marks(
    characters: Characters, kept: tf.Tensor, first: tf.Tensor, last: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Widens spans over the marks that normalization dropped from their last character.

    Marks with no character to belong to, at the beginning of a text or after white space, belong
    to the span that begins after them.

    Args:
        characters: Those of the texts.
        kept: Which of them left anything in the normalized texts, bool `(characters,)`.
        first: The first character of each span, counted through all texts; int32 or int64.
        last: The last one, likewise.

    Returns:
        The first and the last character of each span.
    """
    points, letters, which = characters
    is_dropped = tf.gather(tf.strings.regex_full_match(letters, _EXTENDING), which) & ~kept

    def widened() -> tuple[tf.Tensor, tf.Tensor]:
        text = tf.cast(points.value_rowids(), tf.int32)
        begins = tf.concat([[True], text[1:] != text[:-1]], axis=0)
        # A cluster is a character and the dropped marks after it.
        cluster = tf.cumsum(tf.cast(begins | ~is_dropped, tf.int32)) - 1
        index = tf.range(tf.size(which, first.dtype), dtype=first.dtype)
        cluster_last = tf.math.segment_max(index, cluster)
        cluster_first = tf.math.segment_min(index, cluster)
        # Where the first mark is, if the cluster has no character for it to belong to
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

    first, last = tf.cond(tf.reduce_any(is_dropped), widened, lambda: (first, last))
    return first, last


def _character_at(byte_ends: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Which character each byte belongs to; characters that left no bytes are passed over."""
    return tf.searchsorted(byte_ends, positions, side="right")


def _over_moved_marks(
    first: tf.Tensor, last: tf.Tensor, text: tf.Tensor, kept: tf.Tensor, movable: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Widens spans that end among marks that may have been reordered to all of these marks."""
    # Marks that follow each other, nothing kept between them, are a cluster.
    cluster = tf.cumsum(tf.cast(kept & ~movable, tf.int32)) + tf.cast(text, tf.int32)
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

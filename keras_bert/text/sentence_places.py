# SPDX-License-Identifier: Apache-2.0
"""From offsets in a cleaned text, in bytes, to the characters of the text it was made of."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from keras_bert.text.offsets import Characters, over_dropped_marks
from keras_bert.text.pieces import Pieces


def moved_places(pieces: Pieces, function: Callable[[tf.Tensor], tf.Tensor]) -> Pieces:
    """The pieces with what a function makes of their places, flat."""
    starts, ends = (
        part.with_flat_values(function(part.flat_values)) for part in (pieces.starts, pieces.ends)
    )
    return Pieces(pieces.ids, starts, ends)


def without_spaces(pieces: Pieces, texts: tf.Tensor) -> Pieces:
    """Pieces that begin behind the spaces that are in their places.

    Args:
        pieces: With places in bytes of all texts.
        texts: String tensor `(texts,)`.
    """
    all_bytes = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    is_other = all_bytes != ord(" ")
    # Of each byte, the first one from it on that is no space
    others_before = tf.concat([[0], tf.cumsum(tf.cast(is_other, tf.int32))], axis=0)
    others = tf.concat([tf.where(is_other)[:, 0], tf.size(is_other, tf.int64)[tf.newaxis]], axis=0)
    starts, ends = pieces.starts.flat_values, pieces.ends.flat_values
    starts = tf.minimum(tf.gather(others, tf.gather(others_before, starts)), ends)
    return Pieces(pieces.ids, pieces.starts.with_flat_values(starts), pieces.ends)


def to_characters(
    pieces: Pieces,
    is_space: tf.Tensor,
    characters: Characters,
    widths: tf.Tensor,
    joined: tf.Tensor,
) -> Pieces:
    """Moves offsets from the cleaned texts to the texts.

    Args:
        pieces: With offsets in bytes of all cleaned texts.
        is_space: Which of them are no more than a space, and get an empty span, bool `(pieces,)`.
        characters: Those of the texts.
        widths: How many bytes each of them leaves in the cleaned texts, int32.
        joined: Which of them the character before stands for too, bool.

    Returns:
        The pieces with offsets in characters of their texts, int32; dropped marks are in the span
        of the character that they belong to.
    """
    rows = pieces.ids.value_rowids()
    points = characters.points
    begin, end = tf.gather(points.row_starts(), rows), tf.gather(points.row_limits(), rows)
    byte_ends = tf.cumsum(tf.cast(widths, tf.int64))
    first, last = pieces.starts.flat_values, pieces.ends.flat_values
    # Of a character that the model itself makes several of, the last piece has the bytes.
    last = tf.where(is_space, last, tf.maximum(last, first + 1))
    # Characters that left no bytes are passed over.
    starts = tf.searchsorted(byte_ends, first, side="right", out_type=tf.int64)
    ends = tf.searchsorted(byte_ends, last - 1, side="right", out_type=tf.int64) + 1
    starts = tf.clip_by_value(starts, begin, end)
    ends += tf.cast(tf.gather(tf.concat([joined, [False]], axis=0), ends), tf.int64)
    ends = tf.minimum(ends, end)
    is_inside = starts < end
    inside = tf.where(is_inside, starts, 0)
    wide_starts, wide_last = over_dropped_marks(
        characters, widths > 0, inside, tf.where(starts < ends, ends - 1, inside)
    )
    is_empty = (first >= last) | (starts >= ends)
    starts = tf.where(is_inside, wide_starts, starts)
    ends = tf.where(is_empty, starts, wide_last + 1)
    return Pieces(
        pieces.ids,
        pieces.starts.with_flat_values(tf.cast(starts - begin, tf.int32)),
        pieces.ends.with_flat_values(tf.cast(ends - begin, tf.int32)),
    )

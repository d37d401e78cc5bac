# SPDX-License-Identifier: Apache-2.0
"""From places in a cleaned text, in bytes, to the characters of the text it was made of."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

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
    points: tf.RaggedTensor,
    byte_ends: tf.Tensor,
    joined: tf.Tensor,
) -> Pieces:
    """Moves places from the cleaned texts to the texts.

    Args:
        pieces: With places in bytes of all cleaned texts.
        is_space: Which of them are no more than a space, and get an empty place, bool `(pieces,)`.
        points: The texts' code points, ragged `(texts, None)`.
        byte_ends: One past the last byte of each of them in the cleaned texts, int64.
        joined: Which of them the character before stands for too, bool.

    Returns:
        The pieces with places in characters of their texts, int32.
    """
    rows = pieces.ids.value_rowids()
    begin, end = tf.gather(points.row_starts(), rows), tf.gather(points.row_limits(), rows)
    first, last = pieces.starts.flat_values, pieces.ends.flat_values
    # Of a character that the model itself makes several of, the last piece has the bytes.
    last = tf.where(is_space, last, tf.maximum(last, first + 1))
    # Characters that left no bytes are passed over.
    starts = tf.searchsorted(byte_ends, first, side="right", out_type=tf.int64)
    ends = tf.searchsorted(byte_ends, last - 1, side="right", out_type=tf.int64) + 1
    starts = tf.clip_by_value(starts, begin, end)
    ends += tf.cast(tf.gather(tf.concat([joined, [False]], axis=0), ends), tf.int64)
    ends = tf.where(first >= last, starts, tf.minimum(ends, end))
    return Pieces(
        pieces.ids,
        pieces.starts.with_flat_values(tf.cast(starts - begin, tf.int32)),
        pieces.ends.with_flat_values(tf.cast(ends - begin, tf.int32)),
    )

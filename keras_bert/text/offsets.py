# SPDX-License-Identifier: Apache-2.0
"""From places in a normalized text back to the characters it was made of."""

from __future__ import annotations

import tensorflow as tf

from keras_bert.text.normalization import normalize_intricate
from keras_bert.text.pieces import Pieces

# Canonical decomposition sorts combining marks, across characters. Of the marks still there
# when category Mn is gone, these are all that it may move, with the characters that contain one.
_MOVABLE = (
    r"[\x{302e}\x{302f}\x{16ff0}\x{16ff1}\x{1d15e}-\x{1d166}\x{1d16d}-\x{1d172}"
    r"\x{1d1bb}-\x{1d1c0}]"
)


def to_source_characters(source: tf.Tensor, lowercase: bool, pieces: Pieces) -> Pieces:
    """Moves the places of pieces from the normalized texts to the texts themselves.

    Each character is normalized by itself: which bytes it leaves does not depend on its neighbours,
    but for marks that change their order.

    Args:
        source: String tensor `(texts,)`, valid UTF-8.
        lowercase: As it was for `normalize`.
        pieces: Pieces with places in bytes of the normalized texts, int64.

    Returns:
        The pieces with places in characters of `source`, int32: the smallest spans that contain
        all characters with a part in the piece.
    """
    points = tf.strings.unicode_decode(source, "UTF-8")
    distinct, which = tf.unique(points.flat_values)
    letters = tf.strings.unicode_encode(distinct[:, tf.newaxis], "UTF-8")
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
    text_begins = tf.cast(tf.gather(points.row_starts(), text), tf.int32)
    return Pieces(
        pieces.ids,
        pieces.starts.with_flat_values(first - text_begins),
        pieces.ends.with_flat_values(last - text_begins + 1),
    )


def _character_at(byte_ends: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Which character each byte belongs to; characters that left no bytes are passed over."""
    return tf.searchsorted(byte_ends, positions, side="right")


def _over_moved_marks(
    first: tf.Tensor, last: tf.Tensor, text: tf.Tensor, kept: tf.Tensor, movable: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Widens spans that end among marks which may have changed places to all of these marks."""
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

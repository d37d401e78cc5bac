# SPDX-License-Identifier: Apache-2.0
"""Canonical composition (NFC) as TensorFlow operations, and the source of each character."""

from __future__ import annotations

import tensorflow as tf

from keras_bert.text.composition import combining_characters
from keras_bert.text.graph.normalization import encode_texts, normalize_unicode
from keras_bert.text.graph.offsets import Characters, Pieces
from keras_bert.text.graph.rows import is_first_in_row, row_ids


def compose(texts: tf.Tensor) -> tf.Tensor:
    """Composes texts in valid UTF-8. See `keras_bert.text.composition.compose_text`."""
    return normalize_unicode(texts, "NFC")


def to_characters_before_composition(texts: tf.Tensor, pieces: Pieces) -> Pieces:
    """Converts offsets in composed texts to offsets in the original texts."""
    is_composed = tf.reduce_all(compose(texts) == texts)
    starts, ends = tf.cond(
        is_composed,
        lambda: (pieces.starts.flat_values, pieces.ends.flat_values),
        lambda: _sources(texts, pieces),
    )
    return pieces.with_offsets(starts, ends)


def _sources(texts: tf.Tensor, pieces: Pieces) -> tuple[tf.Tensor, tf.Tensor]:
    points, letters, which = Characters.from_texts(texts)
    size = tf.size(points.flat_values, tf.int64)
    is_combining = tf.gather(
        tf.strings.regex_full_match(letters, f"[{combining_characters()}]"), which
    )
    rows = points.row_starts()
    # Clusters are composed independently of each other.
    begins = tf.where(is_first_in_row(points) | ~is_combining)[:, 0]
    clusters = tf.RaggedTensor.from_row_starts(points.flat_values, begins, validate=False)
    before = encode_texts(clusters)
    after = compose(before)
    is_changed = after != before
    # If only a cluster's marks change, its first character is a separate unit.
    firsts = (tf.strings.substr(text, 0, 1, unit="UTF8_CHAR") for text in (before, after))
    keeps_first = is_changed & tf.equal(*firsts)
    # A unit is a changed cluster, a cluster's changed marks, or a single character.
    cluster = row_ids(clusters)
    changes, is_kept = tf.gather(is_changed, cluster), tf.gather(keeps_first, cluster)
    index = tf.range(size) - tf.gather(begins, cluster)
    unit_starts = tf.where((index == 0) | ~changes | (is_kept & (index == 1)))[:, 0]
    cluster_sizes = tf.cast(tf.strings.length(after, unit="UTF8_CHAR"), tf.int64)
    num_marks = tf.gather(cluster_sizes, cluster) - tf.cast(is_kept, tf.int64)
    lengths = tf.where(changes & ~(is_kept & (index == 0)), num_marks, 1)
    unit_ends_after = tf.cumsum(tf.gather(lengths, unit_starts))
    borders = tf.concat([unit_starts, [size]], axis=0)
    # The offset of each text in the characters of all composed texts
    after_all = tf.concat([[0], unit_ends_after], axis=0)
    text_starts = tf.gather(after_all, tf.searchsorted(unit_starts, rows))
    text = row_ids(pieces.ids)
    text_start = tf.gather(text_starts, text)
    first = tf.cast(pieces.starts.flat_values, tf.int64)
    last = tf.cast(pieces.ends.flat_values, tf.int64)

    def unit_of(offset: tf.Tensor) -> tf.Tensor:
        return tf.searchsorted(unit_ends_after, text_start + offset, side="right")

    begin = tf.gather(rows, text)
    starts = tf.minimum(tf.gather(borders, unit_of(first)), tf.gather(points.row_limits(), text))
    ends = tf.gather(borders, unit_of(tf.maximum(last - 1, 0)) + 1)
    ends = tf.where(last > first, ends, starts)
    return tf.cast(starts - begin, tf.int32), tf.cast(ends - begin, tf.int32)

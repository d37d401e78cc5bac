# SPDX-License-Identifier: Apache-2.0
"""Operations on concatenated rows that use few TensorFlow kernels.

`tf.repeat`, `tf.boolean_mask` and `RaggedTensor.value_rowids` work for tensors of any rank, but
need ten times more operations, and every operation takes time to trace and to start. In addition,
`tf.repeat` allocates a row as long as the highest count for each repeated value.
"""

from __future__ import annotations

import tensorflow as tf


def select(x: tf.Tensor, condition: tf.Tensor) -> tf.Tensor:
    """Selects the rows of `x` by a condition, bool `(rows,)`."""
    return tf.gather_nd(x, tf.where(condition))


def repeat(x: tf.Tensor, counts: tf.Tensor) -> tf.Tensor:
    """Repeats each row of `x`, with a separate count for each row, int `(rows,)`."""
    return tf.gather(x, _row_ids(tf.cumsum(counts), tf.reduce_sum(counts, axis=0)))


def row_ids(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Returns the row index of each value, int64 `(values,)`."""
    ends = ragged.row_splits[1:]
    return _row_ids(ends, tf.size(ragged.values, ends.dtype))


def is_first_in_row(ragged: tf.RaggedTensor) -> tf.Tensor:
    """Returns whether each value is the first in its row, bool `(values,)`."""
    starts = ragged.row_starts()
    size = tf.size(ragged.flat_values, tf.int64)
    return tf.scatter_nd(starts[:, tf.newaxis], tf.ones_like(starts), [size + 1])[:-1] > 0


def characters_before(texts: tf.Tensor) -> tf.Tensor:
    """Counts the characters before each byte of the concatenated texts, int32 `(bytes + 1,)`."""
    all_bytes = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    # In UTF-8, every character has exactly one byte other than 10xxxxxx.
    begins = tf.bitwise.bitwise_and(all_bytes, tf.constant(0xC0, tf.uint8)) != 0x80
    return tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int32))], axis=0)


def ranges(starts: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Concatenates ranges of integers, given by their starts and lengths."""
    one = tf.constant(1, starts.dtype)
    ragged = tf.raw_ops.RaggedRange(starts=starts, limits=starts + lengths, deltas=one)
    return ragged.rt_dense_values


def _row_ids(ends: tf.Tensor, num_values: tf.Tensor) -> tf.Tensor:
    # A value's row index is the number of rows that end before or at the value.
    positions = tf.range(num_values)
    rows = tf.raw_ops.UpperBound(
        sorted_inputs=ends[tf.newaxis], values=positions[tf.newaxis], out_type=tf.int64
    )
    return rows[0]

# SPDX-License-Identifier: Apache-2.0
"""Array functions for packing, as TensorFlow operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_bert.data.arrays import Arrays, Ragged
from keras_bert.text.graph.rows import ranges, repeat, select


class TensorFlowArrays(Arrays):
    """The array functions, computed with TensorFlow."""

    cumsum = staticmethod(tf.cumsum)
    sum = staticmethod(tf.reduce_sum)
    any = staticmethod(tf.reduce_any)
    round = staticmethod(tf.round)
    minimum = staticmethod(tf.minimum)
    maximum = staticmethod(tf.maximum)
    where = staticmethod(tf.where)
    take = staticmethod(tf.gather)
    select = staticmethod(select)
    repeat = staticmethod(repeat)
    ranges = staticmethod(ranges)
    segment_max = staticmethod(tf.math.unsorted_segment_max)
    segment_mean = staticmethod(tf.math.unsorted_segment_mean)
    segment_min = staticmethod(tf.math.unsorted_segment_min)
    cast = staticmethod(tf.cast)

    def asarray(self, values: Any, dtype: str) -> tf.Tensor:
        return tf.cast(values, dtype) if tf.is_tensor(values) else tf.constant(values, dtype)

    def size(self, x: tf.Tensor, axis: int = 0) -> tf.Tensor:
        return tf.shape(x, tf.int64)[axis]

    def arange(self, stop: Any) -> tf.Tensor:
        return tf.range(tf.cast(stop, tf.int64))

    def full(self, count: Any, value: Any, dtype: str) -> tf.Tensor:
        return tf.fill([count], tf.cast(value, dtype))

    def concat(self, arrays: Sequence[tf.Tensor], axis: int = 0) -> tf.Tensor:
        return tf.concat(arrays, axis)

    def highest(self, x: tf.Tensor, initial: int) -> tf.Tensor:
        return tf.reduce_max(tf.concat([x, tf.constant([initial], x.dtype)], axis=0))

    def scatter(self, index: tf.Tensor, values: tf.Tensor, size: Any) -> tf.Tensor:
        return tf.scatter_nd(index[:, tf.newaxis], values, tf.cast([size], tf.int64))

    def count(self, x: tf.Tensor, size: Any) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(tf.ones_like(x, tf.int32), x, size)

    def searchsorted(self, ascending: tf.Tensor, x: tf.Tensor, side: str) -> tf.Tensor:
        return tf.searchsorted(ascending, x, side, tf.int64)

    def top_k(self, x: tf.Tensor, count: int) -> tf.Tensor:
        return tf.math.top_k(x, tf.minimum(count, tf.shape(x)[1])).indices

    def highest_in_rows(self, x: tf.Tensor, count: Any) -> tf.Tensor:
        return tf.math.top_k(x, tf.cast(count, tf.int32)).values

    def take_along(self, x: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        return tf.gather(x, index, batch_dims=1)

    def to_dense(self, rows: Ragged, width: Any, fill_value: Any) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_row_lengths(rows.values, rows.lengths, validate=False)
        shape = (
            [None, width] if isinstance(width, int) else tf.stack([-1, tf.cast(width, tf.int64)])
        )
        return ragged.to_tensor(fill_value, shape=shape)

    def mask(self, lengths: tf.Tensor, width: Any) -> tf.Tensor:
        return tf.sequence_mask(lengths, width)

    def reshape(self, x: tf.Tensor, shape: Sequence[Any]) -> tf.Tensor:
        return tf.reshape(x, tf.stack([tf.cast(size, tf.int64) for size in shape]))

    def random_bits(self, seed: tuple[Any, Any], size: Any, first: Any = 0) -> tf.Tensor:
        # This matches `philox.random_bits`. TensorFlow derives Philox's key and counter from the
        # seed.
        words = tf.stack([tf.cast(word, tf.int64) for word in seed])
        bits = tf.random.stateless_uniform(
            [first + size], words, None, None, tf.uint32, alg="philox"
        )
        return tf.cast(bits[first:], tf.int64)

    def while_loop(
        self, condition: Callable[..., Any], step: Callable[..., Any], state: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        return tuple(tf.while_loop(condition, step, state))


TENSORFLOW = TensorFlowArrays()

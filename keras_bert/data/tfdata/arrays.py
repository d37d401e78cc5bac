# SPDX-License-Identifier: Apache-2.0
"""The functions of arrays that packing needs, as TensorFlow operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_bert.data.arrays import Arrays, Ragged


class TensorFlowArrays:
    """The functions of arrays, by TensorFlow; see `keras_bert.data.arrays.Arrays`."""

    cumsum = staticmethod(tf.cumsum)
    sum = staticmethod(tf.reduce_sum)
    any = staticmethod(tf.reduce_any)
    round = staticmethod(tf.round)
    minimum = staticmethod(tf.minimum)
    maximum = staticmethod(tf.maximum)
    where = staticmethod(tf.where)
    repeat = staticmethod(tf.repeat)
    take = staticmethod(tf.gather)
    select = staticmethod(tf.boolean_mask)
    segment_max = staticmethod(tf.math.unsorted_segment_max)
    segment_min = staticmethod(tf.math.unsorted_segment_min)
    cast = staticmethod(tf.cast)

    @staticmethod
    def asarray(values: Any, dtype: str) -> tf.Tensor:
        return tf.cast(values, dtype) if tf.is_tensor(values) else tf.constant(values, dtype)

    @staticmethod
    def size(x: tf.Tensor, axis: int = 0) -> tf.Tensor:
        return tf.shape(x, tf.int64)[axis]

    @staticmethod
    def arange(stop: Any) -> tf.Tensor:
        return tf.range(tf.cast(stop, tf.int64))

    @staticmethod
    def full(count: Any, value: Any, dtype: str) -> tf.Tensor:
        return tf.fill([count], tf.cast(value, dtype))

    @staticmethod
    def concat(parts: Sequence[tf.Tensor], axis: int = 0) -> tf.Tensor:
        return tf.concat(parts, axis)

    @staticmethod
    def highest(x: tf.Tensor, initial: int) -> tf.Tensor:
        return tf.reduce_max(tf.concat([x, tf.constant([initial], x.dtype)], axis=0))

    @staticmethod
    def scatter(index: tf.Tensor, values: tf.Tensor, size: Any) -> tf.Tensor:
        return tf.scatter_nd(index[:, tf.newaxis], values, tf.cast([size], tf.int64))

    @staticmethod
    def count(x: tf.Tensor, size: Any) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(tf.ones_like(x, tf.int32), x, size)

    @staticmethod
    def searchsorted(ascending: tf.Tensor, x: tf.Tensor, side: str) -> tf.Tensor:
        return tf.searchsorted(ascending, x, side, tf.int64)

    @staticmethod
    def top_k(x: tf.Tensor, count: int) -> tf.Tensor:
        return tf.math.top_k(x, tf.minimum(count, tf.shape(x)[1])).indices

    @staticmethod
    def highest_in_rows(x: tf.Tensor, count: Any) -> tf.Tensor:
        return tf.math.top_k(x, tf.cast(count, tf.int32)).values

    @staticmethod
    def take_along(x: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
        return tf.gather(x, index, batch_dims=1)

    @staticmethod
    def to_dense(rows: Ragged, width: Any, filler: Any) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_row_lengths(rows.values, rows.lengths, validate=False)
        shape = (
            [None, width] if isinstance(width, int) else tf.stack([-1, tf.cast(width, tf.int64)])
        )
        return ragged.to_tensor(filler, shape=shape)

    @staticmethod
    def mask(lengths: tf.Tensor, width: Any) -> tf.Tensor:
        return tf.sequence_mask(lengths, width)

    @staticmethod
    def reshape(x: tf.Tensor, shape: Sequence[Any]) -> tf.Tensor:
        return tf.reshape(x, tf.stack([tf.cast(size, tf.int64) for size in shape]))

    @staticmethod
    def random_bits(seed: tuple[Any, Any], size: Any) -> tf.Tensor:
        # (Both are the generator Philox 4x32-10, for which TensorFlow derives key and counter.)
        words = tf.stack([tf.cast(word, tf.int64) for word in seed])
        bits = tf.random.stateless_uniform([size], words, None, None, tf.uint32, alg="philox")
        return tf.cast(bits, tf.int64)

    @staticmethod
    def while_loop(
        condition: Callable[..., Any], step: Callable[..., Any], state: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        return tuple(tf.while_loop(condition, step, state))


TENSORFLOW: Arrays = TensorFlowArrays()

# SPDX-License-Identifier: Apache-2.0
"""Dropout whose mask is a function of a key and the position, so that it is never stored.

XLA's own generator is slow on CPUs, and a mask that is drawn outside has to be written, kept for
the backward pass and read again. A hash of the position costs a few integer operations inside the
loop that needs it, and the backward pass computes it anew.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_UINT32_VALUES = 2**32


def make_key(rate: float, seed: Any) -> Any:
    """The next key, uint32 `(2,)`, of a `keras.random.SeedGenerator`; zeros where nothing drops."""
    return tf.cast(seed.next(), tf.uint32) if rate else tf.zeros((2,), tf.uint32)


def drop(x: Any, rate: float, key: Any) -> Any:
    """Sets a share `rate` of the elements to zero and scales the others up; its own gradient.

    Args:
        x: Any shape.
        rate: In [0, 1); 0 returns `x`.
        key: uint32 `(2,)`; the same key drops the same positions.
    """
    if not rate:
        return x
    kept = _hashed_positions(tf.shape(x), key) >= tf.constant(
        round(rate * _UINT32_VALUES), tf.uint32
    )
    return tf.where(kept, x * tf.constant(1 / (1 - rate), x.dtype), tf.zeros((), x.dtype))


def _hashed_positions(shape: Any, key: Any) -> Any:
    """A pseudo-random uint32 for every position.

    The two multiplications and three shifts are a published bijective 32-bit mixer
    (https://github.com/skeeto/hash-prospector); one half of the key enters before it, the other
    in its middle, so that no two keys give shifted copies of one stream.
    """
    first, second = _mixed(key[0] + key[1] * _uint32(0x9E3779B9)), _mixed(key[0] ^ ~key[1])
    positions = tf.cast(tf.reshape(tf.range(tf.reduce_prod(shape)), shape), tf.uint32)
    return _mixed(positions ^ first, second)


def _mixed(bits: Any, offset: Any = 0) -> Any:
    bits = (bits ^ _shifted(bits, 16)) * _uint32(0x7FEB352D) + tf.cast(offset, tf.uint32)
    bits = (bits ^ _shifted(bits, 15)) * _uint32(0x846CA68B)
    return bits ^ _shifted(bits, 16)


def _shifted(bits: Any, places: int) -> Any:
    return tf.bitwise.right_shift(bits, _uint32(places))


def _uint32(value: int) -> Any:
    return tf.constant(value, tf.uint32)

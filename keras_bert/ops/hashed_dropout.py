# SPDX-License-Identifier: Apache-2.0
"""Dropout that computes its mask by hashing a key and positions, and never stores the mask.

XLA's random number generator is slow on CPUs. A separately sampled mask must be written to memory,
kept for the backward pass and read again. A hash of the position takes a few integer operations in
the fused loop, and the backward pass recomputes it. It is used with XLA on TensorFlow and JAX.
"""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_bert.ops.annotations import Tensor

_UINT32_VALUES = 2**32


def make_key(rate: float, seed: Tensor) -> Tensor:
    """Samples a key, uint32 `(2,)`, from a `keras.random.SeedGenerator`. It is 0 if `rate` is 0."""
    return ops.cast(seed.next(), "uint32") if rate else ops.zeros((2,), "uint32")


def fold_in(key: Tensor, number: Tensor) -> Tensor:
    """Derives the key for a part, such as a chunk, from a key and the part's number.

    The key is hashed, not added to the number. Seeds of consecutive steps count up, so a sum would
    equal a different part's key in a later step.
    """
    number = _mix(ops.cast(number, "uint32") + _uint32(0x9E3779B9))
    first = _mix(key[0] + _mix(key[1] ^ number))
    return ops.stack([first, _mix(key[1] + _mix(first ^ number))])


def drop(x: Tensor, rate: float, key: Tensor, positions: Tensor | None = None) -> Tensor:
    """Sets a fraction `rate` of the elements to 0 and scales the rest by `1 / (1 - rate)`.

    The same key, uint32 `(2,)`, drops the same positions. If `x` is a slice of a larger tensor,
    pass its elements' flat indices in that tensor as `positions`, uint32 of the same shape.
    """
    if not rate:
        return x
    if positions is None:
        positions = ops.reshape(ops.arange(ops.size(x), dtype="int32"), ops.shape(x))
    is_kept = _hashed_positions(positions, key) >= _uint32(round(rate * _UINT32_VALUES))
    scale = ops.convert_to_tensor(1 / (1 - rate), x.dtype)
    return ops.where(is_kept, x * scale, ops.zeros((), x.dtype))


def _hashed_positions(positions: Tensor, key: Tensor) -> Tensor:
    """Computes a pseudo-random uint32 for every position.

    The two multiplications and three shifts are a published bijective 32-bit hash
    (https://github.com/skeeto/hash-prospector). Two numbers are derived from the key. The first is
    XORed with the positions before the hash, and the second is added in the middle. So different
    keys do not produce shifted copies of the same sequence.
    """
    first, second = _mix(key[0] + key[1] * _uint32(0x9E3779B9)), _mix(key[0] ^ ~key[1])
    return _mix(ops.cast(positions, "uint32") ^ first, second)


def _mix(bits: Tensor, offset: Tensor | None = None) -> Tensor:
    bits = (bits ^ _shift(bits, 16)) * _uint32(0x7FEB352D)
    if offset is not None:
        bits = bits + offset
    bits = (bits ^ _shift(bits, 15)) * _uint32(0x846CA68B)
    return bits ^ _shift(bits, 16)


def _shift(bits: Tensor, distance: int) -> Tensor:
    return ops.right_shift(bits, _uint32(distance))


def _uint32(value: int) -> Any:
    return ops.convert_to_tensor(value, "uint32")

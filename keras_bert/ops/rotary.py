# SPDX-License-Identifier: Apache-2.0
"""Rotary position embeddings, applied to queries and keys."""

from __future__ import annotations

import keras
from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor


def cos_sin_of(positions: Tensor, dim: int, base: float, scale: float = 1.0) -> Tensor:
    """Computes the cosines and sines of the angles `scale * position * base^(-2i / dim)`.

    Of positions `(rows, length)` they are float32 `(rows, length, 2, dim / 2)`; `i` counts from 0
    to `dim / 2 - 1`.

    Reference:
        [RoFormer](https://arxiv.org/abs/2104.09864), section 3.2.2.
    """
    exponents = ops.arange(0, dim, 2, dtype="float32") / dim
    frequencies = ops.power(ops.cast(base, "float32"), -exponents) * scale
    angles = ops.cast(positions, "float32")[..., None] * frequencies
    return ops.stack([ops.cos(angles), ops.sin(angles)], axis=2)


@dispatch.fused
def rotate(x: Tensor, cos_sin: Tensor, *, training: bool = False) -> Tensor:
    """Rotates each pair of elements `(i, i + dim / 2)` by its angle, in float32 or wider.

    `x` is `(batch, length, heads, dim)`; `cos_sin_of` has one row or as many. It has no gradient.
    """
    dtype = keras.backend.standardize_dtype(x.dtype)
    upcast = ops.cast(x, dtype if dtype == "float64" else "float32")
    cos_sin = ops.cast(cos_sin, upcast.dtype)
    cosines, sines = cos_sin[:, :, None, 0], cos_sin[:, :, None, 1]
    first, second = ops.split(upcast, 2, axis=-1)
    halves = (first * cosines - second * sines, second * cosines + first * sines)
    return ops.cast(ops.concatenate(halves, axis=-1), dtype)

# SPDX-License-Identifier: Apache-2.0
"""Dropout that is not fused with other operations."""

from __future__ import annotations

import keras

from keras_bert.ops import dispatch, hashed_dropout
from keras_bert.ops.annotations import Tensor


@dispatch.fused
def dropout(x: Tensor, rate: float, *, seed: Tensor, training: bool = False) -> Tensor:
    """Applies dropout during training: sets elements to 0 and scales the rest by `1 / (1 - rate)`.

    `seed` is a `keras.random.SeedGenerator`.

    Reference:
        [Dropout](https://jmlr.org/papers/v15/srivastava14a.html), section 10, scaled in training
        instead of at test time.
    """
    return portable_dropout(x, rate, seed=seed) if training else x


def portable_dropout(x: Tensor, rate: float, *, seed: Tensor) -> Tensor:
    """Dropout by operations that every device supports; returns `x` if `rate` is 0."""
    if not rate:
        return x
    if keras.backend.backend() == "jax":  # keras.random would be compiled at every step
        return hashed_dropout.drop(x, rate, hashed_dropout.make_key(rate, seed))
    return keras.random.dropout(x, rate, seed=seed)

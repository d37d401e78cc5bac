# SPDX-License-Identifier: Apache-2.0
"""Dropout that is not fused with other operations."""

from __future__ import annotations

import keras

from keras_bert.ops import dispatch, hashed_dropout
from keras_bert.ops.annotations import Tensor


def dropout(x: Tensor, rate: float, *, seed: Tensor, training: bool) -> Tensor:
    """Sets a share of the elements to zero and scales the others up, while training.

    Args:
        x: Any shape, any float dtype.
        rate: The share of elements to drop, in [0, 1).
        seed: A `keras.random.SeedGenerator`.
        training: Whether dropout is active.

    Returns:
        The shape and dtype of `x`.

    Reference:
        [Dropout](https://jmlr.org/papers/v15/srivastava14a.html), section 10 (scaled up in
        training instead of down at test time).
    """
    if not training or not rate:
        return x
    kernels = dispatch.tensorflow_cpu_kernels(training)
    if kernels is not None:
        return kernels.dropout(x, rate, seed=seed)
    return portable_dropout(x, rate, seed=seed)


def portable_dropout(x: Tensor, rate: float, *, seed: Tensor) -> Tensor:
    """Dropout by operations that every device of a backend has; `x` itself for a rate of 0."""
    if not rate:
        return x
    if keras.backend.backend() == "jax":  # keras.random is compiled at every step there
        return hashed_dropout.drop(x, rate, hashed_dropout.make_key(rate, seed))
    return keras.random.dropout(x, rate, seed=seed)

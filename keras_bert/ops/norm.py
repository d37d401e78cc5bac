# SPDX-License-Identifier: Apache-2.0
"""Normalization over the last axis."""

from __future__ import annotations

import keras
from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor


@dispatch.fused
def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor:
    """Computes LayerNorm over the last axis, in float32 or wider; `gamma` and `beta` are `(dim,)`.

    Reference:
        [Layer Normalization](https://arxiv.org/abs/1607.06450), equation 4.
    """
    return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float) -> Tensor:
    """Divides by the root mean square over the last axis, computed in float32 or wider.

    Reference:
        [RMSNorm](https://arxiv.org/abs/1910.07467), equation 4.
    """
    is_float64 = keras.backend.standardize_dtype(x.dtype) == "float64"
    upcast = x if is_float64 else ops.cast(x, "float32")
    scale = ops.rsqrt(ops.mean(ops.square(upcast), axis=-1, keepdims=True) + epsilon)
    return ops.cast(upcast * scale * ops.cast(gamma, upcast.dtype), x.dtype)


@dispatch.fused
def norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor | None,
    *,
    kind: str,
    epsilon: float,
    training: bool = False,
) -> Tensor:
    """Computes `layer_norm` or `rms_norm`, which has no `beta`, by the name in `kind`."""
    if kind == "rms_norm":
        return rms_norm(x, gamma, epsilon)
    return layer_norm(x, gamma, beta, epsilon)

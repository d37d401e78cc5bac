# SPDX-License-Identifier: Apache-2.0
"""Normalization over the last axis, and the ends of sublayers, which can be fused with it."""

from __future__ import annotations

import keras
from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.activations import bias_add
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.dropout import dropout as apply_dropout
from keras_bert.ops.dropout import portable_dropout


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor:
    """Computes LayerNorm over the last axis, in float32 or wider; `gamma` and `beta` are `(dim,)`.

    Reference:
        [Layer Normalization](https://arxiv.org/abs/1607.06450), equation 4.
    """
    plain = dispatch.tensorflow_plain()
    if plain is not None:
        return plain.layer_norm(x, gamma, beta, epsilon)
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
    kernels = dispatch.tensorflow_cpu_kernels(training)
    if kernels is not None:
        return kernels.norm(x, gamma, beta, kind=kind, epsilon=epsilon)
    if kind == "rms_norm":
        return rms_norm(x, gamma, epsilon)
    return layer_norm(x, gamma, beta, epsilon)


def bias_dropout_residual(
    x: Tensor,
    residual: Tensor,
    bias: Tensor | None,
    *,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    training: bool = False,
) -> Tensor:
    """Computes `residual + dropout(x + bias)`, the end of a sublayer behind a norm (pre-norm).

    `x` and `residual` are `(..., dim)`, the bias `(dim,)` or `None`.
    """
    if bias is not None:
        x = bias_add(x, bias, training=training)
    x = apply_dropout(x, dropout, seed=seed, training=training)
    # Not by Keras' `add`, which takes a tensor without rows for a bias.
    return x + ops.cast(residual, x.dtype)


def bias_dropout_residual_norm(
    x: Tensor,
    residual: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor | None,
    *,
    epsilon: float,
    kind: str = "layer_norm",
    dropout: float = 0.0,
    seed: Tensor | None = None,
    training: bool = False,
) -> Tensor:
    """Computes `norm(residual + dropout(x + bias))`, the end of a sublayer before a norm.

    The arguments are those of `bias_dropout_residual` and `norm`.
    """
    rate = dropout if training else 0.0
    kernels = dispatch.tensorflow_cpu_kernels(training)
    end = portable_bias_dropout_residual_norm
    if kernels is not None:
        end = kernels.bias_dropout_residual_norm
    weights = (bias, gamma, beta)
    return end(x, residual, *weights, kind=kind, epsilon=epsilon, dropout=rate, seed=seed)


def portable_bias_dropout_residual_norm(
    x: Tensor,
    residual: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor | None,
    *,
    epsilon: float,
    kind: str = "layer_norm",
    dropout: float,
    seed: Tensor,
) -> Tensor:
    """The portable definition, with which tests compare faster versions."""
    if bias is not None:
        x = ops.add(x, ops.cast(bias, x.dtype))
    x = portable_dropout(x, dropout, seed=seed)
    return norm(x + ops.cast(residual, x.dtype), gamma, beta, kind=kind, epsilon=epsilon)

# SPDX-License-Identifier: Apache-2.0
"""Bias, dropout, residual connection and LayerNorm fused: the end of every sublayer."""

from __future__ import annotations

from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.dropout import portable_dropout


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Computes LayerNorm over the last axis, in float32 or wider.

    Args:
        x: Float tensor of shape `(..., dim)`.
        gamma: Scale, of shape `(dim,)`.
        beta: Offset, of shape `(dim,)`.
        epsilon: Added to the variance.

    Returns:
        A tensor of shape `(..., dim)` in the dtype of `x`.

    Reference:
        [Layer Normalization](https://arxiv.org/abs/1607.06450), equation 4.
    """
    plain = dispatch.tensorflow_plain()
    if plain is not None:
        return plain.layer_norm(x, gamma, beta, epsilon)
    return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)


def bias_dropout_residual_layer_norm(
    x: Tensor,
    residual: Tensor,
    bias: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    epsilon: float,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    training: bool = False,
) -> Tensor:
    """Computes `LayerNorm(residual + dropout(x + bias))`.

    Args:
        x: The result of the sublayer's last matrix product, of shape `(..., dim)`.
        residual: The input of the sublayer, of shape `(..., dim)`.
        bias: Bias of the sublayer's last product, of shape `(dim,)`.
        gamma: Scale of LayerNorm, of shape `(dim,)`.
        beta: Offset of LayerNorm, of shape `(dim,)`.
        epsilon: Added to the variance.
        dropout: Dropout rate, in `[0, 1)`; applied only if `training`.
        seed: A `keras.random.SeedGenerator`, required if dropout is active.
        training: Whether dropout is active and gradients will be computed.

    Returns:
        A tensor of shape `(..., dim)` in the dtype of `x`.
    """
    rate = dropout if training else 0.0
    kernels = dispatch.tensorflow_cpu_kernels(training)
    if kernels is not None:
        return kernels.bias_dropout_residual_layer_norm(
            x, residual, bias, gamma, beta, epsilon=epsilon, dropout=rate, seed=seed
        )
    return portable_bias_dropout_residual_layer_norm(
        x, residual, bias, gamma, beta, epsilon=epsilon, dropout=rate, seed=seed
    )


def portable_bias_dropout_residual_layer_norm(
    x: Tensor,
    residual: Tensor,
    bias: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    epsilon: float,
    dropout: float,
    seed: Tensor,
) -> Tensor:
    """The portable definition, with which tests compare faster versions."""
    x = ops.add(x, ops.cast(bias, x.dtype))
    x = portable_dropout(x, dropout, seed=seed)
    return layer_norm(ops.add(x, residual), gamma, beta, epsilon)

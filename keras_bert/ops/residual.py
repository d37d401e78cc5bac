# SPDX-License-Identifier: Apache-2.0
"""The end of a sublayer: bias, dropout and residual connection, and in post-norm the norm."""

from __future__ import annotations

from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.activations import bias_add
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.dropout import dropout as apply_dropout
from keras_bert.ops.norm import norm


def bias_dropout_residual(
    x: Tensor,
    residual: Tensor,
    bias: Tensor | None,
    *,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    training: bool = False,
) -> Tensor:
    """Computes `residual + dropout(x + bias)`, the end of a sublayer in pre-norm.

    `x` and `residual` are `(..., dim)`, the bias `(dim,)` or `None`.
    """
    if bias is not None:
        x = bias_add(x, bias, training=training)
    x = apply_dropout(x, dropout, seed=seed, training=training)
    # Not by Keras' `add`, which takes a tensor without rows for a bias.
    return x + ops.cast(residual, x.dtype)


@dispatch.fused
def bias_dropout_residual_norm(
    x: Tensor,
    residual: Tensor,
    bias: Tensor | None,
    gamma: Tensor,
    beta: Tensor | None,
    *,
    kind: str = "layer_norm",
    epsilon: float,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    training: bool = False,
) -> Tensor:
    """Computes `norm(residual + dropout(x + bias))`, the end of a sublayer in post-norm.

    The arguments are those of `bias_dropout_residual` and `norm`.
    """
    x = bias_dropout_residual(x, residual, bias, dropout=dropout, seed=seed, training=training)
    return norm(x, gamma, beta, kind=kind, epsilon=epsilon, training=training)

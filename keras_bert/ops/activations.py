# SPDX-License-Identifier: Apache-2.0
"""Activation functions, and bias addition fused with an activation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor


def gelu_erf(x: Tensor) -> Tensor:
    """The exact GELU, `x * P(Z <= x)` ([arXiv 1606.08415](https://arxiv.org/abs/1606.08415))."""
    if keras.backend.backend() == "torch":
        return ops.gelu(x, approximate=False)
    # Written with erf: on the other backends Keras emits erfc, which ONNX Runtime lacks.
    half = ops.cast(0.5, x.dtype)
    return half * x * (1 + ops.erf(x * ops.cast(math.sqrt(0.5), x.dtype)))


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh approximation of GELU, as in BERT's released TF1 code."""
    return ops.gelu(x, approximate=True)


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "relu": ops.relu,
    "silu": ops.silu,
    "tanh": ops.tanh,
}


def activation_function(name: str) -> Callable[[Any], Any]:
    """Returns the activation function of a name that `BertConfig.activation` allows."""
    return _ACTIVATIONS[name]


@dispatch.fused
def bias_activation(x: Tensor, bias: Tensor, activation: str, *, training: bool = False) -> Tensor:
    """Computes `activation(x + bias)`, `(..., dim)`, in the dtype of `x`."""
    return _ACTIVATIONS[activation](bias_add(x, bias, training=training))


@dispatch.fused
def gated_activation(x: Tensor, activation: str, *, training: bool = False) -> Tensor:
    """Computes `activation(a) * b`, where `a` and `b` are the halves of the last axis of `x`.

    Reference:
        [GLU Variants Improve Transformer](https://arxiv.org/abs/2002.05202), equation 6.
    """
    activated, gate = ops.split(x, 2, axis=-1)
    return ops.multiply(_ACTIVATIONS[activation](activated), gate)


@dispatch.fused
def bias_add(x: Tensor, bias: Tensor, *, training: bool = False) -> Tensor:
    """Computes `x + bias`, `(..., dim)`, in the dtype of `x`."""
    return ops.add(x, ops.cast(bias, x.dtype))

# SPDX-License-Identifier: Apache-2.0
"""Bias and activation in one step: what follows the first product of a feed-forward part."""

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
    # Written with erf: the erfc that Keras emits elsewhere is unknown to ONNX Runtime.
    half = ops.cast(0.5, x.dtype)
    return half * x * (1 + ops.erf(x * ops.cast(math.sqrt(0.5), x.dtype)))


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU by its tanh approximation, as the released TF1 code computes it."""
    return ops.gelu(x, approximate=True)


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "relu": ops.relu,
    "silu": ops.silu,
    "tanh": ops.tanh,
}


def activation_function(name: str) -> Callable[[Any], Any]:
    """The function of a name that `BertConfig.activation` allows."""
    return _ACTIVATIONS[name]


def bias_activation(x: Tensor, bias: Tensor, activation: str, training: bool = False) -> Tensor:
    """`activation(x + bias)`.

    Args:
        x: `(..., dim)`, any float dtype.
        bias: `(dim,)`.
        activation: A name that `BertConfig.activation` allows.
        training: Whether gradients will be computed. Only then may a backend compile the
            computation on its own, since such code must not reach an exported graph.

    Returns:
        `(..., dim)` in the dtype of `x`.
    """
    kernels = dispatch.tensorflow_cpu_kernels(training)
    if kernels is not None and kernels.knows_activation(activation):
        return kernels.bias_activation(x, bias, activation)
    return portable_bias_activation(x, bias, activation)


def bias_add(x: Tensor, bias: Tensor, training: bool = False) -> Tensor:
    """`x + bias`.

    Args:
        x: `(..., dim)`, any float dtype.
        bias: `(dim,)`.
        training: Whether gradients will be computed.

    Returns:
        `(..., dim)` in the dtype of `x`.
    """
    kernels = dispatch.tensorflow_cpu_kernels(training)
    if kernels is not None:
        return kernels.bias_add(x, bias)
    return ops.add(x, ops.cast(bias, x.dtype))


def portable_bias_activation(x: Tensor, bias: Tensor, activation: str) -> Tensor:
    """The definition that tests compare faster versions with."""
    return _ACTIVATIONS[activation](ops.add(x, ops.cast(bias, x.dtype)))

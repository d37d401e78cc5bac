# SPDX-License-Identifier: Apache-2.0
"""Training kernels for TensorFlow on a CPU, with hand-written forward and backward passes.

Matrix products are left to oneDNN, which is the fastest at them. Between them are chains of
elementwise operations, each of which TensorFlow executes as a pass over memory: here every chain
is a small function that XLA compiles to one or two passes, computed in float32. The backward pass
uses tensors that exist anyway, and recomputes the rest.

Every tensor is an argument of its function: `tf.custom_gradient` does not differentiate with
respect to captured tensors. And each function is traced once for all models, since TensorFlow keeps
what `tf.custom_gradient` is given, with the graph that it is called in, until the process ends.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.hashed_dropout import drop, make_key


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors with XLA, which does so at the first call with each shape.

    See `traced_once` for its traces.
    """
    return traced_once(function, jit_compile=True)


def traced_once(
    function: Callable[..., Any], *, jit_compile: bool = False, inline: bool = True
) -> Callable[..., Any]:
    """Makes a graph of a function of tensors for each combination of dtypes and widths.

    The number of rows is dynamic, so batches of all lengths share a trace.

    Args:
        function: The function.
        jit_compile: Whether XLA compiles it.
        inline: Whether TensorFlow replaces its calls by the operations before it optimizes a graph.
            Without, a graph with many calls of a large function is optimized in a fraction of the
            time.
    """
    attributes = None if inline else {"_noinline": True}

    @functools.cache
    def traced(*specs: Any) -> Any:
        return tf.function(
            function,
            input_signature=specs,
            jit_compile=jit_compile,
            autograph=False,
            experimental_attributes=attributes,
        )

    def call(*tensors: Tensor) -> Tensor:
        return traced(*map(_open_spec, tensors))(*tensors)

    return call


def _open_spec(tensor: Tensor) -> Tensor:
    rank = tensor.shape.rank
    # The last of attention's four dimensions may be a length too
    width = tensor.shape[-1:] if rank <= 2 else [None]
    return tf.TensorSpec([None] * (rank - 1) + list(width), tensor.dtype)


def bias_activation(x: Tensor, bias: Tensor, activation: str) -> Tensor:
    """`keras_bert.ops.bias_activation` in training, if `knows_activation(activation)`."""
    y = _bias_activation(activation)(_as_rows(x), tf.convert_to_tensor(bias))
    return tf.reshape(y, tf.shape(x))


@functools.cache
def _bias_activation(activation: str) -> Callable[..., Any]:
    @traced_once
    @tf.custom_gradient
    def compute(x: Tensor, bias: Tensor) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            x_gradient = _activation_gradient(activation)(x, bias, upstream)
            return x_gradient, tf.cast(_sum_rows(x_gradient), bias.dtype)

        return _activation(activation)(x, bias), gradient

    return compute


def bias_add(x: Tensor, bias: Tensor) -> Tensor:
    """`keras_bert.ops.bias_add` in training; the gradient of the bias is summed in float32."""
    y = _bias_add()(_as_rows(x), tf.convert_to_tensor(bias))
    return tf.reshape(y, tf.shape(x))


@functools.cache
def _bias_add() -> Callable[..., Any]:
    @traced_once
    @tf.custom_gradient
    def compute(x: Tensor, bias: Tensor) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            return upstream, tf.cast(_sum_rows(upstream), bias.dtype)

        return tf.nn.bias_add(x, tf.cast(bias, x.dtype)), gradient

    return compute


def knows_activation(name: str) -> bool:
    """Returns whether `bias_activation` supports an activation."""
    return name in _ACTIVATIONS


def bias_dropout_residual_layer_norm(
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
    """`keras_bert.ops.bias_dropout_residual_layer_norm` in training."""

    weights = (tf.convert_to_tensor(weight) for weight in (bias, gamma, beta))
    compute = _bias_dropout_residual_layer_norm(epsilon, dropout)
    y = compute(_as_rows(x), _as_rows(residual), *weights, make_key(dropout, seed))
    return tf.reshape(y, tf.shape(x))


@functools.cache
def _bias_dropout_residual_layer_norm(epsilon: float, dropout: float) -> Callable[..., Any]:
    @traced_once
    @tf.custom_gradient
    def compute(
        x: Tensor, residual: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor, key: Tensor
    ) -> tuple[Any, Callable[[Any], Any]]:
        y, mean, scale = _norm(epsilon, dropout)(x, residual, bias, gamma, beta, key)

        def gradient(upstream: Tensor) -> tuple[Tensor, ...]:
            arguments = (x, residual, bias, gamma, mean, scale, upstream, key)
            x_gradient, residual_gradient, *rows = _norm_gradient(dropout)(*arguments)
            weight_gradients = (
                tf.cast(row, weight.dtype)
                for row, weight in zip(rows, (bias, gamma, beta), strict=True)
            )
            return x_gradient, residual_gradient, *weight_gradients, None

        return y, gradient

    return compute


def dropout(x: Tensor, rate: float, *, seed: Tensor) -> Tensor:
    """`keras_bert.ops.dropout` in training."""
    y = _dropout(rate)(_as_rows(x), make_key(rate, seed))
    return tf.reshape(y, tf.shape(x))


@functools.cache
def _dropout(rate: float) -> Callable[..., Any]:
    @traced_once
    @tf.custom_gradient
    def compute(x: Tensor, key: Tensor) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(upstream: Tensor) -> tuple[Any, None]:
            return dropped(rate)(upstream, key), None

        return dropped(rate)(x, key), gradient

    return compute


def gather_once(x: Tensor, indices: Tensor, origins: Tensor) -> Tensor:
    """Gathers rows of `(rows, width)`, of whose result only the places `origins` have gradients.

    The gradient is a gather too, while that of `tf.gather` adds rows to others one by one.

    Args:
        x: Tensor of shape `(rows, width)`.
        indices: int32 `(places,)`.
        origins: int32 `(rows,)`, for each row a place that it is gathered to.
    """
    return _gather_once()(x, indices, origins)


@functools.cache
def _gather_once() -> Callable[..., Any]:
    @traced_once
    @tf.custom_gradient
    def compute(x: Tensor, indices: Tensor, origins: Tensor) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(upstream: Tensor) -> tuple[Any, None, None]:
            return tf.gather(upstream, origins), None, None

        return tf.gather(x, indices), gradient

    return compute


# === Activations and their derivatives, in float32 ===


def _gelu_erf(u: Tensor) -> Tensor:
    return u * _normal_below(u)


def _gelu_erf_derivative(u: Tensor) -> Tensor:
    return _normal_below(u) + u * tf.exp(-0.5 * u * u) * (1 / math.sqrt(2 * math.pi))


def _normal_below(u: Tensor) -> Tensor:
    return 0.5 + 0.5 * tf.math.erf(u * math.sqrt(0.5))


def _gelu_tanh(u: Tensor) -> Tensor:
    return 0.5 * u * (1 + _gelu_tanh_inner(u))


def _gelu_tanh_derivative(u: Tensor) -> Tensor:
    inner = _gelu_tanh_inner(u)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * u * u)
    return 0.5 * (1 + inner) + 0.5 * u * (1 - inner * inner) * slope


def _gelu_tanh_inner(u: Tensor) -> Tensor:
    return tf.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u * u * u))


_ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "gelu_erf": (_gelu_erf, _gelu_erf_derivative),
    "gelu_tanh": (_gelu_tanh, _gelu_tanh_derivative),
}


# === The compiled functions ===


@functools.cache
def _activation(name: str) -> Callable[..., Any]:
    function, _ = _ACTIVATIONS[name]

    @compiled
    def activation(x: Tensor, bias: Tensor) -> Tensor:
        return tf.cast(function(wide(x) + wide(bias)), x.dtype)

    return activation


@functools.cache
def _activation_gradient(name: str) -> Callable[..., Any]:
    _, derivative = _ACTIVATIONS[name]

    @compiled
    def activation_gradient(x: Tensor, bias: Tensor, upstream: Tensor) -> Tensor:
        return tf.cast(wide(upstream) * derivative(wide(x) + wide(bias)), x.dtype)

    return activation_gradient


def _sum_rows(x: Tensor) -> Tensor:
    # XLA takes twice as long, and would recompute `x` if it fused the sum with its computation.
    return tf.raw_ops.BiasAddGrad(out_backprop=wide(x))


@functools.cache
def _norm(epsilon: float, rate: float) -> Callable[..., Any]:
    @compiled
    def norm(
        x: Tensor, residual: Tensor, bias: Tensor, gamma: Tensor, beta: Tensor, key: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        total = wide(residual) + drop(wide(x) + wide(bias), rate, key)
        mean = tf.reduce_mean(total, -1, keepdims=True)
        centred = total - mean
        scale = tf.math.rsqrt(tf.reduce_mean(centred * centred, -1, keepdims=True) + epsilon)
        return tf.cast(centred * scale * wide(gamma) + wide(beta), x.dtype), mean, scale

    return norm


@functools.cache
def _norm_gradient(rate: float) -> Callable[..., Any]:
    @compiled
    def norm_gradient(
        x: Tensor,
        residual: Tensor,
        bias: Tensor,
        gamma: Tensor,
        mean: Tensor,
        scale: Tensor,
        upstream: Tensor,
        key: Tensor,
    ) -> tuple[Tensor, ...]:
        total = wide(residual) + drop(wide(x) + wide(bias), rate, key)
        normal, upstream = (total - mean) * scale, wide(upstream)
        along_normal = upstream * wide(gamma)
        total_gradient = scale * (
            along_normal
            - tf.reduce_mean(along_normal, -1, keepdims=True)
            - normal * tf.reduce_mean(along_normal * normal, -1, keepdims=True)
        )
        x_gradient = drop(total_gradient, rate, key)
        weight_gradients = (x_gradient, upstream * normal, upstream)
        return (
            tf.cast(x_gradient, x.dtype),
            tf.cast(total_gradient, residual.dtype),
            *(tf.reduce_sum(rows, 0) for rows in weight_gradients),
        )

    return norm_gradient


@functools.cache
def dropped(rate: float) -> Callable[..., Any]:
    """Returns the function that drops elements of a tensor, of any shape, by a key."""

    @compiled
    def apply_dropout(x: Tensor, key: Tensor) -> Tensor:
        return tf.cast(drop(wide(x), rate, key), x.dtype)

    return apply_dropout


def _as_rows(x: Tensor) -> Tensor:
    """Reshapes `(..., dim)` to `(rows, dim)`."""
    return tf.reshape(x, (-1, x.shape[-1]))


def wide(x: Tensor) -> Tensor:
    """Casts to float32, unless the dtype is float64."""
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)

# SPDX-License-Identifier: Apache-2.0
"""Training kernels for TensorFlow on a CPU, with hand-written forward and backward passes.

oneDNN computes the matmuls, because it is the fastest at them. Between the matmuls are chains of
elementwise operations. TensorFlow executes each operation as a pass over memory. Here, each chain
is a small function that XLA compiles to one or two passes, computed in float32. The backward pass
uses tensors that exist anyway and recomputes the others.

Every tensor is an argument of its function, because `tf.custom_gradient` does not differentiate
with respect to captured tensors. Each function is traced once for all models, because TensorFlow
keeps the arguments of `tf.custom_gradient` and the calling graph until the process exits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.hashed_dropout import drop, make_key
from keras_bert.ops.tensorflow_graphs import trace_once


def xla_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function of tensors with XLA, in the first call with each shape."""
    return trace_once(function, spec=open_spec, jit_compile=True)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Traces a function of tensors as a graph to be inlined into the graphs calling it."""
    return trace_once(function, spec=open_spec, inline=True)


def open_spec(tensor: Tensor) -> Any:
    """Returns a spec with unknown lengths, so that batches of all lengths share a trace.

    It has the dtype and rank of the tensor and, up to rank 2, also its width.
    """
    rank = tensor.shape.rank
    # The last dimension of attention tensors may be a length.
    width = tensor.shape[-1:] if rank <= 2 else [None]
    return tf.TensorSpec([None] * (rank - 1) + list(width), tensor.dtype)


def bias_activation(x: Tensor, bias: Tensor, activation: str) -> Tensor:
    """`keras_bert.ops.bias_activation` in training."""
    y = _bias_activation(activation)(_as_rows(x), tf.convert_to_tensor(bias))
    return tf.reshape(y, tf.shape(x))


@functools.cache
def _bias_activation(activation: str) -> Callable[..., Any]:
    @inlined
    @tf.custom_gradient
    def compute(x: Tensor, bias: Tensor) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
            x_gradient = _activation_gradient(activation)(x, bias, upstream)
            return x_gradient, tf.cast(_sum_rows(x_gradient), bias.dtype)

        return _activation(activation)(x, bias), gradient

    return compute


def bias_add(x: Tensor, bias: Tensor) -> Tensor:
    """`keras_bert.ops.bias_add` in training. The bias' gradient is summed in float32."""
    y = _bias_add(_as_rows(x), tf.convert_to_tensor(bias))
    return tf.reshape(y, tf.shape(x))


@inlined
@tf.custom_gradient
def _bias_add(x: Tensor, bias: Tensor) -> tuple[Any, Callable[[Any], Any]]:
    def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
        return upstream, tf.cast(_sum_rows(upstream), bias.dtype)

    return tf.nn.bias_add(x, tf.cast(bias, x.dtype)), gradient


def gated_activation(x: Tensor, activation: str) -> Tensor:
    """`keras_bert.ops.gated_activation` in training."""
    y = _gated_activation(activation)(_as_rows(x))
    return tf.reshape(y, tf.concat([tf.shape(x)[:-1], [x.shape[-1] // 2]], 0))


@functools.cache
def _gated_activation(activation: str) -> Callable[..., Any]:
    @inlined
    @tf.custom_gradient
    def compute(x: Tensor) -> tuple[Any, Callable[[Any], Any]]:
        return _gate(activation)(x), lambda upstream: _gated_gradient(activation)(x, upstream)

    return compute


def rotate(x: Tensor, cos_sin: Tensor) -> Tensor:
    """`keras_bert.ops.rotate` in training. `cos_sin` has no gradient."""
    return tf.ensure_shape(_rotate(x, cos_sin), x.shape)


@inlined
@tf.custom_gradient
def _rotate(x: Tensor, cos_sin: Tensor) -> tuple[Any, Callable[[Any], Any]]:
    def gradient(upstream: Tensor) -> tuple[Any, None]:
        return _rotate_halves(-1.0)(upstream, cos_sin), None

    return _rotate_halves(1.0)(x, cos_sin), gradient


def norm(x: Tensor, gamma: Tensor, beta: Tensor | None, *, kind: str, epsilon: float) -> Tensor:
    """`keras_bert.ops.norm` in training."""
    tensors = {"x": x, "gamma": gamma, "beta": beta}
    return _normalize(tensors, _Normalization(kind, epsilon))


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
) -> Tensor:
    """`keras_bert.ops.bias_dropout_residual_norm` in training."""
    key = make_key(dropout, seed) if dropout else None
    tensors = {"x": x, "residual": residual, "bias": bias, "gamma": gamma, "beta": beta, "key": key}
    return _normalize(tensors, _Normalization(kind, epsilon, dropout))


class _Normalization(NamedTuple):
    """A norm and the dropout before it.

    Attributes:
        kind: `"layer_norm"` or `"rms_norm"`.
        epsilon: Added to the variance or to the mean square.
        dropout: Dropout rate.
    """

    kind: str
    epsilon: float
    dropout: float = 0.0


def _normalize(tensors: dict[str, Tensor | None], options: _Normalization) -> Tensor:
    """Computes the norm. Tensors can be `None`, and a dropout key must come last."""
    shape = tf.shape(tensors["x"])
    present = {
        name: _as_rows(x) if name in ("x", "residual") else tf.convert_to_tensor(x)
        for name, x in tensors.items()
        if x is not None
    }
    return tf.reshape(_normalization(options, tuple(present))(*present.values()), shape)


@functools.cache
def _normalization(options: _Normalization, names: tuple[str, ...]) -> Callable[..., Any]:
    @inlined
    @tf.custom_gradient
    def compute(*tensors: Tensor) -> tuple[Any, Callable[[Any], Any]]:
        y, *statistics = _norm(options, names)(*tensors)

        def gradient(upstream: Tensor) -> list[Any]:
            gradients = _norm_gradient(options, names)(upstream, *statistics, *tensors)
            return [*gradients, *[None] * ("key" in names)]

        return y, gradient

    return compute


def dropout(x: Tensor, rate: float, *, seed: Tensor) -> Tensor:
    """`keras_bert.ops.dropout` in training."""
    if not rate:
        return x
    y = _dropout(rate)(_as_rows(x), make_key(rate, seed))
    return tf.reshape(y, tf.shape(x))


@functools.cache
def _dropout(rate: float) -> Callable[..., Any]:
    @inlined
    @tf.custom_gradient
    def compute(x: Tensor, key: Tensor) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(upstream: Tensor) -> tuple[Any, None]:
            return dropout_function(rate)(upstream, key), None

        return dropout_function(rate)(x, key), gradient

    return compute


@inlined
@tf.custom_gradient
def take_once(
    x: Tensor, indices: Tensor, inverse_indices: Tensor
) -> tuple[Any, Callable[[Any], Any]]:
    """`keras_bert.ops.reference.take_once` in training.

    The gradient is also a gather, while the gradient of `tf.gather` adds up vectors one by one.
    """

    def gradient(upstream: Tensor) -> tuple[Any, None, None]:
        return tf.gather(upstream, inverse_indices), None, None

    return tf.gather(x, indices), gradient


def tokens_at(x: Tensor, positions: Tensor) -> Tensor:
    """`keras_bert.ops.tokens_at` in training. TensorFlow's gradient would take 120 operations."""
    batch, length, _ = tf.unstack(tf.shape(x))
    starts = tf.range(0, batch * length, length)
    return take(_as_rows(x), tf.cast(positions, tf.int32) + tf.expand_dims(starts, 1))


def take(table: Tensor, indices: Tensor) -> Tensor:
    """`keras_bert.ops.take` in training, with a dense gradient for the optimizers."""
    return _look_up(table, indices, few_rows=False)


def take_of_few(table: Tensor, indices: Tensor) -> Tensor:
    """`keras_bert.ops.take_of_few` in training."""
    return _look_up(table, indices, few_rows=True)


def _look_up(table: Tensor, indices: Tensor, few_rows: bool) -> Tensor:
    rows = _take(few_rows)(tf.convert_to_tensor(table), tf.reshape(indices, (-1,)))
    return tf.reshape(rows, tf.concat([tf.shape(indices), table.shape[-1:]], 0))


@functools.cache
def _take(few_rows: bool) -> Callable[..., Any]:
    @inlined
    @tf.custom_gradient
    def compute(table: Tensor, indices: Tensor) -> tuple[Any, Callable[[Any], Any]]:
        def gradient(upstream: Tensor) -> tuple[Any, None]:
            num_rows = tf.shape(table)[0]
            if not few_rows:
                return tf.math.unsorted_segment_sum(upstream, indices, num_rows), None
            one_hot = tf.one_hot(indices, num_rows, dtype=upstream.dtype)
            return tf.matmul(one_hot, upstream, transpose_a=True), None

        return tf.gather(table, indices), gradient

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


def _silu(u: Tensor) -> Tensor:
    return u * tf.sigmoid(u)


def _silu_derivative(u: Tensor) -> Tensor:
    sigmoid = tf.sigmoid(u)
    return sigmoid * (1 + u * (1 - sigmoid))


ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "gelu_erf": (_gelu_erf, _gelu_erf_derivative),
    "gelu_tanh": (_gelu_tanh, _gelu_tanh_derivative),
    "relu": (tf.nn.relu, lambda u: tf.cast(u > 0, u.dtype)),
    "silu": (_silu, _silu_derivative),
    "tanh": (tf.tanh, lambda u: 1 - tf.square(tf.tanh(u))),
}


# === The compiled functions ===


@functools.cache
def _activation(name: str) -> Callable[..., Any]:
    function, _ = ACTIVATIONS[name]

    @xla_function
    def activation(x: Tensor, bias: Tensor) -> Tensor:
        return tf.cast(function(upcast(x) + upcast(bias)), x.dtype)

    return activation


@functools.cache
def _activation_gradient(name: str) -> Callable[..., Any]:
    _, derivative = ACTIVATIONS[name]

    @xla_function
    def activation_gradient(x: Tensor, bias: Tensor, upstream: Tensor) -> Tensor:
        return tf.cast(upcast(upstream) * derivative(upcast(x) + upcast(bias)), x.dtype)

    return activation_gradient


def _sum_rows(x: Tensor) -> Tensor:
    # XLA takes twice as long. It would also recompute `x` if it fused the sum with its computation.
    return tf.raw_ops.BiasAddGrad(out_backprop=upcast(x))


@functools.cache
def _gate(activation: str) -> Callable[..., Any]:
    function, _ = ACTIVATIONS[activation]

    @xla_function
    def gated(x: Tensor) -> Tensor:
        activated, gate = tf.split(upcast(x), 2, axis=-1)
        return tf.cast(function(activated) * gate, x.dtype)

    return gated


@functools.cache
def _gated_gradient(activation: str) -> Callable[..., Any]:
    function, derivative = ACTIVATIONS[activation]

    @xla_function
    def gated_gradient(x: Tensor, upstream: Tensor) -> Tensor:
        activated, gate = tf.split(upcast(x), 2, axis=-1)
        upstream = upcast(upstream)
        halves = (upstream * gate * derivative(activated), upstream * function(activated))
        return tf.cast(tf.concat(halves, axis=-1), x.dtype)

    return gated_gradient


@functools.cache
def _rotate_halves(direction: float) -> Callable[..., Any]:
    @xla_function
    def rotated(x: Tensor, cos_sin: Tensor) -> Tensor:
        first, second = tf.split(upcast(x), 2, axis=-1)
        cos_sin = tf.cast(cos_sin, first.dtype)[:, :, tf.newaxis]
        cosines, sines = cos_sin[..., 0, :], direction * cos_sin[..., 1, :]
        halves = (first * cosines - second * sines, second * cosines + first * sines)
        return tf.cast(tf.concat(halves, axis=-1), x.dtype)

    return rotated


@functools.cache
def _norm(options: _Normalization, names: tuple[str, ...]) -> Callable[..., Any]:
    """Returns a function of the tensors that computes the norm and each token's statistics."""

    @xla_function
    def norm(*values: Tensor) -> tuple[Tensor, ...]:
        tensors = dict(zip(names, values, strict=True))
        total = _total(options, tensors)
        mean = tf.reduce_mean(total, -1, keepdims=True) if options.kind == "layer_norm" else None
        centered = total if mean is None else total - mean
        scale = tf.math.rsqrt(
            tf.reduce_mean(centered * centered, -1, keepdims=True) + options.epsilon
        )
        y = centered * scale * upcast(tensors["gamma"])
        if "beta" in tensors:
            y += upcast(tensors["beta"])
        statistics = (scale,) if mean is None else (scale, mean)
        return tf.cast(y, tensors["x"].dtype), *statistics

    return norm


def _total(options: _Normalization, tensors: dict[str, Tensor]) -> Tensor:
    """Computes the input of the normalization in float32."""
    x = (
        upcast(tensors["x"]) + upcast(tensors["bias"])
        if "bias" in tensors
        else upcast(tensors["x"])
    )
    if options.dropout:
        x = drop(x, options.dropout, tensors["key"])
    return upcast(tensors["residual"]) + x if "residual" in tensors else x


@functools.cache
def _norm_gradient(options: _Normalization, names: tuple[str, ...]) -> Callable[..., Any]:
    """Returns a function that computes the gradients of all tensors except the key."""

    @xla_function
    def norm_gradient(upstream: Tensor, scale: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        mean = others[0] if options.kind == "layer_norm" else None
        tensors = dict(zip(names, others[len(others) - len(names) :], strict=True))
        total, upstream = _total(options, tensors), upcast(upstream)
        normal = (total if mean is None else total - mean) * scale
        along_normal = upstream * upcast(tensors["gamma"])
        along_total = along_normal
        if mean is not None:
            along_total -= tf.reduce_mean(along_normal, -1, keepdims=True)
        along_total -= normal * tf.reduce_mean(along_normal * normal, -1, keepdims=True)
        along_total = scale * along_total
        along_x = (
            drop(along_total, options.dropout, tensors["key"]) if options.dropout else along_total
        )
        gradients = {
            "x": along_x,
            "residual": along_total,
            "bias": tf.reduce_sum(along_x, 0),
            "gamma": tf.reduce_sum(upstream * normal, 0),
            "beta": tf.reduce_sum(upstream, 0),
        }
        return tuple(
            tf.cast(gradients[name], tensors[name].dtype) for name in names if name != "key"
        )

    return norm_gradient


@functools.cache
def dropout_function(rate: float) -> Callable[..., Any]:
    """Returns a function that applies dropout to a tensor of any shape with a key."""

    @xla_function
    def apply_dropout(x: Tensor, key: Tensor) -> Tensor:
        return tf.cast(drop(upcast(x), rate, key), x.dtype)

    return apply_dropout


def _as_rows(x: Tensor) -> Tensor:
    """Reshapes `(..., dim)` to `(rows, dim)`."""
    return tf.reshape(x, (-1, x.shape[-1]))


def upcast(x: Tensor) -> Tensor:
    """Casts to float32 unless the dtype is float64."""
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)

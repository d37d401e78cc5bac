# SPDX-License-Identifier: Apache-2.0
"""Reference implementations of all encoder operations except attention.

If a module in `dispatch.FUSED` has a faster function of the same name for the backend, the
decorator `dispatch.fused` calls that function instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_bert.ops import dispatch, hashed_dropout
from keras_bert.ops.annotations import Tensor

# === Lengths, and lookups by index ===


@dispatch.fused
def length_of(inputs: Tensor) -> Tensor:
    """Returns the length of inputs `(batch, length, ...)`, a tensor if it is not static.

    On TensorFlow, `ops.shape` adds graph operations for every dynamic dimension. Layers only need
    the length.
    """
    return ops.shape(inputs)[1]


@dispatch.fused
def tokens_at(x: Tensor, positions: Tensor, *, training: bool = False) -> Tensor:
    """Gathers the vectors at positions `(batch, slots)`. Returns `(batch, slots, dim)`."""
    return ops.take_along_axis(x, ops.cast(positions, "int32")[:, :, None], axis=1)


@dispatch.fused
def take(table: Tensor, indices: Tensor, *, training: bool = False) -> Tensor:
    """Looks up vectors in a table `(rows, dim)`. Returns `(*indices.shape, dim)`."""
    return ops.take(table, indices, axis=0)


@dispatch.fused
def take_of_few(table: Tensor, indices: Tensor, *, training: bool = False) -> Tensor:
    """Looks up vectors in a small table, with the same result as `take`.

    In training, the gradient is a matmul with one-hot vectors. The gradient of `take` would
    sequentially add up the many upstream gradients for each table row.
    """
    if not training:
        return take(table, indices)
    return ops.matmul(ops.one_hot(indices, table.shape[0], dtype=table.dtype), table)


@dispatch.fused
def take_once(
    x: Tensor, indices: Tensor, inverse_indices: Tensor, *, training: bool = False
) -> Tensor:
    """Gathers vectors from `(rows, dim)`, if at most one result per row gets a gradient.

    For each row, `inverse_indices` has the index of this result. For example, the other results are
    padding. Gathering the results at `inverse_indices` returns `x` in its original order.
    """
    return take(x, indices)


@dispatch.fused
def token_logits(x: Tensor, table: Tensor) -> Tensor:
    """Multiplies vectors by a transposed embedding table. Returns `(batch, slots, vocabulary)`."""
    return ops.matmul(x, ops.transpose(table))


# === Rotary positions ===


def cos_sin_of(positions: Tensor, dim: int, base: float, scale: float = 1.0) -> Tensor:
    """Computes the cosines and sines of the angles `scale * position * base^(-2i / dim)`.

    Here `i` counts from 0 to `dim / 2 - 1`. For positions `(rows, length)`, the result is float32
    `(rows, length, 2, dim / 2)`.

    Reference:
        [RoFormer](https://arxiv.org/abs/2104.09864), section 3.2.2.
    """
    exponents = ops.arange(0, dim, 2, dtype="float32") / dim
    frequencies = ops.power(ops.cast(base, "float32"), -exponents) * scale
    angles = ops.cast(positions, "float32")[..., None] * frequencies
    return ops.stack([ops.cos(angles), ops.sin(angles)], axis=2)


@dispatch.fused
def rotate(x: Tensor, cos_sin: Tensor, *, training: bool = False) -> Tensor:
    """Rotates each pair of elements `(i, i + dim / 2)` by its angle, in float32 or wider.

    `x` is `(batch, length, heads, dim)`. `cos_sin` is the result of `cos_sin_of`, with batch size 1
    or `batch`. It has no gradient.
    """
    dtype = keras.backend.standardize_dtype(x.dtype)
    upcast = ops.cast(x, dtype if dtype == "float64" else "float32")
    cos_sin = ops.cast(cos_sin, upcast.dtype)
    cosines, sines = cos_sin[:, :, None, 0], cos_sin[:, :, None, 1]
    first, second = ops.split(upcast, 2, axis=-1)
    halves = (first * cosines - second * sines, second * cosines + first * sines)
    return ops.cast(ops.concatenate(halves, axis=-1), dtype)


# === Activations and biases ===


def gelu_erf(x: Tensor) -> Tensor:
    """Computes exact GELU, `x * P(Z <= x)`, see [GELU](https://arxiv.org/abs/1606.08415)."""
    if keras.backend.backend() == "torch":
        return ops.gelu(x, approximate=False)
    # Use erf, because Keras emits erfc on the other backends, and ONNX Runtime does not support it.
    half = ops.cast(0.5, x.dtype)
    return half * x * (1 + ops.erf(x * ops.cast(math.sqrt(0.5), x.dtype)))


def gelu_tanh(x: Tensor) -> Tensor:
    """Computes the tanh approximation of GELU, as in the original BERT code."""
    return ops.gelu(x, approximate=True)


_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "relu": ops.relu,
    "silu": ops.silu,
    "tanh": ops.tanh,
}


def activation_function(name: str) -> Callable[[Any], Any]:
    """Returns an activation function by its name in `BertConfig.activation`."""
    return _ACTIVATIONS[name]


@dispatch.fused
def bias_activation(x: Tensor, bias: Tensor, activation: str, *, training: bool = False) -> Tensor:
    """Computes `activation(x + bias)`, `(..., dim)`, in the dtype of `x`."""
    return _ACTIVATIONS[activation](bias_add(x, bias, training=training))


@dispatch.fused
def gated_activation(x: Tensor, activation: str, *, training: bool = False) -> Tensor:
    """Splits the last axis of `x` into halves `a` and `b`, and computes `activation(a) * b`.

    Reference:
        [GLU Variants Improve Transformer](https://arxiv.org/abs/2002.05202), equation 6.
    """
    activated, gate = ops.split(x, 2, axis=-1)
    return ops.multiply(_ACTIVATIONS[activation](activated), gate)


@dispatch.fused
def bias_add(x: Tensor, bias: Tensor, *, training: bool = False) -> Tensor:
    """Computes `x + bias`, `(..., dim)`, in the dtype of `x`."""
    return ops.add(x, ops.cast(bias, x.dtype))


# === Dropout ===


@dispatch.fused
def dropout(x: Tensor, rate: float, *, seed: Tensor, training: bool = False) -> Tensor:
    """Sets elements to 0 during training and scales the rest by `1 / (1 - rate)`.

    `seed` is a `keras.random.SeedGenerator`.

    Reference:
        [Dropout](https://jmlr.org/papers/v15/srivastava14a.html), section 10, scaled in training
        instead of at test time.
    """
    return reference_dropout(x, rate, seed=seed) if training else x


def reference_dropout(x: Tensor, rate: float, *, seed: Tensor) -> Tensor:
    """Applies dropout with operations that every device supports. Returns `x` if `rate` is 0."""
    if not rate:
        return x
    if keras.backend.backend() == "jax":  # keras.random would be compiled at every step.
        return hashed_dropout.drop(x, rate, hashed_dropout.make_key(rate, seed))
    return keras.random.dropout(x, rate, seed=seed)


# === Norms ===


@dispatch.fused
def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor:
    """Computes LayerNorm over the last axis, in float32 or wider. Weights have shape `(dim,)`.

    Reference:
        [Layer Normalization](https://arxiv.org/abs/1607.06450), equation 4.
    """
    return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float) -> Tensor:
    """Computes RMSNorm over the last axis, in float32 or wider.

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
    """Computes `layer_norm` or `rms_norm`, depending on `kind`. `rms_norm` does not use `beta`."""
    if kind == "rms_norm":
        return rms_norm(x, gamma, epsilon)
    return layer_norm(x, gamma, beta, epsilon)


# === Residual connections ===


# An alias for functions with an argument called `dropout`
_apply_dropout = dropout


def bias_dropout_residual(
    x: Tensor,
    residual: Tensor,
    bias: Tensor | None,
    *,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    training: bool = False,
) -> Tensor:
    """Computes `residual + dropout(x + bias)`, the last step in a pre-norm sublayer.

    `x` and `residual` are `(..., dim)`, and the bias is `(dim,)` or `None`.
    """
    if bias is not None:
        x = bias_add(x, bias, training=training)
    x = _apply_dropout(x, dropout, seed=seed, training=training)
    # Do not use Keras' `add`, because it treats an empty tensor as a bias.
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
    """Computes `norm(residual + dropout(x + bias))`, the last step in a post-norm sublayer.

    The arguments are as in `bias_dropout_residual` and `norm`.
    """
    x = bias_dropout_residual(x, residual, bias, dropout=dropout, seed=seed, training=training)
    return norm(x, gamma, beta, kind=kind, epsilon=epsilon, training=training)

# SPDX-License-Identifier: Apache-2.0
"""8-bit integer matmuls with oneDNN, available in TensorFlow's x86 CPU builds.

TensorFlow's graph optimizer replaces the operations of quantized models by `_QuantizedMatMul`. This
operation has no Python function and no gradient.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_bert.ops.annotations import LARGEST, Int8Kernel, Tensor
from keras_bert.ops.context_variables import set_variable
from keras_bert.ops.tensorflow_private import apply_op, get_registered_kernels_for_op

# TensorFlow's names for the activations in `BertConfig.activation`
ACTIVATIONS = {"gelu_erf": "GeluExact", "gelu_tanh": "GeluApproximate", "relu": "Relu"}
_OPERATION = "_QuantizedMatMul"
_kernels_are_constant = contextvars.ContextVar("_kernels_are_constant", default=False)


@functools.cache
def has_kernel() -> bool:
    """Returns whether this TensorFlow build has the operation for CPUs."""
    return bool(get_registered_kernels_for_op(_OPERATION).kernel)


def constant_kernels() -> contextlib.AbstractContextManager[None]:
    """Makes traced graphs keep oneDNN's copy of each kernel from their first call.

    They do not have to reorder the kernel in every call, but they do not see later changes to it.
    """
    return set_variable(_kernels_are_constant, True)


def _in_graph(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Wraps a function in a graph, since the operation cannot be executed eagerly."""
    graph = tf.function(function, autograph=False)

    @functools.wraps(function)
    def call(*arguments: Any) -> Tensor:
        return (graph if tf.executing_eagerly() else function)(*arguments)

    return call


@_in_graph
def product(x: Tensor, weights: Int8Kernel, bias: Tensor | None) -> Tensor:
    """Implements `keras_bert.ops.int8.int8_product`."""
    if bias is None:
        bias = tf.zeros(weights.kernel_range.shape)
    rows = tf.reshape(x, (-1, x.shape[-1]))
    outputs = _product(_rounded(rows, weights), weights, bias, ["Dequantize"], tf.float32)
    outputs = tf.cast(outputs, x.dtype)
    if x.shape.rank == 2:
        return outputs
    return tf.reshape(outputs, tf.concat([tf.shape(x)[:-1], [outputs.shape[-1]]], 0))


@_in_graph
def feed_forward(
    x: Tensor, first: Int8Kernel, bias: Tensor, activation: str, second: Int8Kernel
) -> Tensor:
    """Implements `keras_bert.ops.int8.int8_feed_forward`. Between the matmuls are only integers."""
    largest = LARGEST / second.input_scale[0]
    steps = [ACTIVATIONS[activation], "Requantize"]
    inner = _product(_rounded(x, first), first, bias, steps, tf.qint8, largest)
    no_bias = tf.zeros(second.kernel_range.shape)
    outputs = _product(inner, second, no_bias, ["Dequantize"], tf.float32)
    return tf.cast(outputs, x.dtype)


def _rounded(x: Tensor, weights: Int8Kernel) -> Tensor:
    scaled = tf.round(tf.cast(x, tf.float32) * weights.input_scale)
    clipped = tf.minimum(tf.maximum(scaled, -LARGEST), LARGEST)
    return tf.bitcast(tf.cast(clipped, tf.int8), tf.qint8)


def _product(
    integers: Tensor,
    weights: Int8Kernel,
    bias: Tensor,
    steps: Sequence[str],
    dtype: Any,
    largest_output: Any = 1.0,
) -> Tensor:
    """Multiplies integers, qint8 `(tokens, in)`, adds the bias `(out,)` and applies the steps.

    The steps have oneDNN's names in TensorFlow. The output is float or qint8. In qint8, the integer
    127 represents `largest_output`.
    """
    # The values that the integer 127 represents in inputs, kernel and outputs. Each value is passed
    # twice, as a lower and an upper limit. The operation uses the larger absolute value. It also
    # caches oneDNN primitives by the address of the kernel's limits, so they must be the variable
    # itself.
    ranges = (float(LARGEST), weights.kernel_range, largest_output)
    limits = [tf.cast(largest, tf.float32) for largest in ranges for _ in range(2)]
    kernel = tf.bitcast(tf.convert_to_tensor(weights.kernel), tf.qint8)
    outputs, _ = apply_op(
        _OPERATION,
        name="int8_product",
        device_inputs=[integers, kernel, tf.cast(bias, tf.float32), *limits],
        host_inputs=[],
        Tdevice_outputs=[dtype, *[tf.float32] * (2 if dtype == tf.qint8 else 0)],
        Thost_outputs=[],
        T1=tf.qint8,
        T2=tf.qint8,
        Tbias=tf.float32,
        U=tf.float32,
        Tout=dtype,
        fused_ops=["BiasAdd", *steps],
        is_weight_const=_kernels_are_constant.get(),
        is_bias_const=True,
        transpose_a=False,
        transpose_b=False,
        leakyrelu_alpha=0.2,
        input_quant_mode="SCALED",
        output_quant_mode="SCALED",
    )
    return tf.ensure_shape(outputs[0], (None, weights.kernel_range.shape[0]))

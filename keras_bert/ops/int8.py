# SPDX-License-Identifier: Apache-2.0
"""8-bit integer matmuls with static input scales.

Each input value is rounded with a fixed scale for its channel. So the result for a token does not
depend on the other tokens in the batch or on their number.
"""

from __future__ import annotations

import keras
from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import LARGEST, Int8Kernel, Tensor
from keras_bert.ops.reference import bias_activation


def int8_product(x: Tensor, weights: Int8Kernel, bias: Tensor | None = None) -> Tensor:
    """Multiplies tokens `(..., in)` by an integer kernel. Returns `(..., out)` in the dtype of `x`.

    The bias is added in float32. Inputs are clipped to integers in `[-127, 127]`.

    Reference:
        [SmoothQuant](https://arxiv.org/abs/2211.10438), section 3, for scales per input channel.
    """
    kernels = dispatch.tensorflow_int8()
    if kernels is not None:
        return kernels.product(x, weights, bias)
    integers = ops.round(ops.cast(x, "float32") * weights.input_scale)
    integers, kernel = ops.clip(integers, -LARGEST, LARGEST), weights.kernel
    if dispatch.is_tensorflow_on_cpu():
        kernel = ops.cast(kernel, "float32")  # Eigen multiplies floats twice as fast as integers.
    else:
        integers = ops.cast(integers, "int8")
    product = ops.cast(ops.matmul(integers, kernel), "float32")
    product *= weights.kernel_range / LARGEST
    if bias is not None:
        product += ops.cast(bias, "float32")
    return ops.cast(product, keras.backend.standardize_dtype(x.dtype))


def int8_feed_forward(
    x: Tensor, first: Int8Kernel, bias: Tensor, activation: str, second: Int8Kernel
) -> Tensor:
    """Computes `second(activation(first(x) + bias))` for tokens `(tokens, hidden)`.

    `second` must have the same scale for all of its inputs.
    """
    kernels = dispatch.tensorflow_int8()
    if kernels is not None and activation in kernels.ACTIVATIONS:
        return kernels.feed_forward(x, first, bias, activation, second)
    return int8_product(bias_activation(int8_product(x, first), bias, activation), second)

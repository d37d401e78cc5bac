# SPDX-License-Identifier: Apache-2.0
"""Gradients with respect to inputs, outside of training, on the three backends."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np

from keras_bert.ops.annotations import Tensor


def value_and_gradient(
    function: Callable[[Tensor], Tensor], x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A function's values, and the gradient of their sum with respect to its argument.

    Args:
        function: From a float tensor of the shape of `x` to a float tensor, differentiable.
        x: Float array.

    Returns:
        The values, and the gradient in the shape of `x`; NumPy arrays.
    """
    backend = keras.backend.backend()
    tensor: Tensor = keras.ops.convert_to_tensor(x)
    if backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(tensor)
            values = function(tensor)
        gradient = tape.gradient(values, tensor)
    elif backend == "jax":
        import jax

        @jax.jit
        def both(x: Tensor) -> tuple[Tensor, Tensor]:
            values, pull_back = jax.vjp(function, x)
            return values, pull_back(keras.ops.ones_like(values))[0]

        # Compiled as one, for each operation by itself takes longer
        values, gradient = both(tensor)
    else:
        import torch

        tensor = tensor.detach().requires_grad_(True)
        values = function(tensor)
        (gradient,) = torch.autograd.grad(values.sum(), tensor)
    return keras.ops.convert_to_numpy(values), keras.ops.convert_to_numpy(gradient)

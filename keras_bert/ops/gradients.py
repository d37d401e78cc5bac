# SPDX-License-Identifier: Apache-2.0
"""Gradients with respect to inputs, outside of training, on the three backends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_bert.ops.annotations import Tensor


def gradient_function(
    function: Callable[..., Tensor],
) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """A function that computes a function's values, and the gradient of their sum.

    Args:
        function: From a float tensor, and further arguments, to a float tensor; differentiable
            with respect to the first.

    Returns:
        A function of a float array and of further arguments, nested tensors. It returns the values
        and the gradient in the shape of the first argument, NumPy arrays. On JAX it compiles once
        for each shape.
    """
    compute = _differentiated(function)

    def values_and_gradient(x: np.ndarray, *rest: Any) -> tuple[np.ndarray, np.ndarray]:
        values, gradient = compute(keras.ops.convert_to_tensor(x), *rest)
        return keras.ops.convert_to_numpy(values), keras.ops.convert_to_numpy(gradient)

    return values_and_gradient


def _differentiated(function: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        def with_tape(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(x)
                values = function(x, *rest)
            return values, tape.gradient(values, x)

        return with_tape
    if backend == "jax":
        import jax

        def pulled_back(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
            values, pull_back = jax.vjp(lambda x: function(x, *rest), x)
            return values, pull_back(keras.ops.ones_like(values))[0]

        # Compiled as one, for each operation by itself takes longer
        compiled: Callable[..., tuple[Tensor, Tensor]] = jax.jit(pulled_back)
        return compiled
    import torch

    def by_autograd(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_(True)
        values = function(x, *rest)
        return values, torch.autograd.grad(values.sum(), x)[0]

    return by_autograd

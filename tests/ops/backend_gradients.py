# SPDX-License-Identifier: Apache-2.0
"""Values and gradients of functions on the current backend."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np


def as_tensors(arrays: Sequence[Any], dtype: str) -> list[Any]:
    return [keras.ops.convert_to_tensor(array, dtype=dtype) for array in arrays]


def to_numpy(tensor: Any) -> np.ndarray:
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))


def value_and_gradients(
    function: Callable[..., Any], tensors: Sequence[Any], upstream: Any
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Returns `function(*tensors)`, and the gradients of its product with `upstream`."""
    backend = {
        "tensorflow": _tensorflow,
        "jax": _jax,
        "torch": _torch,
    }[keras.backend.backend()]
    value, gradients = backend(function, tensors, upstream)
    for tensor, gradient in zip(tensors, gradients, strict=True):
        assert gradient.dtype == tensor.dtype
        assert tuple(gradient.shape) == tuple(tensor.shape)
    return to_numpy(value), [to_numpy(gradient) for gradient in gradients]


def _tensorflow(function, tensors, upstream):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
    return value, tape.gradient(value, tensors, upstream)


def _jax(function, tensors, upstream):
    import jax

    value, pull_back = jax.vjp(function, *tensors)
    return value, pull_back(upstream)


def _torch(function, tensors, upstream):
    import torch

    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    value = function(*leaves)
    return value.detach(), torch.autograd.grad(value, leaves, upstream)

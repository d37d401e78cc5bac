# SPDX-License-Identifier: Apache-2.0
"""Gradients with respect to inputs, outside of training, and computation without gradients."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.unpadding import forbid_unpadding


def gradient_function(
    function: Callable[..., Tensor], model: keras.Model
) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """A function that computes a function's values, and the gradient of their sum.

    Args:
        function: From the model, a float tensor and further arguments to a float tensor;
            differentiable with respect to the first tensor.
        model: The model.

    Returns:
        A function of a float array and of further arguments, nested tensors. It returns the values
        and the gradient in the shape of the first argument, NumPy arrays. On JAX it compiles once
        for each shape; the weights may change between calls. It keeps no model alive. It raises
        `ValueError` if the model has static int8 products, which have no gradient.
    """
    reference = weakref.ref(model)
    compute = _with_gradient(function, reference)

    def values_and_gradient(x: np.ndarray, *rest: Any) -> tuple[np.ndarray, np.ndarray]:
        for layer in _alive(reference)._flatten_layers():
            if getattr(layer, "input_scale", None) is not None:
                raise ValueError(
                    f"{layer.path} has static int8 scales, and rounding has no gradient. Pass the "
                    "model as it was before quantizing, or use a method without gradients, such as "
                    "occlusion."
                )
        # Rows of vectors and of gradients are padded.
        with forbid_unpadding():
            values, gradient = compute(keras.ops.convert_to_tensor(x), *rest)
        return keras.ops.convert_to_numpy(values), keras.ops.convert_to_numpy(gradient)

    return values_and_gradient


def value_function(
    function: Callable[..., Tensor], model: keras.Model
) -> Callable[..., np.ndarray]:
    """A function that computes a function's values, with the arguments of `gradient_function`."""
    reference = weakref.ref(model)
    if keras.backend.backend() == "jax":
        compute = _compiled(function, reference)
    else:

        def compute(x: Tensor, *rest: Any) -> Tensor:
            return function(_alive(reference), x, *rest)

    def values(x: np.ndarray, *rest: Any) -> np.ndarray:
        with forbid_unpadding(), without_gradients():
            return np.asarray(
                keras.ops.convert_to_numpy(compute(keras.ops.convert_to_tensor(x), *rest))
            )

    return values


def without_gradients() -> contextlib.AbstractContextManager[object]:
    """Keeps PyTorch from storing intermediate results for a backward pass.

    The graphs of the other backends have none for outputs of `stop_gradient`.
    """
    scope: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if keras.backend.backend() == "torch":
        import torch

        scope = torch.no_grad()
    return scope


def _with_gradient(
    function: Callable[..., Tensor], model: weakref.ref[keras.Model]
) -> Callable[..., tuple[Tensor, Tensor]]:
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        def with_tape(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(x)
                values = function(_alive(model), x, *rest)
            return values, tape.gradient(values, x)

        return with_tape
    if backend == "jax":
        import jax

        def pulled_back(alive: keras.Model, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
            values, pull_back = jax.vjp(lambda x: function(alive, x, *rest), x)
            return values, pull_back(keras.ops.ones_like(values))[0]

        return _compiled(pulled_back, model)
    import torch

    def by_autograd(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        x = x.detach().requires_grad_(True)
        values = function(_alive(model), x, *rest)
        return values, torch.autograd.grad(values.sum(), x)[0]

    return by_autograd


def _compiled(function: Callable[..., Any], model: weakref.ref[keras.Model]) -> Callable[..., Any]:
    """Returns a function compiled by JAX as one, since each operation by itself takes longer."""
    import jax

    def stateless(weights: list[Tensor], *arguments: Any) -> Any:
        alive = _alive(model)
        mapping = list(zip(alive.variables, weights, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            return function(alive, *arguments)

    compiled = jax.jit(stateless)
    return lambda *arguments: compiled(
        [variable.value for variable in _alive(model).variables], *arguments
    )


def _alive(model: weakref.ref[keras.Model]) -> keras.Model:
    alive = model()
    assert alive is not None  # Whoever calls the function has it
    return alive

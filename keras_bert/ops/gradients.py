# SPDX-License-Identifier: Apache-2.0
"""Computes input gradients outside of training, and values without gradients."""

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
    """Returns a function that computes another function's values and the gradient of their sum.

    Args:
        function: Function that accepts the model, a float tensor and further arguments, and returns
            a float tensor. It must be differentiable with respect to the first tensor.
        model: The first argument of `function`.

    Returns:
        A function that accepts a float array and further arguments, in any nesting. It returns the
        values and the gradient, in the shape of the first argument, as NumPy arrays. On JAX, it
        compiles once per shape, and the weights may change between calls. It does not keep the
        model alive. It raises `ValueError` if the model has static int8 scales, because rounding
        has no gradient.
    """
    reference = weakref.ref(model)
    compute = _with_gradient(function, reference)

    def values_and_gradient(x: np.ndarray, *rest: Any) -> tuple[np.ndarray, np.ndarray]:
        for layer in _alive(reference)._flatten_layers():
            if getattr(layer, "input_scale", None) is not None:
                raise ValueError(
                    "The model cannot have static int8 scales, because rounding has no gradient. "
                    f"Received: {layer.path} with int8 scales. Pass the model before quantization, "
                    "or use a method without gradients, such as occlusion."
                )
        # The inputs and gradients have padding, so the computation must have it as well.
        with forbid_unpadding():
            values, gradient = compute(keras.ops.convert_to_tensor(x), *rest)
        return keras.ops.convert_to_numpy(values), keras.ops.convert_to_numpy(gradient)

    return values_and_gradient


def value_function(
    function: Callable[..., Tensor], model: keras.Model
) -> Callable[..., np.ndarray]:
    """Returns a function that computes values. The arguments are as in `gradient_function`."""
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

    The other backends do not store any for outputs of `stop_gradient`.
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
    """Compiles a whole function with JAX. This is faster than running single operations."""
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
    assert alive is not None  # The caller holds a reference to the model.
    return alive

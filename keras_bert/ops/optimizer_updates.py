# SPDX-License-Identifier: Apache-2.0
"""Applies the rules in `optimizer_rules` to variables, optimized for each backend.

JAX uses the reference implementation. TensorFlow on a CPU compiles it to one pass per variable.
PyTorch uses its fused AdamW when possible.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import keras

from keras_bert.ops.annotations import Shape, Tensor
from keras_bert.ops.optimizer_rules import (
    Update,
    reference_global_norm,
    reference_update_variables,
    upcast,
)


def not_compiled(function: Callable[..., None]) -> Callable[..., None]:
    """Excludes a function from `torch.compile`, because the update kernels are already fused."""
    if keras.backend.backend() != "torch":
        return function
    import torch

    uncompiled: Callable[..., None] = torch.compiler.disable(function)
    return uncompiled


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Computes the Euclidean norm of all gradients together, a scalar in float32 or wider."""
    gradients = [upcast(gradient) for gradient in gradients]
    kernels = _backend_kernels()
    return kernels.global_norm(gradients) if kernels else reference_global_norm(gradients)


def sharded_layout(layout: Any, shape: Shape) -> Any:
    """Also shards a layout over the data-parallel devices, along the first axis that fits.

    `layout` is a `keras.distribution.TensorLayout` for variables of this shape. It is returned
    unchanged if no axis is divisible by the number of devices.
    """
    distribution = keras.distribution.distribution()
    mesh = layout.device_mesh
    if distribution is None or distribution.batch_dim_name in layout.axes:
        return layout
    num_devices = mesh.shape[mesh.axis_names.index(distribution.batch_dim_name)]
    axes = list(layout.axes)
    for axis, size in enumerate(shape):
        if axes[axis] is None and size % num_devices == 0:
            axes[axis] = distribution.batch_dim_name
            return keras.distribution.TensorLayout(axes, mesh)
    return layout


def dense_gradient(gradient: Tensor) -> Tensor:
    """Converts a sparse gradient to a dense tensor of the variable's shape, summing repeated rows.

    Dense gradients are returned unchanged.
    """
    kernels = _tensorflow_kernels()
    return gradient if kernels is None else kernels.dense_gradient(gradient)


def num_replicas() -> int:
    """Returns the number of `tf.distribute` replicas, or 1 without a strategy."""
    kernels = _tensorflow_kernels()
    return 1 if kernels is None else kernels.num_replicas()


def sum_over_replicas(gradients: Sequence[Tensor]) -> Sequence[Any]:
    """Sums gradients over `tf.distribute` replicas. Returns `gradients` without a strategy."""
    kernels = _tensorflow_kernels()
    return gradients if kernels is None else kernels.sum_over_replicas(gradients)


def once_for_all_replicas(function: Callable[[], None]) -> None:
    """Calls a function once for all `tf.distribute` replicas. Each replica must call this.

    Only for TensorFlow.
    """
    kernels: Any = _tensorflow_kernels()
    kernels.once_for_all_replicas(function)


def accumulate(accumulators: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Adds each gradient to its accumulator, a Keras variable."""
    kernels = _backend_kernels()
    if kernels:
        kernels.accumulate(accumulators, gradients)
        return
    for accumulator, gradient in zip(accumulators, gradients, strict=True):
        accumulator.assign_add(gradient)


def update_variables(updates: Sequence[Update]) -> None:
    """Applies updates to the weights and their moments.

    On PyTorch, this may scale a variable's `.grad` in place, as `torch.nn.utils.clip_grad_norm_`
    does.
    """
    kernels = _backend_kernels()
    if kernels:
        kernels.update_variables(updates)
    else:
        reference_update_variables(updates)


def outside_of_training_steps(optimizer: Any, function: Callable[[], None]) -> None:
    """Calls a function that changes weights in each replica, as a training step in `fit` would."""
    kernels = _backend_kernels()
    if kernels:
        kernels.outside_of_training_steps(optimizer, function)
    else:
        function()


def _tensorflow_kernels() -> ModuleType | None:
    # PyTorch cannot trace the cache of `_backend_kernels`.
    return _backend_kernels() if keras.backend.backend() == "tensorflow" else None


@functools.cache
def _backend_kernels() -> ModuleType | None:
    backend = keras.backend.backend()
    if backend == "jax":
        return None
    return importlib.import_module(f"keras_bert.ops.optimizer_updates_{backend}")

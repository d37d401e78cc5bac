# SPDX-License-Identifier: Apache-2.0
"""Each backend's fastest way to apply the rules of `optimizer_rules` to variables.

On JAX the rules are executed as they stand, on TensorFlow without an accelerator in one compiled
pass per variable, on PyTorch by its own fused AdamW where it fits.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import keras

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.optimizer_rules import (
    Update,
    portable_global_norm,
    portable_update_variables,
    widened,
)


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The Euclidean norm of all gradients as one vector.

    Args:
        gradients: Dense tensors of any shapes, at least one.

    Returns:
        A scalar in float32 or wider.
    """
    wide = [widened(gradient) for gradient in gradients]
    kernels = _backend_kernels()
    return kernels.global_norm(wide) if kernels else portable_global_norm(wide)


def dense_gradient(gradient: Tensor) -> Tensor:
    """A gradient as a tensor of its variable's shape; repeated rows of a sparse one are added."""
    if keras.backend.backend() != "tensorflow":
        return gradient
    from keras_bert.ops import optimizer_updates_tensorflow

    return optimizer_updates_tensorflow.dense_gradient(gradient)


def num_replicas() -> int:
    """The number of replicas of `tf.distribute`."""
    if keras.backend.backend() != "tensorflow":
        return 1
    from keras_bert.ops import optimizer_updates_tensorflow

    return optimizer_updates_tensorflow.num_replicas()


def sum_over_replicas(gradients: Sequence[Tensor]) -> Sequence[Any]:
    """The gradients of the whole batch, where `tf.distribute` has split it; else `gradients`."""
    if keras.backend.backend() != "tensorflow":
        return gradients
    from keras_bert.ops import optimizer_updates_tensorflow

    return optimizer_updates_tensorflow.sum_over_replicas(gradients)


def accumulate(accumulators: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Adds each gradient to its Keras variable."""
    kernels = _backend_kernels()
    if kernels:
        kernels.accumulate(accumulators, gradients)
        return
    for accumulator, gradient in zip(accumulators, gradients, strict=True):
        accumulator.assign_add(gradient)


def update_variables(updates: Sequence[Update]) -> None:
    """Assigns the new values of every weight and its moments by its rule.

    On PyTorch, a gradient that is its variable's own `.grad` may be left scaled, as
    `torch.nn.utils.clip_grad_norm_` leaves it.
    """
    kernels = _backend_kernels()
    if kernels:
        kernels.update_variables(updates)
    else:
        portable_update_variables(updates)


@functools.cache
def _backend_kernels() -> ModuleType | None:
    if keras.backend.backend() == "tensorflow":
        from keras_bert.ops import optimizer_updates_tensorflow

        return optimizer_updates_tensorflow
    if keras.backend.backend() == "torch":
        from keras_bert.ops import optimizer_updates_torch

        return optimizer_updates_torch
    return None

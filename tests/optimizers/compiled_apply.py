# SPDX-License-Identifier: Apache-2.0
"""`optimizer.apply` as `fit` runs it: in a graph on TensorFlow, stateless and compiled on JAX.

On PyTorch, a compiled function calls it, as with `jit_compile=True`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras


def compiled_apply(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]
) -> Callable[[Sequence[Any]], None]:
    """Returns a function of the gradients that updates the variables of a built optimizer."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(lambda gradients: optimizer.apply(gradients, variables))
    if keras.backend.backend() == "jax":
        return _stateless_apply(optimizer, variables)
    import torch

    # Only the tracing can fail, so this backend runs the traced code in Python.
    return torch.compile(lambda gradients: optimizer.apply(gradients, variables), backend="eager")


def _stateless_apply(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]
) -> Callable[[Sequence[Any]], None]:
    import jax

    compiled = jax.jit(optimizer.stateless_apply)

    def apply(gradients: Sequence[Any]) -> None:
        state = [variable.value for variable in optimizer.variables]
        weights = [variable.value for variable in variables]
        weights, state = compiled(state, list(gradients), weights)
        for variable, value in zip(
            [*variables, *optimizer.variables], [*weights, *state], strict=True
        ):
            variable.assign(value)

    return apply

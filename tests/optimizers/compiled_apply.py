# SPDX-License-Identifier: Apache-2.0
"""`optimizer.apply` as `fit` runs it: in a graph on TensorFlow, stateless and compiled on JAX.

On PyTorch it is called by a function that is compiled, as with `jit_compile=True`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras


def compiled_apply(
    optimizer: keras.optimizers.Optimizer, variables: Sequence[keras.Variable]
) -> Callable[[Sequence[Any]], None]:
    """A function of the gradients that updates the variables; the optimizer must be built."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(lambda gradients: optimizer.apply(gradients, variables))
    if keras.backend.backend() == "jax":
        return _stateless_apply(optimizer, variables)
    import torch

    # This backend is what Python runs: it is the tracing that can fail.
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

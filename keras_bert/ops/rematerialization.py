# SPDX-License-Identifier: Apache-2.0
"""Recomputes intermediate results in the backward pass to save memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.seeds import SeedGenerator


def rematerialize(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    seed_generators: Sequence[SeedGenerator] = (),
) -> Tensor:
    """Computes `function(*inputs)` in training, and again in the backward pass.

    Only the inputs are stored in between.

    Args:
        function: Function of tensors. It may read variables and other tensors, but only inputs and
            variables get gradients.
        inputs: Float tensors.
        seed_generators: Seed generators that the function calls, at most once each. Their seeds are
            sampled here, so that both passes drop the same elements.

    Returns:
        `function(*inputs)`.

    Reference:
        [Training Deep Nets with Sublinear Memory Cost](https://arxiv.org/abs/1604.06174),
        section 3.
    """
    seeds = [generator.next() for generator in seed_generators]

    def replay_seeds(*inputs: Tensor) -> Tensor:
        with contextlib.ExitStack() as stack:
            for generator, seed in zip(seed_generators, seeds, strict=True):
                stack.enter_context(generator.replay_seed(seed))
            return function(*inputs)

    if dispatch.is_jax_on_cpu():
        return _rematerialize_on_jax_cpu(replay_seeds, inputs)
    return keras.remat(replay_seeds)(*inputs)


def _rematerialize_on_jax_cpu(function: Callable[..., Any], inputs: Sequence[Tensor]) -> Any:
    """Computes `function(*inputs)`, and again in the backward pass once the gradient is available.

    XLA's CPU compiler undoes `jax.checkpoint`. It removes the barriers between the two computations
    and reuses the first results. It does not do this inside conditional branches or loop bodies.
    """
    import jax
    import jax.numpy as jnp

    pure_function, constants = jax.closure_convert(function, *inputs)

    @jax.custom_vjp
    def compute(*tensors: Any) -> Any:
        return pure_function(*tensors)

    def forward(*tensors: Any) -> Any:
        return pure_function(*tensors), tensors

    def backward(tensors: Any, upstream: Any) -> Any:
        def gradients() -> Any:
            return jax.vjp(pure_function, *tensors)[1](upstream)

        def zeros() -> Any:
            return jax.tree.map(jnp.zeros_like, tensors)

        # This condition always holds, even for NaN, but the compiler cannot know this.
        (first, *_) = jax.tree.leaves(upstream)
        always = jnp.logical_not(jnp.tanh(first.ravel()[0].astype("float32")) > 2)
        return jax.lax.cond(always, gradients, zeros)

    compute.defvjp(forward, backward)
    return compute(*inputs, *constants)

# SPDX-License-Identifier: Apache-2.0
"""Rematerialization: the backward pass computes intermediate results again, so none is stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

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

    Only the inputs are stored until then.

    Args:
        function: A function of tensors. It may read variables, which have gradients, and other
            tensors that need none.
        inputs: Float tensors.
        seed_generators: The seed generators that the function draws from, at most once each. Their
            seeds are drawn here, so that both passes drop the same elements.

    Returns:
        `function(*inputs)`.

    Reference:
        [Training Deep Nets with Sublinear Memory Cost](https://arxiv.org/abs/1604.06174),
        section 3.
    """
    seeds = [generator.next() for generator in seed_generators]

    def with_drawn_seeds(*inputs: Tensor) -> Tensor:
        with contextlib.ExitStack() as stack:
            for generator, seed in zip(seed_generators, seeds, strict=True):
                stack.enter_context(generator.returning(seed))
            return function(*inputs)

    if dispatch.is_jax_on_cpu():
        from keras_bert.ops import jax_rematerialization

        return jax_rematerialization.rematerialize(with_drawn_seeds, inputs)
    return keras.remat(with_drawn_seeds)(*inputs)

# SPDX-License-Identifier: Apache-2.0
"""Computes a batch of rows in parts, to save memory or padding."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.rematerialization import rematerialize
from keras_bert.ops.seeds import SeedGenerator


def map_mini_batches(
    function: Callable[[dict[str, Tensor]], Tensor],
    inputs: Mapping[str, Tensor],
    size: int,
    seed_generators: Sequence[SeedGenerator] = (),
    *,
    training: bool = True,
) -> Tensor:
    """Computes `function(inputs)` for a few rows at a time, and again in the backward pass.

    Only the intermediate results of one mini-batch are in memory, so a contrastive loss can compare
    thousands of rows (GradCache). The gradients are the same as of one large batch.

    Args:
        function: Function of a dict of tensors `(rows, length)`. It returns a tensor `(rows, ...)`.
            It may read variables.
        inputs: A dict of integer or bool tensors `(rows, length)`. On PyTorch, mini-batches are cut
            to their longest row of `padding_mask`.
        size: Number of rows in a mini-batch.
        seed_generators: See `rematerialize`.
        training: Whether there is a backward pass.

    Returns:
        `function(inputs)`.

    Raises:
        ValueError: On TensorFlow, which would unroll all mini-batches.

    Reference:
        [Scaling Deep Contrastive Learning Batch Size under Memory Limited
        Setup](https://arxiv.org/abs/2101.06983), section 3.
    """
    if keras.backend.backend() == "tensorflow":
        raise ValueError(
            "mini_batch_size must be None on TensorFlow. Received: "
            f"{size}. Use JAX or PyTorch, or a smaller batch_size."
        )
    if keras.backend.backend() == "jax":
        return _map_mini_batches_on_jax(function, inputs, size, seed_generators)
    outputs = []
    for start in range(0, len(inputs["token_ids"]), size):
        part = cut_padding({name: x[start : start + size] for name, x in inputs.items()})
        if not training:
            outputs.append(function(part))
            continue

        def compute(_: Tensor, part: dict[str, Tensor] = part) -> Tensor:
            return function(part)

        outputs.append(rematerialize(compute, [keras.ops.zeros(())], seed_generators))
    return keras.ops.concatenate(outputs)


def map_similar_lengths(
    function: Callable[[dict[str, Tensor]], Tensor], inputs: Mapping[str, Tensor]
) -> Tensor:
    """Computes `function(inputs)` on PyTorch for rows of similar lengths at a time.

    A batch of short queries and long documents has little padding then. The backward pass is as
    usual.

    Args:
        function: See `map_mini_batches`.
        inputs: See `map_mini_batches`.

    Returns:
        `function(inputs)`.
    """
    mask = inputs.get("padding_mask")
    if mask is None:
        return function(dict(inputs))
    positions = keras.ops.arange(1, mask.shape[1] + 1)
    lengths = ((mask != 0) * positions).amax(dim=1).clamp(min=1)
    order = lengths.argsort(stable=True)
    sizes = similar_lengths(lengths[order].tolist())
    if len(sizes) == 1:
        return function(_cut(inputs, int(lengths.max())))
    outputs, start = [], 0
    for size in sizes:
        rows = order[start : start + size]
        part = {name: x[rows] for name, x in inputs.items()}
        outputs.append(function(_cut(part, int(lengths[rows[-1]]))))
        start += size
    return keras.ops.concatenate(outputs)[order.argsort()]


def similar_lengths(lengths: Sequence[int]) -> list[int]:
    """Divides ascending lengths into groups, and returns the size of each group.

    A group's lengths differ by at most a quarter and 8 tokens.

    Example:

    >>> similar_lengths([5, 6, 14, 60, 80, 83, 84])
    [3, 3, 1]
    """
    sizes, longest = list[int](), -1
    for length in lengths:
        if length > longest:
            sizes.append(0)
            longest = length + length // 4 + 8
        sizes[-1] += 1
    return sizes


def cut_padding(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Cuts a batch on PyTorch, `(rows, length)`, after the last token of its longest row."""
    mask = inputs.get("padding_mask")
    if mask is None:
        return dict(inputs)
    (used,) = (mask != 0).any(dim=0).nonzero(as_tuple=True)
    return _cut(inputs, int(used.max()) + 1 if len(used) else 1)


def _cut(inputs: Mapping[str, Tensor], length: int) -> dict[str, Tensor]:
    return {name: x[:, :length] for name, x in inputs.items()}


def _map_mini_batches_on_jax(
    function: Callable[[dict[str, Tensor]], Tensor],
    inputs: Mapping[str, Tensor],
    size: int,
    seed_generators: Sequence[SeedGenerator],
) -> Any:
    """Computes mini-batches in a loop, so that they are compiled once."""
    import jax
    import jax.numpy as jnp

    num_rows = len(inputs["token_ids"])
    count = -(-num_rows // size)
    # The last mini-batch is filled with the first rows.
    index = jnp.arange(count * size) % num_rows
    parts = {name: x[index].reshape(count, size, *x.shape[1:]) for name, x in inputs.items()}
    # Seeds are sampled outside of the loop, so that both passes drop the same elements.
    seeds = [jnp.stack([generator.next() for _ in range(count)]) for generator in seed_generators]

    def compute(part: dict[str, Any], part_seeds: list[Any]) -> Any:
        with contextlib.ExitStack() as stack:
            for generator, seed in zip(seed_generators, part_seeds, strict=True):
                stack.enter_context(generator.replay_seed(seed))
            return function(part)

    compute = jax.checkpoint(compute, prevent_cse=False)
    _, outputs = jax.lax.scan(lambda _, part: (None, compute(*part)), None, (parts, seeds))
    return outputs.reshape(count * size, *outputs.shape[2:])[:num_rows]

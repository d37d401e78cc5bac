# SPDX-License-Identifier: Apache-2.0
"""Tokens sampled from a generator, which replace masked ones."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor

# In evaluation, the same slot gets the same token every time.
_EVALUATION_SEED = 0
# In evaluation, the noise of a slot begins at one of so many offsets of a fixed row of numbers.
_NUM_OFFSETS = 1 << 17


@keras.saving.register_keras_serializable(package="keras_bert")
class SampledTokens(keras.layers.Layer):
    """A token for each slot, drawn from the softmax of its logits.

    It is the largest of the logits plus Gumbel noise. No gradient passes. In training the noise
    differs in each step. At inference it is a function of the slot's position and of the tokens
    up to it, so that an evaluation repeats, whatever the batches and their padding.

    Args:
        seed: The seed of the noise in training; `None` takes a random one.

    Call arguments:
        logits: `(batch, slots, vocabulary)`.
        token_ids: int `(batch, length)`, the rows.
        mask_positions: int `(batch, slots)`, the positions of the slots.
        training: Whether the noise changes.

    Output shape:
        int32 `(batch, slots)`.

    Reference:
        [ELECTRA](https://arxiv.org/abs/2003.10555), section 2;
        [Gumbel-max](https://arxiv.org/abs/1411.0030), section 2.
    """

    def __init__(self, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def call(
        self, logits: Tensor, token_ids: Tensor, mask_positions: Tensor, training: bool = False
    ) -> Tensor:
        logits = ops.stop_gradient(logits)
        if training:
            uniform = keras.random.uniform(
                ops.shape(logits), dtype="float32", seed=self.seed_generator
            )
        else:
            uniform = _fixed_uniform(_offsets(token_ids, mask_positions), logits.shape[-1])
        # A uniform number of 0 gives -inf, which is never the largest.
        noisy = logits - ops.log(-ops.log(uniform))
        return ops.cast(ops.argmax(noisy, axis=-1), "int32")

    def compute_output_spec(
        self, logits: Tensor, token_ids: Tensor, mask_positions: Tensor, training: bool = False
    ) -> keras.KerasTensor:
        return keras.KerasTensor(logits.shape[:-1], dtype="int32")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "seed": self.seed}


@keras.saving.register_keras_serializable(package="keras_bert")
class PlacedTokens(keras.layers.Layer):
    """Puts tokens into rows.

    Call arguments:
        token_ids: int `(batch, length)`.
        mask_positions: int `(batch, slots)`: the positions of the tokens. A slot at position 0,
            that of `[CLS]`, is unused and changes nothing.
        placed_ids: int `(batch, slots)`, the tokens.

    Output shape:
        int32 `(batch, length)`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "int32"})

    def call(self, token_ids: Tensor, mask_positions: Tensor, placed_ids: Tensor) -> Tensor:
        token_ids = ops.cast(token_ids, "int32")
        placed = spread_slots(placed_ids, mask_positions, ops.shape(token_ids)[1], empty=-1)
        return ops.where(placed < 0, token_ids, placed)

    def compute_output_spec(
        self, token_ids: Tensor, mask_positions: Tensor, placed_ids: Tensor
    ) -> keras.KerasTensor:
        return keras.KerasTensor(token_ids.shape, dtype="int32")


def _offsets(token_ids: Tensor, mask_positions: Tensor) -> Tensor:
    """A hash of the tokens up to each slot, int32 `(batch, slots)`, below `_NUM_OFFSETS`."""
    ids = ops.cast(token_ids, "int32")
    # Signed overflow wraps around on every backend, which is what a hash is made of.
    factors = (2 * ops.arange(ops.shape(ids)[1], dtype="int32") + 1) * 0x2545F491
    sums = ops.cumsum((ids + 1) * factors, axis=1, dtype="int32")
    at_slots = ops.take_along_axis(sums, ops.cast(mask_positions, "int32"), axis=1)
    # The high bits depend on all bits of the ids.
    mixed = ops.right_shift(at_slots, ops.convert_to_tensor(12, "int32"))
    return ops.bitwise_and(mixed, _NUM_OFFSETS - 1)


def _fixed_uniform(offsets: Tensor, vocabulary_size: int) -> Tensor:
    """The same numbers for the same offset, float32 `(batch, slots, vocabulary)`."""
    numbers = keras.random.uniform(
        (_NUM_OFFSETS + vocabulary_size,), dtype="float32", seed=_EVALUATION_SEED
    )
    # (batch, slots, 1) + (vocabulary,) -> (batch, slots, vocabulary)
    indices = offsets[..., None] + ops.arange(vocabulary_size, dtype="int32")
    return ops.take(numbers, indices, axis=0)


def spread_slots(values: Tensor, mask_positions: Tensor, length: Tensor, *, empty: float) -> Tensor:
    """The values of slots at their positions in rows.

    Args:
        values: `(batch, slots)`, none below `empty`.
        mask_positions: int `(batch, slots)`; slots at position 0 are left out.
        length: Tokens in a row.
        empty: The value at positions without a slot.

    Returns:
        `(batch, length)` in the dtype of `values`.
    """
    positions = ops.cast(mask_positions, "int32")[:, :, None]
    all_positions = ops.arange(length, dtype="int32")
    # (batch, slots, length)
    is_there = ops.logical_and(ops.equal(positions, all_positions), all_positions > 0)
    nothing = ops.cast(empty, values.dtype)
    return ops.max(ops.where(is_there, values[:, :, None], nothing), axis=1)

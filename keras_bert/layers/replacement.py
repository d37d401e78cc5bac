# SPDX-License-Identifier: Apache-2.0
"""Replaces masked tokens with tokens sampled from a generator, as in ELECTRA."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.layers.base import Layer
from keras_bert.ops import SeedGenerator
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.reference import length_of
from keras_bert.ops.seeds import uniform_like

# In evaluation, a masked position always gets the same token.
_EVALUATION_SEED = 0
# In evaluation, its noise is a slice from a fixed array, at one of this many offsets.
_NUM_OFFSETS = 1 << 17


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenSampler(Layer):
    """Samples a token for each masked position from the softmax of its logits.

    The sample is the argmax of the logits plus Gumbel noise, without gradients. In training, the
    noise differs in each step. In inference, the noise only depends on the masked position and the
    tokens up to it. So evaluation is reproducible, whatever the batches and their padding are.

    Args:
        seed: Integer seed of the noise in training. `None` for a random seed.

    Call arguments:
        logits: Float `(batch, slots, vocabulary)`.
        token_ids: int `(batch, length)`, the masked input.
        mask_positions: int `(batch, slots)`, the masked positions.
        training: Whether the noise differs in each step.

    Output shape:
        int32 `(batch, slots)`.

    Reference:
        [ELECTRA](https://arxiv.org/abs/2003.10555), section 2;
        [Gumbel-max](https://arxiv.org/abs/1411.0030), section 2.
    """

    def __init__(self, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "float32"})
        self.seed = seed
        self.seed_generator = SeedGenerator(checks.plain(seed))

    def call(
        self, logits: Tensor, token_ids: Tensor, mask_positions: Tensor, training: bool = False
    ) -> Tensor:
        logits = ops.stop_gradient(logits)
        if training:
            uniform = uniform_like(logits, self.seed_generator)
        else:
            uniform = _fixed_uniform(_offsets(token_ids, mask_positions), logits.shape[-1])
        # A uniform number of 0 gives -inf, so it is never the maximum.
        noisy = logits - ops.log(-ops.log(uniform))
        return ops.cast(ops.argmax(noisy, axis=-1), "int32")

    def compute_output_spec(
        self, logits: Tensor, token_ids: Tensor, mask_positions: Tensor, training: bool = False
    ) -> keras.KerasTensor:
        return keras.KerasTensor(logits.shape[:-1], dtype="int32")


@keras.saving.register_keras_serializable(package="keras_bert")
class TokenReplacer(keras.layers.Layer):
    """Replaces the tokens at given positions.

    Call arguments:
        token_ids: int `(batch, length)`.
        mask_positions: int `(batch, slots)`, the positions to replace. Entries of 0, the position
            of `[CLS]`, are unused and ignored.
        new_ids: int `(batch, slots)`, the new tokens.

    Output shape:
        int32 `(batch, length)`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "dtype": "int32"})

    def call(self, token_ids: Tensor, mask_positions: Tensor, new_ids: Tensor) -> Tensor:
        token_ids = ops.cast(token_ids, "int32")
        replacements = spread_slots(new_ids, mask_positions, length_of(token_ids), empty=-1)
        return ops.where(replacements < 0, token_ids, replacements)

    def compute_output_spec(
        self, token_ids: Tensor, mask_positions: Tensor, new_ids: Tensor
    ) -> keras.KerasTensor:
        return keras.KerasTensor(token_ids.shape, dtype="int32")


def _offsets(token_ids: Tensor, mask_positions: Tensor) -> Tensor:
    """Hashes the tokens up to each position to int32 `(batch, slots)`, below `_NUM_OFFSETS`."""
    ids = ops.cast(token_ids, "int32")
    # Signed overflow wraps around on every backend. This is intended in a hash.
    factors = (2 * ops.arange(length_of(ids), dtype="int32") + 1) * 0x2545F491
    sums = ops.cumsum((ids + 1) * factors, axis=1, dtype="int32")
    at_slots = ops.take_along_axis(sums, ops.cast(mask_positions, "int32"), axis=1)
    # The high bits depend on all bits of the IDs.
    mixed = ops.right_shift(at_slots, ops.convert_to_tensor(12, "int32"))
    return ops.bitwise_and(mixed, _NUM_OFFSETS - 1)


def _fixed_uniform(offsets: Tensor, vocabulary_size: int) -> Tensor:
    """Slices a fixed random array at each offset, float32 `(batch, slots, vocabulary)`."""
    numbers = keras.random.uniform(
        (_NUM_OFFSETS + vocabulary_size,), dtype="float32", seed=_EVALUATION_SEED
    )
    # (batch, slots, 1) + (vocabulary,) -> (batch, slots, vocabulary)
    indices = offsets[..., None] + ops.arange(vocabulary_size, dtype="int32")
    return ops.take(numbers, indices, axis=0)


def spread_slots(values: Tensor, mask_positions: Tensor, length: Tensor, *, empty: float) -> Tensor:
    """Scatters values to their positions in each example.

    Args:
        values: Tensor of shape `(batch, slots)`, with no value below `empty`.
        mask_positions: int `(batch, slots)`. Entries of 0 are unused and ignored.
        length: Sequence length.
        empty: Value at all other positions.

    Returns:
        A tensor of shape `(batch, length)` in the dtype of `values`.
    """
    positions = ops.cast(mask_positions, "int32")[:, :, None]
    all_positions = ops.arange(length, dtype="int32")
    # (batch, slots, length)
    is_there = ops.logical_and(ops.equal(positions, all_positions), all_positions > 0)
    nothing = ops.cast(empty, values.dtype)
    return ops.amax(ops.where(is_there, values[:, :, None], nothing), axis=1)

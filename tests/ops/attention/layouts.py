# SPDX-License-Identifier: Apache-2.0
"""Batches of each layout, with their attention masks in NumPy."""

import dataclasses
from typing import Any

import keras
import numpy as np

from keras_bert.ops import BatchLayout
from keras_bert.ops.varlen import varlen_of

BATCH, HEADS, HEAD_DIM = 3, 4, 8


@dataclasses.dataclass(frozen=True)
class Batch:
    """A layout, and whether each token attends to each token in its row."""

    layout: BatchLayout
    is_attended: np.ndarray  # (rows, length, length)

    def mask(self, causal: bool, window: int | None) -> np.ndarray:
        """Returns the mask of all token pairs, `(rows, 1, length, length)`."""
        length = self.is_attended.shape[1]
        distance = np.arange(length)[:, None] - np.arange(length)
        is_allowed = np.ones_like(distance, bool)
        if window is not None:
            is_allowed &= np.abs(distance) <= window
        if causal:
            is_allowed &= distance >= 0
        return (self.is_attended & is_allowed)[:, None]


def make_lengths(length: int) -> np.ndarray:
    return np.array([[length], [length - length // 3], [max(1, length // 4)]])


def padded(length: int) -> Batch:
    """Right-padded rows. The longest row also has two masked tokens inside."""
    mask = np.arange(length) < make_lengths(length)
    mask[0, 2:4] = False
    layout = BatchLayout(padding_mask=keras.ops.convert_to_tensor(mask))
    return Batch(layout, np.broadcast_to(mask[:, None], (BATCH, length, length)))


def whole(length: int) -> Batch:
    return Batch(BatchLayout(), np.ones((BATCH, length, length), bool))


def packed(length: int) -> Batch:
    """Sequences of 5 to 60 tokens. The last tokens of the second row are padding."""
    random = np.random.default_rng(1)
    rows = [np.repeat(np.arange(1, length + 1), random.integers(5, 60, length)) for _ in "abc"]
    ids = np.stack([row[:length] for row in rows])
    ids *= np.arange(length) < [[length], [length - 4], [length]]
    layout = BatchLayout(sequence_ids=keras.ops.convert_to_tensor(ids.astype("int32")))
    return Batch(layout, ids[:, :, None] == ids[:, None])


def unpadded(length: int) -> Batch:
    """The rows of `padded`, end to end."""
    mask = np.arange(length) < make_lengths(length)
    mask[0, 2:4] = False
    layout = BatchLayout(varlen=varlen_of(keras.ops.convert_to_tensor(mask), training=True))
    rows = np.repeat(np.arange(BATCH), make_lengths(length)[:, 0])
    is_key = mask[np.arange(length) < make_lengths(length)]
    return Batch(layout, ((rows[:, None] == rows) & is_key)[None])


LAYOUTS = {"whole": whole, "padded": padded, "packed": packed, "unpadded": unpadded}
if keras.backend.backend() == "jax":  # JAX has static shapes.
    del LAYOUTS["unpadded"]
PATTERNS = {
    "full": {"causal": False, "window": None},
    "causal": {"causal": True, "window": None},
    "window": {"causal": False, "window": 10},
    "causal window": {"causal": True, "window": 10},
}


def arrays(batch: Batch, key_value_heads: int = HEADS, head_dim: int = HEAD_DIM) -> list[Any]:
    """Returns queries, keys, values, and an upstream gradient."""
    random = np.random.default_rng(0)
    heads = (HEADS, key_value_heads, key_value_heads, HEADS)
    rows, length, _ = batch.is_attended.shape
    return [random.normal(size=(rows, length, count, head_dim)) for count in heads]

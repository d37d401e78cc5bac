# SPDX-License-Identifier: Apache-2.0
"""Splits sequences into blocks for attention within a window, at a cost of length times window.

A block of queries attends to its own tokens and to the tokens within the window before and after
them. So a block is a sequence for ordinary attention, with fewer queries than keys, and every fast
implementation can compute it. Sequences that would not be faster in multiple blocks form a single
block. The number and size of blocks are computed from the length, an integer, or a tensor in a
TensorFlow graph.

Reference:
    [Longformer](https://arxiv.org/abs/2004.05150), section 3.1;
    [ModernBERT](https://arxiv.org/abs/2412.13663), section 2.1.2.
"""

from __future__ import annotations

import dataclasses

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor

# Measured on CPUs, matmuls of smaller blocks are slower. Two or three blocks are slower than one,
# because each block is copied with its neighbors.
MIN_BLOCK_SIZE = 64
MIN_BLOCKS = 4


def is_in_sliding_window(distances: Tensor, window: int | None, causal: bool) -> Tensor:
    """Returns where queries may attend to keys, given query positions minus key positions.

    If `window` is `None`, the distance is not limited. This requires `causal`.
    """
    if window is None:
        return distances >= 0
    near = ops.abs(distances) <= window
    return ops.logical_and(near, distances >= 0) if causal else near


@dataclasses.dataclass(frozen=True)
class WindowBlocks:
    """How sequences are split into blocks.

    Sizes are integers, or scalar tensors if `length` is a tensor.

    Attributes:
        length: Sequence length.
        number: Number of blocks per sequence.
        size: Number of queries per block. A sequence's last block may have fewer.
        before: Number of tokens before its queries that a block attends to.
        after: Number of tokens after its queries that a block attends to.
        window: Maximum distance between tokens that attend to each other.
        causal: Whether tokens attend only to themselves and to the tokens before them.
    """

    length: Tensor
    number: Tensor
    size: Tensor
    before: Tensor
    after: Tensor
    window: int
    causal: bool

    @classmethod
    def from_length(cls, length: Tensor, window: int, causal: bool = False) -> WindowBlocks:
        """Splits a sequence into the maximum number of blocks of at least twice the window.

        A block also has at least `MIN_BLOCK_SIZE` tokens. Sequences with fewer than `MIN_BLOCKS`
        such blocks are a single block.

        A block of twice the window has two keys per query, and each query attends to half of the
        keys. With blocks of one window, each query would attend to two thirds of the keys, but the
        matmuls would be smaller.
        """
        number = length // max(2 * window, MIN_BLOCK_SIZE)
        if isinstance(length, int):
            number = number if number >= MIN_BLOCKS else 1
            reach = window if number > 1 else 0
        elif keras.backend.backend() == "jax":  # a symbolic dimension
            number, reach = 1, 0
        else:
            number = ops.where(number >= MIN_BLOCKS, number, 1)
            reach = ops.where(number > 1, window, 0)
        size = (length + number - 1) // number
        return cls(length, number, size, reach, 0 if causal else reach, window, causal)

    @property
    def is_single_block(self) -> bool:
        """Whether each sequence is known to be a single block."""
        return isinstance(self.number, int) and self.number == 1

    def split_into_blocks(self, x: Tensor) -> Tensor:
        """Splits `(batch, length, ...)` into `(batch * number, size, ...)`, padded with zeros."""
        return ops.reshape(self._pad(x), (-1, self.size, *x.shape[2:]))

    def split_with_neighbors(self, x: Tensor) -> Tensor:
        """Splits `(batch, length, ...)` into `(batch * number, before + size + after, ...)`.

        There are zeros before and after the sequence.
        """
        if self.is_single_block:
            return x
        blocks = ops.reshape(self._pad(x), (-1, self.number, self.size, *x.shape[2:]))
        neighbors = [blocks]
        if not _is_zero(self.before):
            ends = blocks[:, :-1, self.size - self.before :]
            none = ops.zeros_like(blocks[:, :1, : self.before])
            neighbors.insert(0, ops.concatenate([none, ends], axis=1))
        if not _is_zero(self.after):
            starts = blocks[:, 1:, : self.after]
            none = ops.zeros_like(blocks[:, :1, : self.after])
            neighbors.append(ops.concatenate([starts, none], axis=1))
        blocks = ops.concatenate(neighbors, axis=2)
        return ops.reshape(blocks, (-1, self.before + self.size + self.after, *x.shape[2:]))

    def merge_blocks(self, x: Tensor) -> Tensor:
        """Joins `(batch * number, size, ...)` to `(batch, length, ...)`."""
        if self.is_single_block:
            return x
        x = ops.reshape(x, (-1, self.number * self.size, *x.shape[2:]))
        return x[:, : self.length]

    def window_mask(self) -> Tensor:
        """Returns a bool tensor `(size, before + size + after)`, True within the window.

        Returns `None` if all tokens in a block are within the window.
        """
        if isinstance(self.length, int) and self.length <= self.window + 1 and not self.causal:
            return None
        keys = ops.arange(self.before + self.size + self.after, dtype="int32") - self.before
        distances = ops.arange(self.size, dtype="int32")[:, None] - keys
        return is_in_sliding_window(distances, self.window, self.causal)

    def _pad(self, x: Tensor) -> Tensor:
        """Pads `(batch, length, ...)` with zeros to a multiple of the block size."""
        padding = self.number * self.size - self.length
        if _is_zero(padding):
            return x
        shape = (ops.shape(x)[0], padding, *x.shape[2:])
        return ops.concatenate([x, ops.zeros(shape, x.dtype)], axis=1)


def _is_zero(number: Tensor) -> bool:
    return isinstance(number, int) and number == 0

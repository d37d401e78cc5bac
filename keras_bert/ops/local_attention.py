# SPDX-License-Identifier: Apache-2.0
"""Rows cut into blocks for attention within a window, at a cost of length times window.

A block of queries attends to its own tokens and to as many before and after them as the window
reaches. So the blocks are rows of an ordinary attention, with fewer queries than keys, and every
fast implementation of that serves them too. A row that would not be faster in several blocks is a
single one. The number of blocks and their size are computed from the length, with the same few
lines whether it is a number or, in a graph of TensorFlow, a tensor.

Reference:
    [Longformer](https://arxiv.org/abs/2004.05150), section 3.1;
    [ModernBERT](https://arxiv.org/abs/2412.13663), section 2.1.2.
"""

from __future__ import annotations

import dataclasses

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor

# Measured on CPUs: products of smaller blocks are slower, and so are two or three blocks than one,
# for a block is copied with its neighbors.
MIN_BLOCK_SIZE = 64
MIN_BLOCKS = 4


def is_in_sliding_window(distances: Tensor, window: int | None, causal: bool) -> Tensor:
    """Returns where queries may attend to keys, by queries' positions minus keys'.

    Without `window` (only if `causal`) the distance has no limit.
    """
    if window is None:
        return distances >= 0
    near = ops.abs(distances) <= window
    return ops.logical_and(near, distances >= 0) if causal else near


@dataclasses.dataclass(frozen=True)
class WindowBlocks:
    """How rows of a length are cut; the sizes are integers, or scalar tensors if `length` is.

    Attributes:
        length: The number of tokens of a row.
        number: The number of blocks of a row.
        size: The number of queries of a block; the last block of a row may have fewer.
        before: The number of tokens before its queries that a block attends to.
        after: The number of tokens after them.
        window: The largest distance of tokens that attend to each other.
        causal: Whether tokens attend only to the tokens before them.
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
        """Cuts a row into as many blocks as have at least twice the size of the window.

        A block of that size is computed with twice as many keys, and each query attends to half of
        them. In blocks of once the window it would attend to two thirds, in smaller products.
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
        """Whether each row is known to be a single block."""
        return isinstance(self.number, int) and self.number == 1

    def split_into_blocks(self, x: Tensor) -> Tensor:
        """Cuts `(batch, length, ...)` into `(batch * number, size, ...)`, with zeros at the end."""
        return ops.reshape(self._pad(x), (-1, self.size, *x.shape[2:]))

    def cut_with_neighbors(self, x: Tensor) -> Tensor:
        """Cuts `(batch, length, ...)` into `(batch * number, before + size + after, ...)`.

        Before and after the row are zeros.
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

        It is `None` if all tokens of a block are within the window.
        """
        if isinstance(self.length, int) and self.length <= self.window + 1 and not self.causal:
            return None
        keys = ops.arange(self.before + self.size + self.after, dtype="int32") - self.before
        distances = ops.arange(self.size, dtype="int32")[:, None] - keys
        return is_in_sliding_window(distances, self.window, self.causal)

    def _pad(self, x: Tensor) -> Tensor:
        """Extends `(batch, length, ...)` with zeros to all blocks."""
        padding = self.number * self.size - self.length
        if _is_zero(padding):
            return x
        shape = (ops.shape(x)[0], padding, *x.shape[2:])
        return ops.concatenate([x, ops.zeros(shape, x.dtype)], axis=1)


def _is_zero(number: Tensor) -> bool:
    return isinstance(number, int) and number == 0

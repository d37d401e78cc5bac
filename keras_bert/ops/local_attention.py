# SPDX-License-Identifier: Apache-2.0
"""Attention to the tokens within a window, whose cost is proportional to length times window.

The row is cut into blocks of queries. A block attends to its own tokens and to as many before and
after them as the window reaches. So the blocks are rows of an ordinary attention, with fewer
queries than keys, and every fast implementation of that serves them too. A row that would not be
faster in several blocks is a single one. The number of blocks and their size are computed from the
length, with the same few lines whether it is a number or, in a graph of TensorFlow, a tensor.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention import attention
from keras_bert.ops.attention_kernels import (
    CAUSAL_WINDOW,
    MASKED_CAUSAL_WINDOW,
    WINDOW,
    fused_kernel,
)
from keras_bert.ops.attention_mask import in_sliding_window
from keras_bert.ops.shapes import length_of

# Measured on CPUs: products of smaller blocks are slower, and so are two or three blocks than one,
# for a block is copied with what is beside it.
MIN_BLOCK_SIZE = 64
MIN_BLOCKS = 4


def local_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding_mask: Tensor | None = None,
    sequence_ids: Tensor | None = None,
    *,
    window: int,
    causal: bool = False,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    training: bool = False,
) -> Tensor:
    """Computes `attention` in which tokens attend to tokens at a distance of at most `window`.

    Time and memory grow with `length * window`, in the backward pass too.

    Args:
        query: Float tensor of shape `(batch, length, heads, head_dim)`.
        key: Float tensor of shape `(batch, length, key_value_heads, head_dim)`, whose number of
            heads divides that of the queries: consecutive heads share a key and a value.
        value: Float tensor of the shape of `key`.
        padding_mask: Bool or int `(batch, length)`, False at tokens that are not attended to;
            `None` for a batch without padding.
        sequence_ids: int `(batch, length)`, not negative, for packed rows: tokens attend only to
            tokens with the same id; `None` if every row is one sequence.
        window: The largest distance, at least 1.
        causal: Whether tokens attend only to themselves and to the tokens before them.
        dropout: Dropout rate on the probabilities, in `[0, 1)`; applied only if `training`.
        seed: A `keras.random.SeedGenerator`, required if dropout is active.
        training: Whether dropout is active and gradients will be computed.

    Returns:
        A tensor of the shape and dtype of `query`. It is finite, but has no meaning, at a token
        that has nothing to attend to, which only padding can be.

    Raises:
        ValueError: If `window` is not an integer above 0.

    Reference:
        [Longformer](https://arxiv.org/abs/2004.05150), section 3.1;
        [ModernBERT](https://arxiv.org/abs/2412.13663), section 2.1.2.
    """
    if not isinstance(window, int) or window < 1:
        raise ValueError(f"window is {window!r}; it must be an integer above 0.")
    rate = dropout if training else 0.0
    kernel = fused_kernel(query, key, _kind_of_window(causal, padding_mask, sequence_ids), rate)
    if kernel == "flex":
        from keras_bert.ops.local_attention_torch import flex_local_attention

        return flex_local_attention(
            query, key, value, padding_mask, sequence_ids, window=window, causal=causal
        )
    if kernel == "cudnn":
        from keras_bert.ops.attention_cudnn import causal_window

        return causal_window(query, key, value, window)
    batch, length = ops.shape(query)[:2]
    length = query.shape[1] if query.shape[1] is not None else length
    mask = mask_of_blocks((batch, length), padding_mask, sequence_ids, window, causal)
    return attention_in_blocks(
        (query, key, value),
        mask,
        window=window,
        causal=causal,
        dropout=dropout,
        seed=seed,
        training=training,
    )


def mask_of_blocks(
    shape: tuple[Tensor, Tensor],
    padding_mask: Tensor | None,
    sequence_ids: Tensor | None,
    window: int,
    causal: bool,
) -> Tensor | None:
    """Returns the mask of `attention_in_blocks`, of all blocks; `None` if nothing is masked.

    Args:
        shape: `(batch, length)`.
        padding_mask: See `local_attention`.
        sequence_ids: See `local_attention`.
        window: See `local_attention`.
        causal: See `local_attention`.
    """
    batch, length = shape
    return _mask(Blocks.of(length, window, causal), batch, padding_mask, sequence_ids)


def attention_in_blocks(
    query_key_value: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    *,
    window: int,
    causal: bool,
    **dropout: Any,
) -> Tensor:
    """Computes `local_attention` by operations, with the mask that `mask_of_blocks` returned.

    Args:
        query_key_value: See `local_attention`.
        mask: What `mask_of_blocks` returned.
        window: See `local_attention`.
        causal: See `local_attention`.
        **dropout: The options of dropout of `keras_bert.ops.attention`.
    """
    query, key, value = query_key_value
    blocks = Blocks.of(length_of(query), window, causal)
    context = attention(
        (blocks.cut(query), blocks.cut_with_neighbors(key), blocks.cut_with_neighbors(value)),
        mask,
        **dropout,
    )
    return blocks.joined(context)


def _kind_of_window(causal: bool, padding_mask: Tensor, sequence_ids: Tensor) -> str:
    if not causal:
        return WINDOW
    is_masked = padding_mask is not None or sequence_ids is not None
    return MASKED_CAUSAL_WINDOW if is_masked else CAUSAL_WINDOW


@dataclasses.dataclass(frozen=True)
class Blocks:
    """How rows of a length are cut; the sizes are integers, or scalar tensors if `length` is.

    Attributes:
        length: The number of tokens of a row.
        number: The number of blocks of a row.
        size: The number of queries of a block, of which the last of a row may have fewer.
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
    def of(cls, length: Tensor, window: int, causal: bool = False) -> Blocks:
        """Cuts a row into as many blocks as have at least twice the size of the window.

        A block of that size is computed with twice as many keys, of which each query attends to
        half. In blocks of once the window it would attend to two thirds, in smaller products.
        """
        number = length // max(2 * window, MIN_BLOCK_SIZE)
        if isinstance(length, int):
            number = number if number >= MIN_BLOCKS else 1
            reach = window if number > 1 else 0
        elif keras.backend.backend() == "jax":  # a symbolic dimension, whose value is not used
            number, reach = 1, 0
        else:
            number = ops.where(number >= MIN_BLOCKS, number, 1)
            reach = ops.where(number > 1, window, 0)
        size = (length + number - 1) // number
        return cls(length, number, size, reach, 0 if causal else reach, window, causal)

    def cut(self, x: Tensor) -> Tensor:
        """Cuts `(batch, length, ...)` into `(batch * number, size, ...)`, with zeros at the end."""
        return ops.reshape(self._padded(x), (-1, self.size, *x.shape[2:]))

    def cut_with_neighbors(self, x: Tensor) -> Tensor:
        """Cuts `(batch, length, ...)` into `(batch * number, before + size + after, ...)`.

        Before and after the row are zeros.
        """
        if _is_one(self.number):
            return x
        blocks = ops.reshape(self._padded(x), (-1, self.number, self.size, *x.shape[2:]))
        parts = [blocks]
        if not _is_zero(self.before):
            ends = blocks[:, :-1, self.size - self.before :]
            none = ops.zeros_like(blocks[:, :1, : self.before])
            parts.insert(0, ops.concatenate([none, ends], axis=1))
        if not _is_zero(self.after):
            starts = blocks[:, 1:, : self.after]
            none = ops.zeros_like(blocks[:, :1, : self.after])
            parts.append(ops.concatenate([starts, none], axis=1))
        blocks = ops.concatenate(parts, axis=2)
        return ops.reshape(blocks, (-1, self.before + self.size + self.after, *x.shape[2:]))

    def joined(self, x: Tensor) -> Tensor:
        """Joins `(batch * number, size, ...)` to `(batch, length, ...)`."""
        if _is_one(self.number):
            return x
        x = ops.reshape(x, (-1, self.number * self.size, *x.shape[2:]))
        return x[:, : self.length]

    def near(self) -> Tensor:
        """Returns a bool tensor `(size, before + size + after)`, True within the window.

        It is `None` if all tokens of a block are within the window.
        """
        if isinstance(self.length, int) and self.length <= self.window + 1 and not self.causal:
            return None
        keys = ops.arange(self.before + self.size + self.after, dtype="int32") - self.before
        distances = ops.arange(self.size, dtype="int32")[:, None] - keys
        return in_sliding_window(distances, self.window, self.causal)

    def _padded(self, x: Tensor) -> Tensor:
        """Extends `(batch, length, ...)` with zeros to all blocks."""
        missing = self.number * self.size - self.length
        if _is_zero(missing):
            return x
        shape = (ops.shape(x)[0], missing, *x.shape[2:])
        return ops.concatenate([x, ops.zeros(shape, x.dtype)], axis=1)


def _mask(blocks: Blocks, batch: Tensor, padding_mask: Tensor, sequence_ids: Tensor) -> Tensor:
    """Returns the mask of all blocks, as `keras_bert.ops.attention` takes it, or `None`."""
    near = blocks.near()
    masks = [] if near is None else [near[None]]
    if padding_mask is not None:
        is_token = blocks.cut_with_neighbors(ops.cast(padding_mask, "int32"))
        masks.append(ops.cast(is_token, "bool")[:, None, :])
    if sequence_ids is not None:
        # No id is 0 then, as before and after the row
        ids = ops.cast(sequence_ids, "int32") + 1
        others = blocks.cut_with_neighbors(ids)
        masks.append(ops.equal(blocks.cut(ids)[:, :, None], others[:, None, :]))
    elif padding_mask is None and not _is_one(blocks.number):
        ones = ops.ones((1, blocks.length), "int32")
        is_token = ops.cast(blocks.cut_with_neighbors(ones), "bool")
        # (number, ...) -> (batch * number, ...)
        masks.append(ops.tile(is_token, (batch, 1))[:, None, :])
    return functools.reduce(ops.logical_and, masks)[:, None] if masks else None


def _is_one(number: Tensor) -> bool:
    return isinstance(number, int) and number == 1


def _is_zero(number: Tensor) -> bool:
    return isinstance(number, int) and number == 0

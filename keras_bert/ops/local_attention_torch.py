# SPDX-License-Identifier: Apache-2.0
"""Local attention by PyTorch's `flex_attention`, which computes blocks of scores on a GPU alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from keras_bert.ops.annotations import Tensor

BLOCK_SIZE = 128


def flex_local_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    padding_mask: Tensor | None,
    sequence_ids: Tensor | None,
    *,
    window: int,
    causal: bool,
) -> Tensor:
    """`keras_bert.ops.local_attention` without dropout, in a kernel that PyTorch generates."""
    padding_mask = None if padding_mask is None else padding_mask.to(torch.bool)
    length = query.shape[1]
    context = _compiled()(
        *(x.transpose(1, 2) for x in (query, key, value)),
        block_mask=block_mask(
            mask_function(padding_mask, sequence_ids, _as_tensor(window, query.device), causal),
            length,
            window,
            causal,
            query.device,
        ),
        enable_gqa=key.shape[2] != query.shape[2],
    )
    return context.transpose(1, 2)


def mask_function(
    padding_mask: Tensor | None, sequence_ids: Tensor | None, window: Tensor, causal: bool
) -> Callable[..., Tensor]:
    """Returns a function of batch, head, query and key indices, True where a query attends.

    The window is a tensor: as a number, a second one is a symbol of the program that PyTorch
    compiles for both, which `flex_attention` does not take.
    """

    def is_attended(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance = query - key
        attended = (distance <= window) & (distance >= (0 if causal else -window))
        if padding_mask is not None:
            attended = attended & padding_mask[batch, key]
        if sequence_ids is not None:
            attended = attended & (sequence_ids[batch, query] == sequence_ids[batch, key])
        return attended

    return is_attended


def block_mask(
    is_attended: Callable[..., Tensor], length: int, window: int, causal: bool, device: Any
) -> BlockMask:
    """Returns the blocks of scores that have any within the window, and the mask inside of them.

    `create_block_mask` would compute the mask of all pairs of tokens to find them.
    """
    numbers, indices = _blocks_within(length, window, causal, device)
    return BlockMask.from_kv_blocks(
        numbers, indices, BLOCK_SIZE=BLOCK_SIZE, mask_mod=is_attended, seq_lengths=(length, length)
    )


@functools.lru_cache(maxsize=64)
def _blocks_within(length: int, window: int, causal: bool, device: Any) -> tuple[Tensor, Tensor]:
    """Returns how many blocks of keys each block of queries attends to, and which these are."""
    count = -(-length // BLOCK_SIZE)
    reach = -(-window // BLOCK_SIZE)
    blocks = torch.arange(count, device=device)
    first = (blocks - reach).clamp(min=0)
    last = blocks if causal else (blocks + reach).clamp(max=count - 1)
    # In order of their index; what follows the last one is not read
    indices = (first[:, None] + blocks).clamp(max=count - 1)
    return (last - first + 1).int()[None, None], indices.int()[None, None]


@functools.lru_cache(maxsize=64)
def _as_tensor(window: int, device: Any) -> Tensor:
    return torch.tensor(window, device=device)


@functools.cache
def _compiled() -> Callable[..., Any]:
    # Without this, scores of all pairs of tokens are computed
    compiled: Callable[..., Any] = torch.compile(flex_attention)
    return compiled

# SPDX-License-Identifier: Apache-2.0
"""Kernels of PyTorch, which store no scores on GPUs.

With dropout, `scaled_dot_product_attention` draws from PyTorch's generator of the device, and the
backward pass draws it again.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import pad, scaled_dot_product_attention

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.batch_layout import BatchLayout
from keras_bert.ops.varlen import Varlen

# Of queries and keys, in which `flex_attention` looks for scores within a window
BLOCK_SIZE = 128


def sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """Attention of `(batch, heads, length, head_dim)`, with a mask that is added to the scores."""
    mask = None if mask is None else mask.to(query.dtype)
    with _drawing(dropout, seed, query.device):
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


def varlen(query: Tensor, key: Tensor, value: Tensor, layout: Varlen) -> Tensor:
    """Attention of each row of an unpadded batch to itself, without dropout.

    Queries, keys and values are float16 or bfloat16 `(1, tokens, heads, head_dim)`.
    """
    longest = max(mask.shape[1] for mask in layout.key_masks if mask is not None)
    query, key, value = query[0], key[0], value[0]
    cu_seqlens = cu_seqlens_of_keys = layout.cu_seqlens
    if len(layout.key_indices) < len(query):
        # A masked token inside of a row is a query, but not a key.
        cu_seqlens_of_keys = pad(layout.is_key.int().cumsum(0), (1, 0))[cu_seqlens]
        key, value = (x.index_select(0, layout.key_indices) for x in (key, value))
    bounds = cu_seqlens.int(), cu_seqlens_of_keys.int()
    return varlen_attn(query, key, value, *bounds, longest, longest)[None]


def flex(
    query: Tensor, key: Tensor, value: Tensor, layout: BatchLayout, *, window: int, causal: bool
) -> Tensor:
    """Attention within a window, without dropout, in a kernel that PyTorch generates.

    An unpadded batch is a packed row, in which blocks beyond the window are not computed.
    """
    padding_mask, sequence_ids = layout.padding_mask, layout.sequence_ids
    if layout.is_unpadded:
        padding_mask, sequence_ids = layout.varlen.is_key[None], layout.varlen.row_ids[None]
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


@contextlib.contextmanager
def _drawing(dropout: float, seed: Any, device: torch.device) -> Iterator[None]:
    """Has PyTorch's generator draw what a seed generator does.

    As in Keras' own dropout, one without a seed of its own leaves that to PyTorch's generator,
    whose state is part of a checkpoint.
    """
    if not dropout or seed is None or seed._initial_seed is None:
        yield
        return
    generator = torch.default_generator
    if device.type == "cuda":
        generator = torch.cuda.default_generators[device.index]
    state = generator.get_state()
    first, second = seed.next()
    generator.manual_seed(int(first + second) & 0xFFFFFFFF)
    try:
        yield
    finally:
        generator.set_state(state)

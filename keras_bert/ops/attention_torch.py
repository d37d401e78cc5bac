# SPDX-License-Identifier: Apache-2.0
"""Attention by PyTorch's `scaled_dot_product_attention`, whose kernels for GPUs store no scores.

They draw dropout from PyTorch's generator of the device, and the backward pass draws it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention_mask import masked_score


@torch.compiler.assume_constant_result
def cuda_capability() -> tuple[int, ...] | None:
    """Returns the compute capability of the GPU, or `None` without one of NVIDIA."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        return None
    capability: tuple[int, int] = torch.cuda.get_device_capability()
    return capability


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """`keras_bert.ops.attention` of tensors `(batch, heads, length, head_dim)`."""
    bias = None
    if mask is not None:
        # Not bool: a row without a single key would be NaN in some kernels.
        score = masked_score(str(query.dtype).removeprefix("torch."))
        bias = torch.zeros(mask.shape, dtype=query.dtype, device=query.device)
        bias = bias.masked_fill_(~mask.to(torch.bool), score)
    with _drawing(dropout, seed, query.device):
        return scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout)


def nested_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: dict[str, Any],
    *,
    dropout: float,
    seed: Tensor | None,
) -> Tensor:
    """`keras_bert.ops.attention` of each row of an unpadded batch to itself.

    Args:
        query: Float `(1, tokens, heads, head_dim)`, like `key` and `value`.
        key: See `query`.
        value: See `query`.
        rows: What `keras_bert.ops.unpadded.unpadded_rows` returned.
        dropout: Dropout rate on the probabilities, in `[0, 1)`.
        seed: A `keras.random.SeedGenerator`, required if dropout is active.

    Returns:
        A tensor of the shape of `query`.
    """
    ends = pad(rows["starts"] + rows["lengths"], (1, 0)).long()
    # A masked token inside of a row is a query, but not a key.
    ends_of_keys = pad(rows["attended"].long().cumsum(0), (1, 0))[ends]
    longest = max(mask.shape[1] for mask in rows["masks"])

    def nested(x: Tensor, ends: Tensor) -> Tensor:
        # The bounds of lengths, known without a look at what the device computes
        jagged = torch.nested.nested_tensor_from_jagged(
            x.contiguous(), ends, min_seqlen=1, max_seqlen=longest
        )
        return jagged.transpose(1, 2)

    keys = rows["keys"].long()
    with _drawing(dropout, seed, query.device):
        context = scaled_dot_product_attention(
            nested(query[0], ends),
            nested(key[0, keys], ends_of_keys),
            nested(value[0, keys], ends_of_keys),
            dropout_p=dropout,
        )
    return context.transpose(1, 2).values()[None]


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

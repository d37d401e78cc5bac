# SPDX-License-Identifier: Apache-2.0
"""Attention by PyTorch's functions, whose kernels for GPUs store no scores.

Those of `scaled_dot_product_attention` draw dropout from PyTorch's generator of the device, and the
backward pass draws it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
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


def attention_of_rows(query: Tensor, key: Tensor, value: Tensor, rows: dict[str, Any]) -> Tensor:
    """`keras_bert.ops.attention` of each row of an unpadded batch to itself, without dropout.

    Args:
        query: float16 or bfloat16 `(1, tokens, heads, head_dim)`, like `key` and `value`.
        key: See `query`.
        value: See `query`.
        rows: What `keras_bert.ops.unpadded.unpadded_rows` returned.

    Returns:
        A tensor of the shape of `query`.
    """
    longest = max(mask.shape[1] for mask in rows["masks"])
    query, key, value = query[0], key[0], value[0]
    ends = pad(rows["starts"] + rows["lengths"], (1, 0))
    ends_of_keys = ends
    if len(rows["keys"]) < len(query):
        # A masked token inside of a row is a query, but not a key.
        ends_of_keys = pad(rows["attended"].int().cumsum(0), (1, 0))[ends]
        key, value = (x.index_select(0, rows["keys"]) for x in (key, value))
    bounds = ends.int(), ends_of_keys.int()
    return varlen_attn(query, key, value, *bounds, longest, longest)[None]


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

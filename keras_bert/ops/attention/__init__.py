# SPDX-License-Identifier: Apache-2.0
"""Computes attention with the kernel selected by a table, or the reference implementation."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention.kernels import case_of, kernel_of, mask_kind
from keras_bert.ops.attention.portable import (
    Bias,
    QueryKeyValue,
    attention_with_scores,
    query_key_value_parts,
    repeated_heads,
    to_heads_first,
    to_tokens_first,
)
from keras_bert.ops.batch_layout import BatchLayout
from keras_bert.ops.local_attention import WindowBlocks
from keras_bert.ops.masks import AttentionPattern, apply_mask
from keras_bert.ops.reference import length_of
from keras_bert.ops.varlen import Varlen, gather_groups, scatter_groups

__all__ = ["Bias", "QueryKeyValue", "attention", "attention_with_scores"]


@dataclasses.dataclass(frozen=True)
class _Options:
    """Options of `attention`. `dropout` is 0 outside of training."""

    causal: bool = False
    window: int | None = None
    bias: Bias | None = None
    dropout: float = 0.0
    seed: Any = None
    training: bool = False
    max_length: int | None = None


def attention(
    query_key_value: QueryKeyValue,
    layout: BatchLayout | None = None,
    *,
    causal: bool = False,
    window: int | None = None,
    bias: Bias | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    training: bool = False,
    max_length: int | None = None,
) -> Tensor:
    """Computes `softmax(Q K^T / sqrt(d) + bias) V`, with dropout on the probabilities in training.

    The table in `keras_bert.ops.attention.kernels` selects the kernel. With a window, time and
    memory grow with `length * window`, also in the backward pass.

    Args:
        query_key_value: See `attention_with_scores`. An unpadded layout has a batch size of 1, `(1,
            tokens, ...)`.
        layout: The arrangement of the tokens, and which tokens are padding. `None` for a batch
            without padding.
        causal: Whether tokens attend only to themselves and to the tokens before them.
        window: Maximum distance between two tokens that attend to each other. `None` for no limit.
        bias: See `attention_with_scores`. Not supported with a window. For an unpadded layout, it
            is called for one group of sequences at a time.
        dropout: Dropout rate, in `[0, 1)`. Only applied if `training`.
        seed: A `keras.random.SeedGenerator`, required if dropout is active.
        training: Whether dropout is active and gradients will be computed.
        max_length: Maximum sequence length to expect. `None` for no limit. It only matters when
            TensorFlow trains on a CPU with a graph of unknown length. The graph then contains a
            branch that computes sequences of 2,048 tokens or more in less memory, unless
            `max_length` is below 2,048.

    Returns:
        A tensor of shape `(batch, length, heads, head_dim)` in the dtype of the input. A padding
        token without any token to attend to has a finite but meaningless output.

    Raises:
        ValueError: If `window` is not an integer above 0, or if both `window` and `bias` are given.

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762), section 3.2.1;
        [GQA](https://arxiv.org/abs/2305.13245), section 2.2;
        [Longformer](https://arxiv.org/abs/2004.05150), section 3.1, for windows.
    """
    if window is not None and (not isinstance(window, int) or window < 1):
        raise ValueError(f"window must be an integer above 0. Received: {window!r}")
    if window is not None and bias is not None:
        raise ValueError("window and bias must not be combined. Received: both")
    layout = layout or BatchLayout()
    rate = dropout if training else 0.0
    seed = seed if rate else None
    # Packed sequences may be longer than `max_length` together.
    max_length = max_length if layout.sequence_ids is None else None
    options = _Options(causal, window, bias, rate, seed, training, max_length)
    x = query_key_value[0] if isinstance(query_key_value, tuple) else query_key_value
    masks = layout.mask(x, AttentionPattern(causal, window))
    return _compute(query_key_value, layout, masks, options)


def _compute(
    query_key_value: QueryKeyValue, layout: BatchLayout, masks: Sequence[Tensor], options: _Options
) -> Tensor:
    """Computes attention with the kernel that the table selects."""
    case = case_of(
        query_key_value,
        form=layout.form,
        window=options.window is not None,
        causal=options.causal,
        mask=_mask_kind(layout, masks[0], options.window),
        bias=options.bias is not None,
        dropout=options.dropout,
        training=options.training,
    )
    kernel = kernel_of(case)
    if kernel == "per_group":
        is_worth_it = not options.training
        compute = _bind_in_shared_graph(_attention_per_group, options, is_worth_it)
        return compute(query_key_value, layout.varlen, masks)
    if kernel == "windowed":
        is_worth_it = options.training and not options.dropout
        compute = _bind_in_shared_graph(_windowed_attention, options, is_worth_it)
        return compute(query_key_value, masks[0])
    if kernel in ("varlen", "flex", "cudnn"):
        return _compute_tokens_first(kernel, query_key_value, layout, masks[0], options)
    return _compute_heads_first(kernel, query_key_value, masks[0], options)


def _mask_kind(layout: BatchLayout, mask: Tensor | None, window: int | None) -> str:
    """Returns the mask type that a kernel must support, see `AttentionCase.mask`."""
    if window is None:
        return mask_kind(mask)
    # With a window, `mask` also contains the window, so its shape does not show whether anything
    # else is masked.
    is_masked = layout.padding_mask is not None or layout.sequence_ids is not None
    return "pairs" if is_masked else "none"


def _compute_tokens_first(
    kernel: str,
    query_key_value: QueryKeyValue,
    layout: BatchLayout,
    mask: Tensor | None,
    options: _Options,
) -> Tensor:
    """Computes attention with a GPU kernel that expects `(batch, length, heads, head_dim)`."""
    query, key, value = query_key_value_parts(query_key_value)
    if kernel == "cudnn":
        from keras_bert.ops.attention.jax import cudnn

        return cudnn(query, key, value, mask, options.window)
    from keras_bert.ops.attention.torch import flex, varlen

    if kernel == "flex":
        assert options.window is not None
        return flex(query, key, value, layout, window=options.window, causal=options.causal)
    key, value = (repeated_heads(part, query.shape[2]) for part in (key, value))
    assert layout.varlen is not None
    return varlen(query, key, value, layout.varlen)


def _compute_heads_first(
    kernel: str, query_key_value: QueryKeyValue, mask: Tensor | None, options: _Options
) -> Tensor:
    """Computes attention with a kernel that expects `(batch, heads, length, head_dim)`."""
    rate, seed = options.dropout, options.seed
    if kernel == "portable":
        return attention_with_scores(
            query_key_value, mask, bias=options.bias, dropout=rate, seed=seed
        )[0]
    query, key, value = to_heads_first(query_key_value)
    if options.bias is not None:
        mask = apply_mask(options.bias(query, key), mask)
    if kernel == "sdpa":
        from keras_bert.ops.attention.torch import sdpa

        context = sdpa(query, key, value, mask, dropout=rate, seed=seed)
    elif kernel == "chunked":
        from keras_bert.ops.attention.jax import chunked

        context = chunked(query, key, value, mask, dropout=rate, seed=seed)
    elif kernel == "plain":
        from keras_bert.ops.attention.tensorflow import plain

        context = plain(query, key, value, mask)
    else:
        from keras_bert.ops.attention.tensorflow import fused_step

        context = fused_step(
            query, key, value, mask, dropout=rate, seed=seed, max_length=options.max_length
        )
    return to_tokens_first(context)


def _attention_per_group(
    query_key_value: QueryKeyValue, varlen: Varlen, masks: Sequence[Tensor], options: _Options
) -> Tensor:
    """Computes attention in an unpadded batch, one group of sequences at a time."""
    training = options.training
    if isinstance(query_key_value, tuple):
        parts = (gather_groups(tensor, varlen, training) for tensor in query_key_value)
        groups: Sequence[Any] = list(zip(*parts, strict=True))
    else:
        groups = gather_groups(query_key_value, varlen, training)
    # Empty groups have no mask.
    masks = [mask for mask in masks if mask is not None]
    contexts = [
        _compute(group, BatchLayout(), [mask], options)
        for group, mask in zip(groups, masks, strict=True)
    ]
    return scatter_groups(contexts, varlen)


def _windowed_attention(
    query_key_value: QueryKeyValue, mask: Tensor | None, options: _Options
) -> Tensor:
    """Splits the sequences into blocks, and computes attention with each block as a sequence.

    The window is already part of the mask of all blocks.
    """
    query, key, value = query_key_value_parts(query_key_value)
    assert options.window is not None
    blocks = WindowBlocks.from_length(length_of(query), options.window, options.causal)
    cut = (
        blocks.split_into_blocks(query),
        blocks.split_with_neighbors(key),
        blocks.split_with_neighbors(value),
    )
    block_options = dataclasses.replace(options, window=None, causal=False, max_length=None)
    return blocks.merge_blocks(_compute(cut, BatchLayout(), [mask], block_options))


def _bind_in_shared_graph(
    function: Callable[..., Tensor], options: _Options, is_worth_it: bool
) -> Callable[..., Tensor]:
    """Binds options to a function. In a TensorFlow graph, all layers share one traced function.

    Tracing the function in each layer took most of the time needed to trace a deep encoder.
    """
    is_pure = options.bias is None and options.seed is None
    if is_pure and is_worth_it and dispatch.is_tensorflow_graph():
        return _shared_graph(function, options)
    return functools.partial(function, options=options)


@functools.cache
def _shared_graph(function: Callable[..., Tensor], options: _Options) -> Callable[..., Tensor]:
    from keras_bert.ops.tensorflow_graphs import trace_once

    return trace_once(lambda *tensors: function(*tensors, options))

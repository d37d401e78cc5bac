# SPDX-License-Identifier: Apache-2.0
"""Computes the varlen layout, the places of sequences in an unpadded batch `(1, tokens, ...)`.

The tokens of all sequences are concatenated, so matmuls, norms and all other operations on single
tokens spend no time on padding. Only attention must distinguish the sequences. A GPU kernel reads
where each sequence starts (`cu_seqlens`). Otherwise, sequences of similar lengths form a few
groups. Queries, keys and values are gathered into a padded tensor per group, and the results are
gathered back.

`keras_bert.ops.unpadding` decides which batches are unpadded.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.reference import take, take_once

# Sequences are divided by length into this many groups, and attention is computed per group.
# Measured on CPUs, more groups save less than the additional calls cost.
NUM_GROUPS = 4
# Inference on TensorFlow rounds sizes up to a multiple of this. oneDNN takes up to a millisecond to
# create a kernel for a new shape, and TensorFlow caches the last thousand kernels.
SIZE_STEP = 8


class Varlen(NamedTuple):
    """Where the tokens of each sequence are in an unpadded batch.

    Tokens after a sequence's last non-padding token are dropped, so positions do not change. If a
    sequence has only padding, its first token is kept, so no sequence is empty. In inference on
    TensorFlow, the last token is repeated to pad the token count to a multiple of `SIZE_STEP`. No
    token attends to the copies.

    Attributes:
        token_indices: int32 `(tokens,)`, the index of each token in the flattened batch.
        row_ids: int32 `(tokens,)`, the index of each token's sequence in the batch.
        position_ids: int32 `(tokens,)`, the position of each token in its sequence.
        cu_seqlens: int32 `(batch + 1,)`, the number of tokens before each sequence, and in total.
        lengths: int32 `(batch,)`, the number of tokens in each sequence.
        is_key: bool `(tokens,)`, whether other tokens in the sequence attend to each token.
        key_indices: int32 `(keys,)`, the indices of the tokens that serve as keys.
        group_gather: int32 `(places,)`, the index of the token at each place in the padded groups,
            one group after another. Padding repeats the sequence's last token.
        group_scatter: int32 `(tokens,)`, the place of each token in the groups.
        key_masks: A bool mask `(rows, length)` for each group, True at tokens that serve as keys.
            `None` if a group is known to be empty.
    """

    token_indices: Tensor
    row_ids: Tensor
    position_ids: Tensor
    cu_seqlens: Tensor
    lengths: Tensor
    is_key: Tensor
    key_indices: Tensor
    group_gather: Tensor
    group_scatter: Tensor
    key_masks: Sequence[Tensor]


def varlen_of(padding_mask: Tensor, training: bool = False) -> Varlen:
    """Finds the tokens to compute in a batch, and where attention reads them.

    The mask is bool or int `(batch, length)`, 0 at padding. `training` is whether gradients will be
    computed.
    """
    step = 1 if training or keras.backend.backend() != "tensorflow" else SIZE_STEP
    if dispatch.is_tensorflow_graph():
        return _shared_graph(step)(padding_mask)
    return _varlen(padding_mask, step)


@functools.cache
def _shared_graph(step: int) -> Callable[[Tensor], Varlen]:
    """Returns `_varlen` as one graph for all models. It has as many operations as two layers."""
    from keras_bert.ops.tensorflow_graphs import trace_once

    return trace_once(functools.partial(_varlen, step=step), inline=True)


def _varlen(padding_mask: Tensor, step: int) -> Varlen:
    """Implements `varlen_of`, with sizes rounded up to a multiple of `step`."""
    mask = ops.cast(padding_mask, "bool")
    batch, length = ops.shape(mask)[0], ops.shape(mask)[1]
    positions = ops.arange(length, dtype="int32")
    ends = ops.amax(ops.where(mask, positions + 1, 0), axis=1)
    lengths = ops.maximum(ends, 1)
    # A padding-only sequence attends to its first token, not to other sequences.
    mask = ops.logical_or(mask, ops.logical_and(ends[:, None] == 0, positions == 0))
    tokens = _true_indices(ops.reshape(positions < lengths[:, None], (-1,)))
    token_ends = ops.cumsum(lengths)
    starts = token_ends - lengths
    is_key = take(ops.reshape(mask, (-1,)), tokens)
    num_tokens = ops.shape(tokens)[0]
    indices = ops.arange(num_tokens, dtype="int32")
    if step > 1:
        slots = ops.arange(round_up(num_tokens, step), dtype="int32")
        indices = ops.minimum(slots, num_tokens - 1)
        tokens = take(tokens, indices)
        is_key = ops.logical_and(take(is_key, indices), slots == indices)

    # In ascending order of length, each group's sequences are consecutive.
    order = ops.cast(ops.argsort(lengths), "int32")
    ascending = take(lengths, order)
    bounds = [batch * group // NUM_GROUPS for group in range(NUM_GROUPS + 1)]
    longest = ops.concatenate([ops.zeros((1,), "int32"), ascending])  # in the first n sequences
    shapes = [
        (end - begin, round_up(_as_size(longest[end]), step))
        for begin, end in itertools.pairwise(bounds)
    ]
    widths = ops.concatenate([ops.full((size,), width, "int32") for size, width in shapes])
    place_ends = ops.cumsum(widths)
    places = ops.arange(sum(size * width for size, width in shapes), dtype="int32")
    # The sequence of each place, in ascending order of length. Padding repeats the last token.
    row = ops.cast(ops.searchsorted(place_ends, places, side="right"), "int32")
    first_places = place_ends - widths
    first_tokens = take(starts, order)
    unclamped = places + take(first_tokens - first_places, row)
    last_tokens = take(first_tokens + ascending - 1, row)
    group_tokens = ops.minimum(unclamped, last_tokens)
    are_keys = ops.logical_and(unclamped <= last_tokens, take(is_key, group_tokens))
    # Restore the order of sequences in the batch.
    first_places = take(first_places, ops.argsort(order))
    row_ids = tokens // length
    return Varlen(
        token_indices=tokens,
        row_ids=row_ids,
        position_ids=tokens - row_ids * length,
        cu_seqlens=ops.concatenate([ops.zeros((1,), "int32"), token_ends]),
        lengths=lengths,
        is_key=is_key,
        key_indices=_true_indices(is_key),
        group_gather=group_tokens,
        group_scatter=indices + take(first_places - starts, row_ids),
        key_masks=tuple(
            None if mask.shape[0] == 0 else mask for mask in _gather_in_groups(are_keys, shapes)
        ),
    )


def unpad(x: Tensor, varlen: Varlen) -> Tensor:
    """Converts a batch `(batch, length, ...)` to a single row of tokens, `(1, tokens, ...)`."""
    return take(ops.reshape(x, (-1, *x.shape[2:])), varlen.token_indices)[None]


def pad(x: Tensor, varlen: Varlen, shape: Tensor) -> Tensor:
    """Converts tokens `(1, tokens, dim)` to a batch `(*shape, dim)`, with zeros at padding."""
    batch, length = shape
    # On PyTorch, `ops.scatter` adds one token after the other.
    zeros = ops.zeros((batch * length, x.shape[-1]), x.dtype)
    flat = ops.scatter_update(zeros, varlen.token_indices[:, None], x[0])
    return ops.reshape(flat, (batch, length, x.shape[-1]))


def index_of_tokens(positions: Tensor, varlen: Varlen) -> Tensor:
    """Returns the indices of positions in an unpadded batch, int32 `(1, batch * slots)`.

    Positions are int `(batch, slots)`, counted within each sequence. A position after the end of
    its sequence gets the index of the sequence's last token.
    """
    positions = ops.minimum(ops.cast(positions, "int32"), varlen.lengths[:, None] - 1)
    return ops.reshape(varlen.cu_seqlens[:-1, None] + positions, (1, -1))


def gather_groups(x: Tensor, varlen: Varlen, training: bool = False) -> list[Tensor]:
    """Gathers tokens `(1, tokens, ...)` into one tensor `(rows, length, ...)` per group."""
    dims = x.shape[2:]
    flat = ops.reshape(x, (-1, math.prod(dims)))
    flat = take_once(flat, varlen.group_gather, varlen.group_scatter, training=training)
    shapes = [tuple(ops.shape(mask)) for mask in varlen.key_masks if mask is not None]
    return _gather_in_groups(flat, shapes, dims)


def scatter_groups(groups: list[Tensor], varlen: Varlen) -> Tensor:
    """Gathers the results of all groups, `(rows, length, ...)` each, to `(1, tokens, ...)`."""
    dims = groups[0].shape[2:]
    flat = ops.concatenate([ops.reshape(group, (-1, math.prod(dims))) for group in groups])
    return ops.reshape(take(flat, varlen.group_scatter), (1, -1, *dims))


def _gather_in_groups(flat: Tensor, shapes: list[Any], dims: Sequence[int] = ()) -> list[Tensor]:
    """Splits the places of all groups into one tensor `(rows, length, *dims)` per group."""
    chunks = _split(flat, [size * length for size, length in shapes])
    return [
        ops.reshape(chunk, (*shape, *dims)) for chunk, shape in zip(chunks, shapes, strict=True)
    ]


def _split(x: Tensor, sizes: list[Tensor]) -> Sequence[Tensor]:
    """Splits the first axis into chunks with the backend's own function.

    On TensorFlow, `ops.split` requires a static length. On PyTorch, it copies the sizes to the
    device and back. Slices would also work, but their gradients are padded and added up. A split's
    gradient is a single concatenation.
    """
    chunks: Sequence[Tensor]
    if keras.backend.backend() == "torch":
        chunks = x.split(sizes)
    else:
        import tensorflow as tf

        chunks = tf.split(x, sizes)
    return chunks


def _true_indices(mask: Tensor) -> Tensor:
    """Returns the indices of True values in `(number,)`, int32."""
    return ops.cast(ops.nonzero(mask)[0], "int32")


def _as_size(length: Tensor) -> Tensor:
    """Returns a scalar that can be used in a shape, an int on PyTorch."""
    return int(length) if keras.backend.backend() == "torch" else length


def round_up(size: Tensor, step: int = SIZE_STEP) -> Tensor:
    """Rounds a size up to a multiple of `step`."""
    return -(-size // step) * step

# SPDX-License-Identifier: Apache-2.0
"""Batches without their padding: the tokens of all rows end to end, as a single row.

Products, norms and everything else that is computed for each token by itself is then computed for
no padding. Attention, which needs the rows, gathers queries, keys and values to a few groups of
rows of similar lengths, each padded to its own longest row, and gathers the results back.

The number of tokens is only known from the mask: these functions need TensorFlow or PyTorch, whose
shapes are dynamic.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import keras
from keras import ops

from keras_bert.ops import dispatch
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.context_variables import assigned
from keras_bert.ops.tokens import take

# Rows of a batch are divided by length into so many groups, in each of which attention is computed.
# Measured on CPUs: with more of them, what is saved is less than what the additional calls cost.
NUM_GROUPS = 4

# The form that a context asks for: "padded", "unpadded", or neither
_form = contextvars.ContextVar("_form", default="")

# What `unpadded_rows` returns. A dict, since Keras' layers take and return them.
_NAMES = (
    *("tokens", "row_ids", "position_ids", "starts", "lengths"),
    *("attended", "keys", "places", "origins"),
)
Rows: TypeAlias = "dict[str, Any]"


def unpadded_rows(padding_mask: Tensor) -> Rows:
    """Finds the tokens of a batch that are computed, and where attention reads them.

    These are all tokens up to the last one of each row that is not padding, and the first token of
    a row that is all padding. So positions in a row are what they were, and no row is empty.

    Args:
        padding_mask: Bool or int `(batch, length)`, 0 at padding.

    Returns:
        A dict of
        `tokens`: int32 `(tokens,)`, the index of each token in the flattened batch;
        `row_ids`: int32 `(tokens,)`, the row of each token;
        `position_ids`: int32 `(tokens,)`, the position of each token in its row;
        `starts`: int32 `(batch,)`, the index of each row's first token among the tokens;
        `lengths`: int32 `(batch,)`, the number of tokens of each row;
        `attended`: bool `(tokens,)`, whether other tokens of the row attend to each token;
        `keys`: int32 `(keys,)`, the index among the tokens of those that are attended to;
        `places`: int32 `(places,)`, the token at each place of the groups, one group after the
        other; a token beside it at their padding;
        `origins`: int32 `(tokens,)`, the place of each token;
        `masks`: a list of bool `(rows, length)` for each group, whose shape is that of the group:
        True at tokens that are attended to.
    """
    return _shared_graph()(padding_mask) if dispatch.is_tensorflow_graph() else _rows(padding_mask)


@functools.cache
def _shared_graph() -> Callable[[Tensor], Rows]:
    """Returns `_rows` as one graph for all models: it has as many operations as two layers."""
    from keras_bert.ops.tensorflow_graphs import traced_once

    return traced_once(_rows, inline=True)


def _rows(padding_mask: Tensor) -> Rows:
    mask = ops.cast(padding_mask, "bool")
    batch, length = ops.shape(mask)[0], ops.shape(mask)[1]
    positions = ops.arange(length, dtype="int32")
    ends = ops.amax(ops.where(mask, positions + 1, 0), axis=1)
    lengths = ops.maximum(ends, 1)
    # A row that is all padding attends to its first token, and so to no other row's.
    mask = ops.logical_or(mask, ops.logical_and(ends[:, None] == 0, positions == 0))
    tokens = _true_indices(ops.reshape(positions < lengths[:, None], (-1,)))
    starts = ops.cumsum(lengths) - lengths
    attended = take(ops.reshape(mask, (-1,)), tokens)

    # In ascending order of length, the rows of a group stand together, and its last is its longest.
    order = ops.cast(ops.argsort(lengths), "int32")
    ascending = take(lengths, order)
    bounds = [batch * group // NUM_GROUPS for group in range(NUM_GROUPS + 1)]
    longest = ops.concatenate([ops.zeros((1,), "int32"), ascending])  # of the first rows
    shapes = [(end - begin, _as_size(longest[end])) for begin, end in itertools.pairwise(bounds)]
    widths = ops.concatenate([ops.full((size,), width, "int32") for size, width in shapes])
    place_ends = ops.cumsum(widths)
    index = ops.arange(sum(size * width for size, width in shapes), dtype="int32")
    # The row of each place, counted in that order. Behind its last token, a row repeats it.
    row = ops.cast(ops.searchsorted(place_ends, index, side="right"), "int32")
    first_places = place_ends - widths
    first_tokens = take(starts, order)
    unlimited = index + take(first_tokens - first_places, row)
    last = take(first_tokens + ascending - 1, row)
    places = ops.minimum(unlimited, last)
    are_attended = ops.logical_and(unlimited <= last, take(attended, places))
    # From that order to that of the rows, then from rows to tokens
    first_places = take(first_places, ops.argsort(order))
    row_ids = tokens // length
    return {
        "tokens": tokens,
        "row_ids": row_ids,
        "position_ids": tokens - row_ids * length,
        "starts": starts,
        "lengths": lengths,
        "attended": attended,
        "keys": _true_indices(attended),
        "places": places,
        "origins": ops.arange(ops.shape(tokens)[0], dtype="int32")
        + take(first_places - starts, row_ids),
        "masks": _in_groups(are_attended, shapes),
    }


def unpad(x: Tensor, rows: Rows) -> Tensor:
    """Returns the tokens of a batch, `(batch, length, ...)`, as one row, `(1, tokens, ...)`."""
    return take(ops.reshape(x, (-1, *x.shape[2:])), rows["tokens"])[None]


def pad(x: Tensor, rows: Rows, shape: Tensor) -> Tensor:
    """Returns tokens as a batch, with zeros at padding; the inverse of `unpad`.

    Args:
        x: Tensor of shape `(1, tokens, dim)`.
        rows: What `unpadded_rows` returned.
        shape: The shape of the batch, `(batch, length)`.

    Returns:
        A tensor of shape `(batch, length, dim)`.
    """
    batch, length = shape
    # (`ops.scatter` adds one token after the other on PyTorch.)
    zeros = ops.zeros((batch * length, x.shape[-1]), x.dtype)
    flat = ops.scatter_update(zeros, rows["tokens"][:, None], x[0])
    return ops.reshape(flat, (batch, length, x.shape[-1]))


def index_of_tokens(positions: Tensor, rows: Rows) -> Tensor:
    """Returns where the tokens at positions of the rows are, once they are end to end.

    Args:
        positions: int `(batch, slots)`. Behind the last token of a row, the last one is returned.
        rows: What `unpadded_rows` returned.

    Returns:
        int32 `(1, batch * slots)`.
    """
    positions = ops.minimum(ops.cast(positions, "int32"), rows["lengths"][:, None] - 1)
    return ops.reshape(rows["starts"][:, None] + positions, (1, -1))


def groups_of(rows: Rows) -> list[Tensor]:
    """Returns the masks of the groups, without those that are known to have no rows."""
    return [mask for mask in rows["masks"] if mask.shape[0] != 0]


def grouped(x: Tensor, rows: Rows, training: bool = False) -> list[Tensor]:
    """Gathers tokens `(1, tokens, ...)` to a tensor `(rows, length, ...)` for each group."""
    flat = _gathered(x, rows["places"], rows["origins"], training)
    shapes = [tuple(ops.shape(mask)) for mask in groups_of(rows)]
    return _in_groups(flat, shapes, x.shape[2:])


def ungrouped(groups: list[Tensor], rows: Rows, training: bool = False) -> Tensor:
    """Gathers what was computed for groups, `(rows, length, ...)` each, to `(1, tokens, ...)`."""
    dims = groups[0].shape[2:]
    flat = ops.concatenate([ops.reshape(group, (-1, *dims)) for group in groups])
    tokens = _gathered(flat[None], rows["origins"], None, training)
    return ops.reshape(tokens, (1, -1, *dims))


def may_compute_unpadded(enabled: bool | None) -> bool:
    """Returns whether this backend and device can have batches that `computes_unpadded`.

    Args:
        enabled: See `computes_unpadded`.
    """
    if enabled is None:
        return dispatch.tensorflow_cpu_kernels(training=True) is not None
    return enabled and keras.backend.backend() in ("tensorflow", "torch")


def computes_unpadded(enabled: bool | None, training: bool = False) -> bool:
    """Returns whether batches are computed without padding.

    Args:
        enabled: Whether they are where the backend can do so, if `torch.compile` does not trace
            them; `None` for where it is faster: on TensorFlow without a GPU, in `unpadded_form()`,
            if XLA does not compile the graph. In training, XLA compiles the kernels between
            products for each new number of tokens, which takes longer than a step.
        training: Whether gradients will be computed.
    """
    if not may_compute_unpadded(enabled) or dispatch.is_torch_graph() or _form.get() == "padded":
        return False
    if enabled is not None:
        return enabled
    plain: Any = dispatch.tensorflow_plain()
    return not training and _form.get() == "unpadded" and not plain.is_compiled_as_a_whole()


def padded_form() -> contextlib.AbstractContextManager[None]:
    """Has all encoders compute padding, whatever they are set to.

    For graphs that other runtimes execute, and for batches that have next to no padding.
    """
    return assigned(_form, "padded")


def unpadded_form() -> contextlib.AbstractContextManager[None]:
    """Has encoders compute no padding in inference, where that is faster, if they may choose.

    Not every graph does: those that are exported may be converted for runtimes that lack operations
    of this form. In `padded_form()` it has no effect.
    """
    if not may_compute_unpadded(None):
        return contextlib.nullcontext()  # `torch.compile` cannot trace context variables.
    return assigned(_form, _form.get() or "unpadded")


def is_unpadded(rows: Rows | None) -> bool:
    """Returns whether a batch is unpadded, of which this is what `Unpadding` returned."""
    return rows is not None and rows["tokens"] is not None


def no_rows() -> Rows:
    """Returns the structure of what `unpadded_rows` returns, with `None` for each tensor."""
    return {**dict.fromkeys(_NAMES), "masks": [None] * NUM_GROUPS}


def _gathered(x: Tensor, indices: Tensor, origins: Tensor | None, training: bool) -> Tensor:
    """Gathers rows of the second axis of `(1, number, ...)`, flattened to `(indices, width)`."""
    width = 1
    for dim in x.shape[2:]:
        width *= dim
    x = ops.reshape(x, (-1, width))
    kernels = dispatch.tensorflow_cpu_kernels(training)
    if kernels is not None and origins is not None:
        return kernels.gather_once(x, indices, origins)
    return take(x, indices)


def _in_groups(flat: Tensor, shapes: list[Any], dims: Sequence[int] = ()) -> list[Tensor]:
    """Divides places, one group after the other, into `(rows, length, *dims)` for each group."""
    plain = dispatch.tensorflow_plain()
    sizes = [size * length for size, length in shapes]
    # The gradient is joined, while those of slices would be added up.
    parts: Sequence[Tensor] = flat.split(sizes) if plain is None else plain.split(flat, sizes)
    return [ops.reshape(part, (*shape, *dims)) for part, shape in zip(parts, shapes, strict=True)]


def _true_indices(mask: Tensor) -> Tensor:
    """Returns the indices of True in `(number,)`, int32."""
    return ops.cast(ops.nonzero(mask)[0], "int32")


def _as_size(length: Tensor) -> Tensor:
    """Returns a scalar as a size of a shape."""
    return int(length) if keras.backend.backend() == "torch" else length

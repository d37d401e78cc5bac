# SPDX-License-Identifier: Apache-2.0
"""Maps this package's weights to the tensors in a checkpoint format.

A mapping contains the tensor names for each weight, and whether the tensors are transposed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_bert.checkpoints.config_fields import ZERO_SEGMENTS
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.tensors import TensorSource
from keras_bert.checkpoints.weights import backbone_weight_shapes, split_block
from keras_bert.config import BertConfig
from keras_bert.families.records import StoredTensor, WeightNames


def backbone_layout(names: WeightNames, config: BertConfig) -> dict[str, StoredTensor]:
    """Returns how a format stores an encoder's weights."""
    layout = {}
    owners = sorted({*config.attention_owners, *config.feed_forward_owners})
    groups = {owner: group for group, owner in enumerate(owners)}
    for weight_name in backbone_weight_shapes(config):
        index, rest = split_block(weight_name)
        if index is None:
            if weight_name in names.encoder:
                layout[weight_name] = names.encoder[weight_name]
            continue
        scope = names.block_scope.format(layer=index, group=groups[index])
        stored = names.block[rest]
        changes: dict[str, Any] = {"names": tuple(scope + name for name in stored.names)}
        if config.num_key_value_heads is not None and "query_key_value" in rest:
            key_dim = config.num_key_value_heads * config.head_dim
            changes["widths"] = (config.hidden_dim, key_dim, key_dim)
        if stored.columns is not None:
            changes["columns"] = functools.partial(stored.columns, head_dim=config.head_dim)
        layout[weight_name] = dataclasses.replace(stored, **changes)
    return layout


def zero_segments(names: WeightNames, config: BertConfig) -> dict[str, np.ndarray[Any, Any]]:
    """Returns zero segment embeddings for an encoder without segments."""
    (name,) = names.encoder["embeddings.segment_embeddings"].names
    return {name: np.zeros((ZERO_SEGMENTS, config.embedding_width), np.float32)}


def stored_shapes(stored: StoredTensor, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Returns the required tensor shapes for a weight's shape."""
    count = len(stored.names)
    if count == 1:
        widths: tuple[int, ...] = (shape[-1] - stored.second_of_two,)
    else:
        widths = stored.widths or (shape[-1] // count,) * count
    shapes = [(*shape[:-1], *widths[index : index + 1]) for index in range(count)]
    return [each[::-1] for each in shapes] if stored.transposed else shapes


def check_shape(stored: StoredTensor, shape: tuple[int, ...], source: TensorSource) -> None:
    """Checks a weight's tensor shapes."""
    for name, needed_shape in zip(stored.names, stored_shapes(stored, shape), strict=True):
        shape_in_file = source.shape(name)
        if shape_in_file != needed_shape:
            raise CheckpointError(
                f"{source.file(name)}: tensor {source.label(name)!r} must have shape "
                f"{needed_shape}. Received: {shape_in_file}"
            )


def assemble(stored: StoredTensor, source: TensorSource) -> np.ndarray[Any, Any]:
    """Reads a weight's tensors and combines them into its value, in float32.

    Integers (from a quantized model), NaN and infinity raise an error.
    """
    arrays = [_read_float(name, source) for name in stored.names]
    if stored.transposed:
        arrays = [array.T for array in arrays]
    if stored.second_of_two:
        arrays = [np.zeros_like(arrays[0]), *arrays]
    whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)
    return whole if stored.columns is None else whole[..., stored.columns(whole.shape[-1])]


def _read_float(name: str, source: TensorSource) -> np.ndarray[Any, Any]:
    tensor = source.read(name)
    if tensor.dtype.kind in "biu":
        raise CheckpointError(
            f"{source.file(name)}: tensor {source.label(name)!r} must have floating-point values. "
            f"Received: {tensor.dtype}. Quantized models are not supported."
        )
    # float32 represents float16 and bfloat16 exactly, and every backend supports it.
    tensor = tensor.astype(np.float32, copy=False)
    check_finite(tensor, f"{source.file(name)}: tensor {source.label(name)!r}")
    return tensor


def check_finite(weight: np.ndarray[Any, Any], name: str) -> None:
    """Checks that all values in a weight are finite."""
    is_finite = np.isfinite(weight)
    if not is_finite.all():
        first = tuple(int(index) for index in np.argwhere(~is_finite)[0])
        raise CheckpointError(
            f"{name} must only have finite values. Received: "
            f"{weight.size - np.count_nonzero(is_finite)} infinite or NaN values, the first is "
            f"{weight[first]} at {list(first)}"
        )


def disassemble(
    stored: StoredTensor, value: np.ndarray[Any, Any]
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yields a weight's tensors with their names. The inverse of `assemble`."""
    if stored.columns is not None:
        value = value[..., np.argsort(stored.columns(value.shape[-1]))]
    ends: Any = len(stored.names)
    if stored.widths is not None:
        ends = np.cumsum(stored.widths)[:-1]
    for name, array in zip(stored.names, np.split(value, ends, -1), strict=True):
        yield name, np.ascontiguousarray(array.T if stored.transposed else array)

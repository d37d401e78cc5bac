# SPDX-License-Identifier: Apache-2.0
"""Layouts: how a checkpoint format stores the weights of this package.

A layout has, for each weight, the names of the tensors, and whether they are transposed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.tensors import TensorSource


@dataclasses.dataclass(frozen=True)
class Stored:
    """How a weight is stored in a file.

    Args:
        names: The names of its tensors. Several tensors are concatenated along the last axis, such
            as query, key and value, which are one kernel in this package.
        transposed: Whether the tensors are transposed, `(output, input)`.
        copies: Other names that the tensor has in some files. In a file with both names, the tensor
            of the usual name is the weight, and the other one may be another weight.
        widths: The sizes of the tensors along the last axis of the weight; `None` for equal ones.
        halves_swapped: Whether the second half of the weight is stored before the first one.
        second_of_two: Whether it is stored for the second of two classes alone, as by a classifier
            with one output and a sigmoid, which is a softmax with the logit 0 of the first class.
        instead: The name of a tensor that is this weight in the files that have it, even if they
            have a tensor of the usual name too, which may be another weight.
    """

    names: tuple[str, ...]
    transposed: bool = False
    copies: tuple[str, ...] = ()
    instead: str | None = None
    widths: tuple[int, ...] | None = None
    halves_swapped: bool = False
    second_of_two: bool = False

    def found_in(self, names: Collection[str]) -> Stored:
        """Replaces the name by the one of these names in a file that the weight has there."""
        if len(self.names) > 1:
            return self
        present = [name for name in self.all_names if name in names] or list(self.names)
        return dataclasses.replace(
            self, names=(present[0],), copies=tuple(present[1:]), instead=None
        )

    @property
    def all_names(self) -> tuple[str, ...]:
        """All names that the tensors have, in order of preference."""
        return (*([self.instead] if self.instead else []), *self.names, *self.copies)


# The name of a weight in this package -> how the format stores it.
Layout = Mapping[str, Stored]


def stored_shapes(stored: Stored, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Returns the shape that each tensor of a weight must have, by the shape of the weight."""
    count = len(stored.names)
    if count == 1:
        widths: tuple[int, ...] = (shape[-1] - stored.second_of_two,)
    else:
        widths = stored.widths or (shape[-1] // count,) * count
    shapes = [(*shape[:-1], *widths[index : index + 1]) for index in range(count)]
    return [each[::-1] for each in shapes] if stored.transposed else shapes


def check_shape(stored: Stored, shape: tuple[int, ...], source: TensorSource) -> None:
    """Checks that the tensors of a weight have the right shapes."""
    for name, needed_shape in zip(stored.names, stored_shapes(stored, shape), strict=True):
        shape_in_file = source.shape(name)
        if shape_in_file != needed_shape:
            raise CheckpointError(
                f"{source.file(name)}: tensor {source.label(name)!r} has shape {shape_in_file}; "
                f"the model needs {needed_shape}."
            )


def assemble(stored: Stored, source: TensorSource) -> np.ndarray[Any, Any]:
    """Reads the tensors of a weight, and combines them to its value, float32.

    Integers (of a quantized model), NaN and infinity are errors.
    """
    arrays = [_read_float(name, source) for name in stored.names]
    if stored.transposed:
        arrays = [array.T for array in arrays]
    if stored.second_of_two:
        arrays = [np.zeros_like(arrays[0]), *arrays]
    whole = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)
    return _with_halves_swapped(whole) if stored.halves_swapped else whole


def _with_halves_swapped(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.roll(value, value.shape[-1] // 2, axis=-1)


def _read_float(name: str, source: TensorSource) -> np.ndarray[Any, Any]:
    tensor = source.read(name)
    if tensor.dtype.kind in "biu":
        raise CheckpointError(
            f"{source.file(name)}: tensor {source.label(name)!r} holds {tensor.dtype}; "
            "expected floating-point weights. Quantized models are not supported."
        )
    # float32 represents float16 and bfloat16 exactly, and every backend supports it.
    tensor = tensor.astype(np.float32, copy=False)
    check_finite(tensor, f"{source.file(name)}: tensor {source.label(name)!r}")
    return tensor


def check_finite(weight: np.ndarray[Any, Any], name: str) -> None:
    """Checks that all values of a weight are finite."""
    is_finite = np.isfinite(weight)
    if not is_finite.all():
        first = tuple(int(index) for index in np.argwhere(~is_finite)[0])
        raise CheckpointError(
            f"{name} holds {weight.size - np.count_nonzero(is_finite)} values that are infinite "
            f"or NaN, the first one {weight[first]} at {list(first)}; expected finite weights."
        )


def disassemble(
    stored: Stored, value: np.ndarray[Any, Any]
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yields the names and values of the tensors of a weight, the inverse of `assemble`."""
    if stored.halves_swapped:
        value = _with_halves_swapped(value)
    ends: Any = len(stored.names)
    if stored.widths is not None:
        ends = np.cumsum(stored.widths)[:-1]
    for name, array in zip(stored.names, np.split(value, ends, -1), strict=True):
        yield name, np.ascontiguousarray(array.T if stored.transposed else array)

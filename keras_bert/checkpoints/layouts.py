# SPDX-License-Identifier: Apache-2.0
"""How a format stores our weights: under which names, in how many parts, which way round."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.checkpoints.tensors import TensorSource


@dataclasses.dataclass(frozen=True)
class Stored:
    """How one weight of ours lies in a file.

    Args:
        names: The tensors that make it up. Several stand side by side along its last axis, as
            query, key and value do in the one kernel that we keep for the three.
        transposed: Whether the file has the axes the other way round, `(output, input)`.
        copies: Other names under which some files hold the same tensor.
    """

    names: tuple[str, ...]
    transposed: bool = False
    copies: tuple[str, ...] = ()

    def found_in(self, names: Collection[str]) -> Stored:
        """The same, with the name of a copy where only the copy is there."""
        if len(self.names) > 1 or self.names[0] in names:
            return self
        copy = next((name for name in self.copies if name in names), self.names[0])
        return dataclasses.replace(self, names=(copy,))


# Our name of a weight -> how the format stores it.
Layout = Mapping[str, Stored]


def stored_shape(stored: Stored, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that each stored part must have, for a weight of ours of a shape."""
    part = (*shape[:-1], shape[-1] // len(stored.names))
    return part[::-1] if stored.transposed else part


def check_shape(stored: Stored, shape: tuple[int, ...], source: TensorSource) -> None:
    """Raises if what is stored cannot become a weight of this shape.

    Raises:
        CheckpointError: Names the file, the tensor, the shape expected and the one found.
    """
    expected = stored_shape(stored, shape)
    for name in stored.names:
        found = source.shape(name)
        if found != expected:
            raise CheckpointError(
                f"{source.file(name)}: tensor {source.label(name)!r} has shape {found}; "
                f"the model needs {expected}."
            )


def assemble(stored: Stored, source: TensorSource) -> np.ndarray[Any, Any]:
    """A weight of ours, float32, from the tensors that make it up.

    Raises:
        CheckpointError: If a tensor cannot be read, or holds integers (a quantized model), NaN or
            infinity.
    """
    parts = [_read_float(name, source) for name in stored.names]
    if stored.transposed:
        parts = [part.T for part in parts]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def _read_float(name: str, source: TensorSource) -> np.ndarray[Any, Any]:
    tensor = source.read(name)
    if tensor.dtype.kind in "biu":
        raise CheckpointError(
            f"{source.file(name)}: tensor {source.label(name)!r} holds {tensor.dtype}; "
            "expected floating-point weights. Quantized models are not supported."
        )
    # float16 and bfloat16 fit into float32 without loss, and every backend takes float32.
    tensor = tensor.astype(np.float32, copy=False)
    is_finite = np.isfinite(tensor)
    if not is_finite.all():
        first = tuple(int(index) for index in np.argwhere(~is_finite)[0])
        raise CheckpointError(
            f"{source.file(name)}: tensor {source.label(name)!r} holds "
            f"{tensor.size - np.count_nonzero(is_finite)} values that are infinite or not a "
            f"number, the first one {tensor[first]} at {list(first)}; expected finite weights."
        )
    return tensor


def disassemble(
    stored: Stored, value: np.ndarray[Any, Any]
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """The inverse of `assemble`: the names and values of the tensors to store."""
    for name, part in zip(stored.names, np.split(value, len(stored.names), -1), strict=True):
        yield name, np.ascontiguousarray(part.T if stored.transposed else part)

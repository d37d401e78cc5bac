# SPDX-License-Identifier: Apache-2.0
"""Reads named tensors one at a time, and writes safetensors files."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_bert.checkpoints.errors import CheckpointError

ALL_ROWS = slice(None)
# The supported dtypes of safetensors. Quantized models have other dtypes.
_DTYPES = (
    "F64",
    "F32",
    "F16",
    "BF16",
    "I64",
    "I32",
    "I16",
    "I8",
    "U64",
    "U32",
    "U16",
    "U8",
    "BOOL",
)
# Number of values compared at a time, so that a large table is never in memory twice
_VALUES_COMPARED = 1 << 22


class TensorSource(Protocol):
    """Interface of files with lazily read, named tensors."""

    def names(self) -> Collection[str]:
        """Returns the names of all tensors, without optimizer state and buffers."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns a tensor's shape without reading the tensor."""

    def read(self, name: str, rows: slice = ALL_ROWS) -> np.ndarray[Any, Any]:
        """Reads a tensor, or a slice along its first axis, in the file's dtype."""

    def label(self, name: str) -> str:
        """Returns a tensor's name in its file."""

    def file(self, name: str) -> str:
        """Returns the path of the file that contains a tensor."""


@dataclasses.dataclass(frozen=True)
class Location:
    """A tensor's file, and its name in the file."""

    path: Path
    name: str


class SafetensorsFiles:
    """Tensors in one or more safetensors files. The format contains data and no code.

    Args:
        locations: Location of each tensor by name.
    """

    def __init__(self, locations: Mapping[str, Location]) -> None:
        self._locations = locations
        self._shapes: dict[Path, dict[str, tuple[int, ...]]] = {}

    def names(self) -> Collection[str]:
        return self._locations.keys()

    def shape(self, name: str) -> tuple[int, ...]:
        location = self._locations[name]
        if location.path not in self._shapes:
            with open_safetensors(location.path) as file:
                self._shapes[location.path] = {
                    name: tuple(file.get_slice(name).get_shape())
                    for name in file.keys()  # noqa: SIM118
                }
        return self._shapes[location.path][location.name]

    def read(self, name: str, rows: slice = ALL_ROWS) -> np.ndarray[Any, Any]:
        location = self._locations[name]
        where = f"{location.path}: tensor {location.name!r}"
        with open_safetensors(location.path) as file:
            try:
                tensor_slice = file.get_slice(location.name)
                if tensor_slice.get_dtype() not in _DTYPES:
                    raise CheckpointError(
                        f"{where} must have one of the dtypes {', '.join(_DTYPES)}. Received: "
                        f"{tensor_slice.get_dtype()}. Quantized models are not supported."
                    )
                whole = rows == ALL_ROWS  # A scalar cannot be sliced.
                tensor: np.ndarray[Any, Any] = (
                    file.get_tensor(location.name) if whole else tensor_slice[rows]
                )
            except SafetensorError as error:
                raise CheckpointError(f"{where} cannot be read: {error}.") from error
        return tensor

    def label(self, name: str) -> str:
        return self._locations[name].name

    def file(self, name: str) -> str:
        return str(self._locations[name].path)


def open_safetensors(path: Path) -> Any:
    """Opens a safetensors file, as a context manager."""
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file: {error}.") from error


def are_equal(first: str, second: str, source: TensorSource) -> bool:
    """Compares two tensors' shapes and values. The values are read in chunks."""
    shape = source.shape(first)
    if shape != source.shape(second):
        return False
    step = max(1, _VALUES_COMPARED // max(1, math.prod(shape[1:])))
    chunks = [ALL_ROWS]
    if shape:
        chunks = [slice(i, min(i + step, shape[0])) for i in range(0, shape[0], step)]
    return all(
        np.array_equal(source.read(first, chunk), source.read(second, chunk)) for chunk in chunks
    )


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Writes a safetensors file with the format `"pt"`, as `transformers` requires.

    Raises an `OSError` with the system's error number if writing fails.
    """
    try:
        path.touch()
        mode = path.stat().st_mode
        save_file(dict(tensors), path, metadata={"format": "pt"})
        path.chmod(mode)  # Files written by safetensors are readable only by the owner.
    except SafetensorError as error:
        match = re.search(r"\(os error (\d+)\)", str(error))
        if not match:
            raise
        code = int(match[1])
        raise OSError(code, os.strerror(code), str(path)) from error

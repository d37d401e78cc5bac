# SPDX-License-Identifier: Apache-2.0
"""Files of named tensors, read one tensor at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from keras_bert.checkpoints.errors import CheckpointError


class TensorSource(Protocol):
    """Named tensors that are read when they are asked for."""

    def names(self) -> Collection[str]:
        """The names of all tensors that matter (no optimizer state, no buffers)."""

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, without reading it."""

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """A tensor, in the dtype it is stored in."""

    def label(self, name: str) -> str:
        """The name as the file spells it."""

    def file(self, name: str) -> str:
        """The file a tensor lies in."""


@dataclasses.dataclass(frozen=True)
class Location:
    """Where a tensor lies: the file, and its name there."""

    path: Path
    name: str


class SafetensorsFiles:
    """Tensors in one or several safetensors files, a format that holds data and no code.

    Args:
        locations: Where each tensor lies, by the name it is asked for.
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

    def read(self, name: str) -> np.ndarray[Any, Any]:
        location = self._locations[name]
        with open_safetensors(location.path) as file:
            tensor: np.ndarray[Any, Any] = _get(location, file.get_tensor)
        return tensor

    def label(self, name: str) -> str:
        return self._locations[name].name

    def file(self, name: str) -> str:
        return str(self._locations[name].path)


def open_safetensors(path: Path) -> Any:
    """An open file, to be used in a `with` statement.

    Raises:
        CheckpointError: If the file is missing, cut off, or no safetensors file.
    """
    try:
        return safe_open(path, framework="numpy")
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: no readable safetensors file: {error}.") from error


def _get(location: Location, getter: Any) -> Any:
    try:
        return getter(location.name)
    except (SafetensorError, TypeError) as error:
        raise CheckpointError(
            f"{location.path}: tensor {location.name!r} cannot be read: {error}."
        ) from error


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Writes tensors to one file. `"pt"` is how readers are told of row-major tensors."""
    save_file(dict(tensors), path, metadata={"format": "pt"})

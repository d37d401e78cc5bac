# SPDX-License-Identifier: Apache-2.0
"""Reads and writes checkpoint tensors as one safetensors file, in a single process."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open

from keras_bert.checkpoints.tensors import write_safetensors

from .output_directory import file_sha256

_FILE = "tensors.safetensors"
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write(directory: Path, variables: Mapping[str, Any]) -> str:
    """Writes the values of variables, and returns the checksum of the file.

    Raises:
        OSError: If the file cannot be written, with the system's error number.
    """
    path = directory / _FILE
    write_safetensors(path, {name: to_numpy(variable) for name, variable in variables.items()})
    return file_sha256(path)


def check(directory: Path, checksum: str) -> None:
    """Checks that the file is unchanged since it was written.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If its checksum differs.
    """
    if file_sha256(directory / _FILE) != checksum:
        raise ValueError(f"the checksum of {_FILE} differs")


def shapes(directory: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each tensor."""
    with safe_open(directory / _FILE, "numpy") as file:
        names = file.keys()
        return {name: tuple(file.get_slice(name).get_shape()) for name in names}


def assign(directory: Path, variables: Mapping[str, Any]) -> None:
    """Reads the values of variables, one after the other to save memory."""
    with safe_open(directory / _FILE, "numpy") as file:
        for name, variable in variables.items():
            variable.assign(file.get_tensor(name))


def to_numpy(variable: Any) -> np.ndarray[Any, Any]:
    """Returns a variable's value as a NumPy array. This process must have the full value."""
    # `convert_to_numpy` fails for scalars that TensorFlow mirrors on multiple devices.
    return np.array(variable.numpy(), order="C")

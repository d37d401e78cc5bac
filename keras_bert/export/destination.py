# SPDX-License-Identifier: Apache-2.0
"""Exports appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def new_destination(filepath: str | os.PathLike[str], *, overwrite: bool = False) -> Iterator[Path]:
    """A working folder beside `filepath`; what is in it as `model` at the end is put there.

    Args:
        filepath: The file or folder to make.
        overwrite: Whether to replace what is there.

    Yields:
        The working folder, on the same disk, which is removed afterwards.

    Raises:
        FileExistsError: If there is something, and not `overwrite`.
        ValueError: If `filepath` is a URL.
    """
    if "://" in os.fspath(filepath):
        raise ValueError(
            f"filepath is {os.fspath(filepath)!r}; it must be local. Export to a folder, and copy "
            "that."
        )
    path = Path(filepath).absolute()
    if os.path.lexists(path) and not overwrite:
        raise FileExistsError(f"{path} exists already; pass overwrite=True to replace it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        yield Path(folder)
        if os.path.lexists(path):
            os.rename(path, Path(folder, "replaced"))
        os.rename(Path(folder, "model"), path)

# SPDX-License-Identifier: Apache-2.0
"""Exports appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

NEW, _REPLACED = "new", "replaced"


@contextlib.contextmanager
def new_destination(paths: Sequence[Path], *, overwrite: bool = False) -> Iterator[Path]:
    """A working folder beside `paths`; what its folder `new` holds of their names is put there.

    Args:
        paths: The files or folders to make, all in one folder.
        overwrite: Whether to replace what is there.

    Yields:
        The working folder, on the same disk, which is removed afterwards.

    Raises:
        FileExistsError: If there is something, and not `overwrite`.
    """
    existing = [path for path in paths if os.path.lexists(path)]
    if existing and not overwrite:
        raise FileExistsError(f"{existing[0]} exists already; pass overwrite=True to replace it.")
    parent = paths[0].absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{paths[0].name}.", dir=parent) as name:
        folder = Path(name)
        (folder / NEW).mkdir()
        (folder / _REPLACED).mkdir()
        yield folder
        for path in existing:
            os.rename(path, folder / _REPLACED / path.name)
        for path in paths:
            os.rename(folder / NEW / path.name, path)

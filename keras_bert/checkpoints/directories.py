# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the files in checkpoint directories."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from keras_bert.atomic import atomic_path, make_directory, scratch_directory
from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.vocabularies import files


@contextlib.contextmanager
def checkpoint_errors(path: Path | None = None) -> Iterator[None]:
    """Context manager that converts errors in reading and writing files to `CheckpointError`.

    If `path` is given, messages start with it.
    """
    try:
        yield
    except CheckpointError:
        raise
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: {error}" if path else f"{error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a file that contains a JSON object."""
    with checkpoint_errors():
        return files.read_json(path)


@contextlib.contextmanager
def replaced_files(
    directory: str | os.PathLike[str], owned: Collection[str] = (), last: str = "config.json"
) -> Iterator[Path]:
    """Context manager that yields a temporary directory. Its files replace the ones in `directory`.

    If the block raises an error, `directory` is neither changed nor created. Files that may be
    written (`owned`, relative to `directory`), but were not written this time, are removed. The
    file `last` is moved last, because it determines the format. A new directory is therefore not
    recognized before its weights are complete.
    """
    target = Path(directory)
    if not target.exists():
        make_directory(target.absolute().parent)
        with atomic_path(target) as temporary:
            temporary.mkdir()
            yield temporary
        return
    make_directory(target)
    # The scratch directory is inside the target, so that moving a file is a rename on one disk.
    with scratch_directory(target, target.name) as scratch:
        temporary = scratch / "files"
        temporary.mkdir()
        yield temporary
        paths = (path for path in temporary.rglob("*") if path.is_file())
        names = [path.relative_to(temporary).as_posix() for path in paths]
        for name in sorted(names, key=lambda name: (name == last, name)):
            (target / name).parent.mkdir(exist_ok=True)
            os.replace(temporary / name, target / name)
        for name in set(owned) - set(names):
            (target / name).unlink(missing_ok=True)
            if "/" in name:
                with contextlib.suppress(OSError):  # It is missing or not empty.
                    (target / name).parent.rmdir()

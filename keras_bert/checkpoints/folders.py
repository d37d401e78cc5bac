# SPDX-License-Identifier: Apache-2.0
"""Reading and writing of the files of checkpoint folders."""

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
    """Context manager that converts errors of reading and writing files to `CheckpointError`.

    With a `path`, messages start with it.
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
    folder: str | os.PathLike[str], owned: Collection[str] = (), last: str = "config.json"
) -> Iterator[Path]:
    """Context manager that yields a temporary folder; its files then replace the ones in `folder`.

    If the block raises an error, the files of `folder` are not changed, and it is not created. A
    file that may be written (`owned`, relative to the folder), but is left from an earlier time,
    is removed. The file `last` is moved last: the format of a folder is
    detected by it, so that a new folder is not considered complete before its weights are there.
    """
    target = Path(folder)
    if not target.exists():
        make_directory(target.absolute().parent)
        with atomic_path(target) as temporary:
            temporary.mkdir()
            yield temporary
        return
    make_directory(target)
    # Inside the target, so that moving a file is a rename in the same file system.
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
                with contextlib.suppress(OSError):  # not empty, or missing
                    (target / name).parent.rmdir()

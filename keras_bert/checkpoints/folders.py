# SPDX-License-Identifier: Apache-2.0
"""Files read with errors that name them, and folders written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_bert.checkpoints.errors import CheckpointError
from keras_bert.vocabularies import files


@contextlib.contextmanager
def checkpoint_errors() -> Iterator[None]:
    """Raises the errors of reading and writing files as `CheckpointError`."""
    try:
        yield
    except CheckpointError:
        raise
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """A file's JSON object.

    Raises:
        CheckpointError: If the file cannot be read or holds anything else.
    """
    with checkpoint_errors():
        return files.read_json(path)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Writes an indented JSON object."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextlib.contextmanager
def replaced_files(
    folder: str | os.PathLike[str], owned: Collection[str] = (), last: str = "config.json"
) -> Iterator[Path]:
    """Yields an empty folder; what was written into it then replaces the files of `folder`.

    If the block raises, `folder` keeps the files it had.

    Args:
        folder: Where the files go; it is made where it does not exist.
        owned: Names of files that belong to what is written: those that were not written this
            time are left over from an earlier one, and are removed.
        last: The file to move last. Readers detect a folder's format by it, so a new
            folder is not taken for a complete one before its weights are there.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    # Inside the target, so that a move is a rename on one file system.
    temporary = target / f".writing-{uuid.uuid4().hex}"
    temporary.mkdir()
    try:
        yield temporary
        written = sorted(temporary.iterdir(), key=lambda path: (path.name == last, path.name))
        for path in written:
            os.replace(path, target / path.name)
        for name in set(owned) - {path.name for path in written}:
            (target / name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)

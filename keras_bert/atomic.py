# SPDX-License-Identifier: Apache-2.0
"""Atomic writes: a file or folder gets its name only when it is complete."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def atomic_path(
    path: str | os.PathLike[str], *, suffix: str = "", sync: bool = False
) -> Iterator[Path]:
    """Context manager that yields a temporary path next to `path`, and renames it to `path`.

    If the block raises an error, the temporary file is removed, and an existing file at `path` is
    not changed. A process that is killed leaves a hidden file or folder with `.partial` in its
    name.

    Args:
        path: Path of a file, which is replaced if it exists; or of a folder, which must be empty or
            not exist.
        suffix: The suffix of the temporary name, for libraries that depend on it.
        sync: Whether to flush the content and the renaming to disk, so that they survive a power
            failure.

    Yields:
        The temporary path, which does not exist.

    Raises:
        FileNotFoundError: If the folder of `path` does not exist, and the block does not create it.
        NotADirectoryError: If it is a file.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_path(f"{folder}/vocab.txt") as temporary:
    ...         _ = temporary.write_text("[PAD]")
    ...     os.listdir(folder)
    ['vocab.txt']
    """
    target = Path(path)
    # One name per process: several may write the same file, and the last one wins.
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial{suffix}")
    _remove(temporary)
    try:
        yield temporary
        if sync:
            _sync(temporary)
            for content in temporary.rglob("*"):
                _sync(content)
        os.replace(temporary, target)
        if sync:
            _sync(target.parent)
    except BaseException as error:
        _remove(temporary)
        if isinstance(error, OSError) and not target.parent.is_dir():
            # Its message would have the temporary name.
            raise _no_folder(target) from None
        raise


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file in UTF-8 atomically."""
    write_bytes(path, text.encode())


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes an indented JSON file atomically."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def make_folder(path: str | os.PathLike[str]) -> None:
    """Creates a folder and its parents, unless they exist.

    Raises:
        NotADirectoryError: If it or one of its parents is a file.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        blocking = next(part for part in (folder, *folder.parents) if os.path.lexists(part))
        raise NotADirectoryError(f"{folder} cannot be a folder: {blocking} is a file.") from None


def check_folder_of(path: str | os.PathLike[str]) -> None:
    """Checks that the folder of a file to write exists.

    Raises:
        FileNotFoundError: If the folder does not exist.
        NotADirectoryError: If it is a file.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise _no_folder(target)


def _no_folder(target: Path) -> OSError:
    if target.parent.exists():
        return NotADirectoryError(f"{target} cannot be written: {target.parent} is not a folder.")
    return FileNotFoundError(
        f"{target} cannot be written: the folder {target.parent} does not exist."
    )


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Flushes a file or, where the system supports it, the entries of a folder to disk."""
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

# SPDX-License-Identifier: Apache-2.0
"""Atomic writes: a file or folder appears under its name once it is complete."""

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
    """Yields a temporary path beside `path`; what was written there is then renamed to `path`.

    If the block raises, what it wrote is removed, and what lay at `path` is untouched. Of a process
    that was killed meanwhile, a hidden file or folder whose name holds `.partial` is left.

    Args:
        path: The file, which is replaced if it exists; or a folder, which must not exist or be
            empty.
        suffix: What the temporary name ends with, where a library looks at it.
        sync: Whether the content and the renaming survive a power cut: the disk has them when the
            block has ended.

    Yields:
        The temporary path, at which there is nothing.

    Example:

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_path(f"{folder}/vocab.txt") as temporary:
    ...         _ = temporary.write_text("[PAD]")
    ...     os.listdir(folder)
    ['vocab.txt']
    """
    target = Path(path)
    # Of this process: several may write the same file, and the last one wins.
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
    except BaseException:
        _remove(temporary)
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


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Waits until the disk has a file or, where the system can, the entries of a folder."""
    if path.is_dir() and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

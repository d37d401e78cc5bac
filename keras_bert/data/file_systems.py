# SPDX-License-Identifier: Apache-2.0
"""Files to read, by path or by URL: remote file systems are read by fsspec."""

from __future__ import annotations

import os
from typing import Any, BinaryIO, NamedTuple, cast


class InputFile(NamedTuple):
    """A file to read.

    Attributes:
        path: The path, or a URL such as `s3://bucket/part-1.jsonl.gz`.
        size: The number of bytes.
    """

    path: str
    size: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return os.path.basename(self.path)


def is_url(path: str | os.PathLike[str]) -> bool:
    """Returns whether a path is a URL, such as `gs://bucket/file`."""
    return "://" in os.fspath(path)


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a file, or a URL by fsspec, for reading bytes."""
    if not is_url(path):
        return open(path, "rb")
    system, own_path = _file_system(os.fspath(path))
    return cast(BinaryIO, system.open(own_path, "rb"))


def find_urls(pattern: str) -> list[InputFile]:
    """Returns the files of a URL, by name: of a file, a glob pattern or a folder."""
    system, path = _file_system(pattern)
    paths = system.find(path) if system.isdir(path) else system.glob(path)
    files = [path for path in paths if not _is_hidden(path, pattern) and system.isfile(path)]
    return [InputFile(system.unstrip_protocol(path), system.size(path)) for path in sorted(files)]


def _is_hidden(path: str, pattern: str) -> bool:
    """Returns whether a file is hidden and not asked for, as `_SUCCESS` of Spark is not text."""
    name, pattern_name = path.rpartition("/")[2], pattern.rpartition("/")[2]
    return name.startswith((".", "_")) and not pattern_name.startswith((".", "_"))


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError(f"{url} is read by fsspec: pip install fsspec") from error
    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise type(error)(f"{url} cannot be read: {error}") from error
    return system, path

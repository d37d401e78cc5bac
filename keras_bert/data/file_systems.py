# SPDX-License-Identifier: Apache-2.0
"""Finds and opens input files, by path or by URL with fsspec."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

_WILDCARDS = "*?["


class InputFile(NamedTuple):
    """An input file.

    Attributes:
        path: The path, or a URL such as `s3://bucket/part-1.jsonl.gz`.
        size: The size in bytes.
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
    """Opens a file, or a URL with fsspec, for reading bytes."""
    if not is_url(path):
        return open(path, "rb")
    system, own_path = _file_system(os.fspath(path))
    return cast(BinaryIO, system.open(own_path, "rb"))


class Listing(NamedTuple):
    """Functions to list the files in a file system.

    Attributes:
        is_directory: Returns whether a path or URL is a directory.
        size: Returns the file size in bytes, or `None` if the file does not exist.
        files: Returns a dict from path to size for the files in a directory, down to the given
            number of levels (`None` for all levels).
        real_path: Resolves the links in a path.
    """

    is_directory: Callable[[str], bool]
    size: Callable[[str], int | None]
    files: Callable[[str, int | None], dict[str, int]]
    real_path: Callable[[str], str] = str


def find_files(path: str | os.PathLike[str], listing: Listing | None = None) -> list[InputFile]:
    """Finds the files that a path, directory, URL or glob pattern refers to, sorted by name.

    `*`, `?` and `[...]` match within a name, and `**` matches any number of directories. An
    existing file or directory takes precedence over a pattern, for example if its name contains
    `[`. Files and directories whose names start with `.`, and files whose names start with `_`
    (such as Spark's `_SUCCESS`), are skipped unless the pattern starts with the same character.
    Links are followed, and each file is only returned once.

    Args:
        path: The path or URL.
        listing: The file system. By default, the local file system, or the URL's file system
            through fsspec.
    """
    name = os.fspath(path)
    if os.name == "nt" and not is_url(name):
        name = name.replace(os.sep, "/")
    if listing is None:
        listing = _remote(name) if is_url(name) else _LOCAL
    if listing.is_directory(name):
        root, patterns = name.rstrip("/") or name, ["**"]
    elif (size := listing.size(name)) is not None:
        return [InputFile(name, size)]
    else:
        root, patterns = _split(name, listing)
    if not patterns:
        return []
    start = len(f"{root}/") if root != "/" else 1
    found = listing.files(root, None if "**" in patterns else len(patterns))
    names = {file: tuple(file[start:].split("/")) for file in found}
    matching = (file for file, own in names.items() if _matches(own, patterns))
    unnamed = "./" if root == "." else ""
    once: dict[str, str] = {}
    for file in sorted(matching, key=names.__getitem__):
        once.setdefault(listing.real_path(file), file)
    return [InputFile(file.removeprefix(unnamed), found[file]) for file in once.values()]


def _split(pattern: str, listing: Listing) -> tuple[str, list[str]]:
    """Splits a pattern into the directory that it starts with and the patterns below it."""
    parts = pattern.split("/")
    for index, part in enumerate(parts):
        has_wildcards = any(mark in part for mark in _WILDCARDS)
        if has_wildcards and not listing.is_directory("/".join(parts[: index + 1])):
            root = "/".join(parts[:index])
            return (root or "/", parts[index:]) if index else (".", parts)
    return pattern, []


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Returns whether the names in a path match the patterns."""
    if not patterns:
        return not names
    if patterns[0] == "**" and _matches(names, patterns[1:]):
        return True
    if not names:
        return False
    hidden = "._" if len(names) == 1 else "."
    if names[0][0] in hidden and names[0][0] != patterns[0][:1]:
        return False
    if patterns[0] == "**":
        return _matches(names[1:], patterns)
    return fnmatch.fnmatchcase(names[0], patterns[0]) and _matches(names[1:], patterns[1:])


def _local_files(root: str, levels: int | None) -> dict[str, int]:
    sizes = {}
    above = {root: [os.path.realpath(root)]}  # Real paths of each directory and its parents
    for directory, directories, names in os.walk(root, onerror=_check_listed, followlinks=True):
        parents = above.pop(directory)
        below = Path(directory).relative_to(root).parts
        found = sorted(directories) if len(below) + 1 != levels else ()
        directories.clear()
        for name in found:
            path = os.path.join(directory, name)
            real = os.path.realpath(path)
            if real not in parents:  # Otherwise, the link is in a loop.
                directories.append(name)
                above[path] = [*parents, real]
        for name in names:
            path = "/".join((root.rstrip("/"), *below, name))
            if os.path.isfile(path):
                sizes[path] = os.path.getsize(path)
    return sizes


def _check_listed(error: OSError) -> None:
    """Raises an error if a directory cannot be listed, because its files would be skipped."""
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


def _remote(url: str) -> Listing:
    system, _ = _file_system(url)

    def size(path: str) -> int | None:
        return system.size(path) if system.isfile(path) else None

    def files(root: str, levels: int | None) -> dict[str, int]:
        start = len(_file_system(root)[1])
        found = system.find(root, maxdepth=levels, detail=True)
        return {
            f"{root}{path[start:]}": file["size"]
            for path, file in found.items()
            if file["type"] == "file" or system.isfile(path)  # A link may be a directory.
        }

    return Listing(system.isdir, size, files)


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError(f"Reading {url} requires fsspec: pip install fsspec") from error
    try:
        system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise type(error)(f"{url} cannot be read: {error}") from error
    return system, path


_LOCAL = Listing(
    os.path.isdir,
    lambda path: os.path.getsize(path) if os.path.isfile(path) else None,
    _local_files,
    os.path.realpath,
)

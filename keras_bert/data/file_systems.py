# SPDX-License-Identifier: Apache-2.0
"""Files to read, by path or by URL: remote file systems are read by fsspec."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

_WILDCARDS = "*?["


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


class Listing(NamedTuple):
    """How the files of a file system are listed.

    Attributes:
        is_folder: Returns whether a path or URL is that of a folder.
        size: Returns the size of a file in bytes; `None` if there is no such file.
        files: Returns the sizes of all files in a folder by their paths, of the given number of
            levels; `None` for all levels.
        real_path: Returns the path of a file without links.
    """

    is_folder: Callable[[str], bool]
    size: Callable[[str], int | None]
    files: Callable[[str, int | None], dict[str, int]]
    real_path: Callable[[str], str] = str


def find_files(path: str | os.PathLike[str], listing: Listing | None = None) -> list[InputFile]:
    """Returns the files of a path or URL, by name: of a file, a folder or a glob pattern.

    `*`, `?` and `[...]` match within a name, `**` any number of folders. A file or folder that
    exists is taken as it is, also if its name has such characters. Files and folders whose names
    begin with `.`, and files whose names begin with `_`, such as Spark's `_SUCCESS`, are left out,
    unless a pattern begins so too. Links are followed; a file that is found twice is read once.

    Args:
        path: The path or URL.
        listing: The file system; by default this machine's, or that of the URL by fsspec.
    """
    name = os.fspath(path)
    if os.name == "nt" and not is_url(name):
        name = name.replace(os.sep, "/")
    if listing is None:
        listing = _remote(name) if is_url(name) else _LOCAL
    if listing.is_folder(name):
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
    """Returns the folder that a pattern begins with, and the patterns below it."""
    parts = pattern.split("/")
    for index, part in enumerate(parts):
        has_wildcards = any(mark in part for mark in _WILDCARDS)
        if has_wildcards and not listing.is_folder("/".join(parts[: index + 1])):
            root = "/".join(parts[:index])
            return (root or "/", parts[index:]) if index else (".", parts)
    return pattern, []


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    """Returns whether the names of a path match patterns, one for each name."""
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
    above = {root: [os.path.realpath(root)]}  # of each folder, and of those that it was reached by
    for folder, folders, names in os.walk(root, onerror=_check_listed, followlinks=True):
        parents = above.pop(folder)
        below = Path(folder).relative_to(root).parts
        found = sorted(folders) if len(below) + 1 != levels else ()
        folders.clear()
        for name in found:
            path = os.path.join(folder, name)
            real = os.path.realpath(path)
            if real not in parents:  # else a link in a loop
                folders.append(name)
                above[path] = [*parents, real]
        for name in names:
            path = "/".join((root.rstrip("/"), *below, name))
            if os.path.isfile(path):
                sizes[path] = os.path.getsize(path)
    return sizes


def _check_listed(error: OSError) -> None:
    """Raises an error if a folder exists, but cannot be listed: its texts would be left out."""
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
            if file["type"] == "file" or system.isfile(path)  # else a link, maybe to a folder
        }

    return Listing(system.isdir, size, files)


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


_LOCAL = Listing(
    os.path.isdir,
    lambda path: os.path.getsize(path) if os.path.isfile(path) else None,
    _local_files,
    os.path.realpath,
)

# SPDX-License-Identifier: Apache-2.0
"""A local directory of pre-training records."""

from __future__ import annotations

import contextlib
import fnmatch
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from keras_bert import atomic


class RecordDirectory:
    """A directory of files. Their names are relative to it and may contain `/`."""

    def __init__(self, path: str) -> None:
        self.path = path

    def path_of(self, name: str) -> str:
        """Returns a file's path."""
        return str(Path(self.path) / name)

    def names(self, pattern: str) -> list[str]:
        """Returns the names that match a pattern such as `.work/statistics-*`."""
        parent, _, last = pattern.rpartition("/")
        directory = Path(self.path) / parent
        names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
        prefix = f"{parent}/" if parent else ""
        return [prefix + name for name in sorted(names) if fnmatch.fnmatchcase(name, last)]

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Context manager that yields a file to write. The file is renamed once it is complete."""
        path = Path(self.path_of(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.atomic_path(path) as temporary, open(temporary, "wb") as file:
            yield file

    def open(self, name: str) -> BinaryIO:
        """Opens a file for reading."""
        return open(self.path_of(name), "rb")

    def read(self, name: str) -> bytes:
        """Returns a file's content."""
        with self.open(name) as file:
            return file.read()

    def read_json(self, name: str) -> dict[str, Any]:
        """Returns the object in a JSON file."""
        return json.loads(self.read(name))

    def write(self, name: str, content: bytes) -> None:
        """Writes a file atomically."""
        with self.create(name) as file:
            file.write(content)

    def write_json(self, name: str, value: Any) -> None:
        """Writes an indented JSON file atomically."""
        self.write(name, (json.dumps(value, indent=2) + "\n").encode())

    def remove(self, name: str) -> None:
        """Removes a file, or a directory with all its files."""
        path = Path(self.path_of(name))
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

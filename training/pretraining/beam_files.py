# SPDX-License-Identifier: Apache-2.0
"""Files of the file systems that Apache Beam reads and writes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import BinaryIO

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from keras_bert.data.file_systems import InputFile, is_url

from .record_folder import RecordFolder

# Compressed files are recognized by their first bytes where they are read.
_AS_IT_IS = CompressionTypes.UNCOMPRESSED


def find_urls(pattern: str) -> list[InputFile]:
    """Returns the files of a URL, by name: of a file, a glob pattern or a folder."""
    # A folder comes first, since some file systems match it as if it were a file.
    for glob in (FileSystems.join(pattern, "**"), pattern):
        (match,) = FileSystems.match([glob])
        found = {file.path: file.size_in_bytes for file in match.metadata_list}
        # Object stores have empty objects for folders; `_SUCCESS` of Spark is not text.
        files = [
            InputFile(path, size)
            for path, size in sorted(found.items())
            if not path.endswith("/") and not path.rpartition("/")[2].startswith((".", "_"))
        ]
        if files:
            return files
    return []


def open_input(path: str) -> BinaryIO:
    """Opens a file or a URL for reading."""
    return FileSystems.open(path, compression_type=_AS_IT_IS) if is_url(path) else open(path, "rb")


def record_folder(path: str) -> RecordFolder:
    """Returns the folder at a path, or at a URL such as `gs://bucket/records`."""
    return BeamFolder(path) if is_url(path) else RecordFolder(path)


class BeamFolder(RecordFolder):
    """The files of a folder on a file system of Beam.

    Args:
        path: The URL of the folder.
    """

    def path_of(self, name: str) -> str:
        return FileSystems.join(self.path, *name.split("/"))

    def names(self, pattern: str) -> list[str]:
        (match,) = FileSystems.match([self.path_of(pattern)])
        parent = pattern.rpartition("/")[0]
        prefix = f"{parent}/" if parent else ""
        return sorted(prefix + FileSystems.split(file.path)[1] for file in match.metadata_list)

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        # What a killed worker leaves is removed with the folder `work`.
        temporary = self.path_of(f"work/{uuid.uuid4().hex}.partial")
        try:
            with FileSystems.create(temporary, compression_type=_AS_IT_IS) as file:
                yield file
            with contextlib.suppress(FileExistsError, OSError):
                FileSystems.mkdirs(FileSystems.split(self.path_of(name))[0])
            self.remove(name)  # Not every file system replaces a file by renaming another.
            FileSystems.rename([temporary], [self.path_of(name)])
        except BaseException:
            with contextlib.suppress(OSError):
                FileSystems.delete([temporary])
            raise

    def open(self, name: str) -> BinaryIO:
        return FileSystems.open(self.path_of(name), compression_type=_AS_IT_IS)

    def remove(self, name: str) -> None:
        path = self.path_of(name)
        if (
            FileSystems.exists(path)
            or FileSystems.match([FileSystems.join(path, "*")])[0].metadata_list
        ):
            FileSystems.delete([path])

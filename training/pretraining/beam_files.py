# SPDX-License-Identifier: Apache-2.0
"""Reads and writes files on Apache Beam's file systems."""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from keras_bert.data.file_systems import Listing, is_url

from .record_directory import RecordDirectory

# The readers detect compression by the first bytes, so Beam must not decompress files.
_AS_IT_IS = CompressionTypes.UNCOMPRESSED
_GLOB_CHARACTERS = "*?["


def set_options(options: Sequence[str]) -> None:
    """Sets options of the file systems, such as `--s3_endpoint_url=http://localhost:9000`.

    A pipeline also sets them, but input files are listed before the pipeline exists.
    """
    FileSystems.set_options(PipelineOptions(list(options)))


def _is_directory(path: str) -> bool:
    return not any(mark in path for mark in _GLOB_CHARACTERS) and bool(_files(path, None))


def _size(path: str) -> int | None:
    return FileSystems.get_filesystem(path).size(path) if FileSystems.exists(path) else None


def _files(root: str, levels: int | None) -> dict[str, int]:
    pattern = FileSystems.join(root, "**" if levels is None else "/".join("*" * levels))
    # Object stores represent directories as empty objects.
    (match,) = FileSystems.match([pattern])
    files = match.metadata_list
    return {file.path: file.size_in_bytes for file in files if not file.path.endswith("/")}


LISTING = Listing(_is_directory, _size, _files)


def open_input(path: str) -> BinaryIO:
    """Opens a file or URL for reading, in a worker."""
    if is_url(path):
        return FileSystems.open(path, compression_type=_AS_IT_IS)
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise FileNotFoundError(
            "--input_files must be readable by all workers. Received: "
            f"{path}, which does not exist on the worker {socket.gethostname()}"
        ) from None


def record_directory(path: str) -> RecordDirectory:
    """Returns the directory for a path, or for a URL such as `gs://bucket/records`."""
    return BeamDirectory(path) if is_url(path) else RecordDirectory(path)


class BeamDirectory(RecordDirectory):
    """A directory on one of Beam's file systems."""

    def path_of(self, name: str) -> str:
        return FileSystems.join(self.path, *name.split("/"))

    def names(self, pattern: str) -> list[str]:
        (match,) = FileSystems.match([self.path_of(pattern)])
        parent = pattern.rpartition("/")[0]
        prefix = f"{parent}/" if parent else ""
        return sorted(prefix + FileSystems.split(file.path)[1] for file in match.metadata_list)

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        # Files that a killed worker leaves behind are removed together with `.work`.
        temporary = self.path_of(f".work/{uuid.uuid4().hex}.partial")
        try:
            with FileSystems.create(temporary, compression_type=_AS_IT_IS) as file:
                yield file
            path = self.path_of(name)
            with contextlib.suppress(FileExistsError, OSError):
                FileSystems.mkdirs(FileSystems.split(path)[0])
            # Some file systems with directories do not replace an existing file on rename.
            if FileSystems.get_filesystem(path).has_dirs() and FileSystems.exists(path):
                FileSystems.delete([path])
            FileSystems.rename([temporary], [path])
        except BaseException:
            with contextlib.suppress(OSError):
                FileSystems.delete([temporary])
            raise

    def open(self, name: str) -> BinaryIO:
        return FileSystems.open(self.path_of(name), compression_type=_AS_IT_IS)

    def remove(self, name: str) -> None:
        path = self.path_of(name)
        if FileSystems.exists(path):
            FileSystems.delete([path])
        elif FileSystems.match([FileSystems.join(path, "*")])[0].metadata_list:
            # In an object store, a directory is only a common prefix of names.
            FileSystems.delete([f"{path}/"])

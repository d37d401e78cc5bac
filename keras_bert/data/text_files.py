# SPDX-License-Identifier: Apache-2.0
"""Reads lines from text files in any supported encoding and compression."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import itertools
import lzma
import os
import shlex
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from keras_bert.checks import importing, shorten_repr
from keras_bert.data.file_systems import open_file

# Suffixes of compressed files, to find the plain file name. Compression itself is recognized by a
# file's first bytes.
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")
# Errors raised for invalid compressed data
UNREADABLE = (EOFError, OSError, lzma.LZMAError, zlib.error)
# The number of lines used to guess a file's encoding
_LINES_SAMPLED = 200
# UTF-32 comes first, because its little-endian byte order mark starts with UTF-16's mark.
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_COMPRESSED: dict[bytes, Callable[[BinaryIO], object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zX": lzma.open,
}
_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_NOT_TEXT = {
    b"PK\x03\x04": "a ZIP archive, such as an .xlsx file. Save it as CSV or decompress it.",
    b"PAR1": "a Parquet file. Save it as CSV or JSON Lines.",
}


def plain_name(name: str) -> str:
    """Returns a file name without its compression suffix.

    Example:

    >>> plain_name("train.csv.gz")
    'train.csv'
    """
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in COMPRESSIONS else name


def read_lines(path: str | os.PathLike[str], encoding: str = "utf-8") -> Iterator[str]:
    """Yields the physical lines in a text file or URL, with their line ends.

    The file must be UTF-8 (or in `encoding`), with or without a byte order mark, or UTF-16 or
    UTF-32 with a byte order mark. Files that start like gzip, bzip2, xz or Zstandard files are
    decompressed. Zstandard requires pyarrow. The bytes are split at line feeds before they are
    decoded, because text may contain other characters that `str.splitlines` treats as line ends. A
    file without line feeds is split at carriage returns, the line ends of classic Mac OS. Error
    messages contain the file and the line.
    """
    with open_file(path) as file:
        yield from decoded_lines(file, os.fspath(path), encoding)


def decoded_lines(
    file: BinaryIO, name: str | os.PathLike[str], encoding: str = "utf-8"
) -> Iterator[str]:
    """Yields the lines in a binary file, such as standard input. See `read_lines`."""
    number = 0
    is_ascii = True
    lines = byte_lines(file, name)
    try:
        for line in lines:
            number += 1
            yield line.decode(encoding)
            is_ascii = is_ascii and line.isascii()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        advice = _encoding_advice(name, error, itertools.islice(lines, _LINES_SAMPLED), is_ascii)
        raise ValueError(
            f"{name}, line {number}: the file must be UTF-8. Received: byte 0x{byte:02x} at "
            f"position {error.start} of the line. {advice}"
        ) from error
    except UNREADABLE as error:
        raise ValueError(f"{name}: cannot be read past line {number}: {error}") from error


def _encoding_advice(
    name: str | os.PathLike[str],
    error: UnicodeDecodeError,
    next_lines: Iterable[bytes],
    was_ascii: bool,
) -> str:
    """Describes how to convert a file from the encoding that its lines seem to have.

    Args:
        name: The file name.
        error: The error for the line.
        next_lines: Some of the next lines.
        was_ascii: Whether all previous lines are ASCII.
    """
    files, path = "", Path(name)
    if path.is_file() and plain_name(path.name) == path.name:
        target = path.with_name(f"{path.stem}.utf8{path.suffix}")
        files = f" {shlex.quote(str(path))} > {shlex.quote(str(target))}"
    if not was_ascii:
        return (
            "The previous lines are UTF-8. "
            f"`iconv -c -f UTF-8 -t UTF-8{files}` removes the invalid bytes."
        )
    import charset_normalizer  # The import needs 0.1 seconds.

    sample = b"".join([error.object, *next_lines])
    guess = charset_normalizer.from_bytes(sample, cp_exclusion=["utf_16", "utf_32"]).best()
    encoding, text = "cp1252", "" if guess is None else str(guess)
    # Latin code pages differ in few characters, so a guess among them is often wrong.
    if guess and not all("LATIN" in unicodedata.name(c, "") for c in text if c.isalpha()):
        encoding = guess.encoding
    excerpt = shorten_repr(error.object.decode(encoding, errors="replace").strip())
    return (
        f"In the encoding {encoding.upper()}, the line is {excerpt}. If this is right, "
        f"`iconv -f {encoding.upper()} -t UTF-8{files}` converts the file."
    )


def byte_lines(file: BinaryIO, name: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yields the lines in a binary file, decompressed and without a UTF-8 byte order mark."""
    file, start = _peek(file)
    if start == _ZSTANDARD:
        file, start = _peek(_from_zstandard(file, name))
    for magic, decompress in _COMPRESSED.items():
        if start.startswith(magic):
            file, start = _peek(cast(BinaryIO, decompress(file)))
            break
    for magic, kind in _NOT_TEXT.items():
        if start.startswith(magic):
            raise ValueError(f"{name} must be a text file. Received: {kind}")
    encoding = next((e for mark, e in _BYTE_ORDER_MARKS.items() if start.startswith(mark)), None)
    if encoding is not None:
        file = _transcode(file, encoding, name)
    elif len(start) == 4 and b"\0\0" in (start[::2], start[1::2]):
        order = "BE" if start[0] == 0 else "LE"
        raise ValueError(
            f"{name}, line 1: the file must be UTF-8. Received: NUL bytes, as in UTF-16 without a "
            f"byte order mark. `iconv -f UTF-16{order} -t UTF-8` converts the file."
        )
    first = file.readline().removeprefix(codecs.BOM_UTF8)
    if not first.endswith(b"\n"):
        yield from first.splitlines(keepends=True)  # The lines may end in carriage returns.
    else:
        yield first
        yield from file


def _from_zstandard(file: BinaryIO, name: str | os.PathLike[str]) -> BinaryIO:
    with importing("tables", f"{name}, compressed by Zstandard,"):
        import pyarrow
    return cast(BinaryIO, pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd"))


def _peek(file: BinaryIO) -> tuple[BinaryIO, bytes]:
    """Returns a file and its first four bytes without consuming them."""
    reader = file if hasattr(file, "peek") else io.BufferedReader(cast(io.RawIOBase, file))
    return reader, reader.peek(4)[:4]


def _transcode(file: BinaryIO, encoding: str, name: str | os.PathLike[str]) -> BinaryIO:
    content = file.read()
    try:
        return io.BytesIO(content.decode(encoding).encode())
    except UnicodeDecodeError as error:
        number = content[: error.start].decode(encoding, "ignore").count("\n") + 1
        raise ValueError(
            f"{name}, line {number}: the byte order mark is for {encoding.upper()}, but byte "
            f"{error.start} of the file is invalid: {error.reason}"
        ) from error

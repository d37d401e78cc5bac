# SPDX-License-Identifier: Apache-2.0
"""Reads lines from text files in any supported encoding and compression."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import io
import itertools
import lzma
import os
import shlex
import unicodedata
import warnings
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
# The encoding of files without a byte order mark
UTF_8 = "utf-8"
# Windows-1252, the code page for Western European languages
WESTERN = "cp1252"
# The encodings to look for, by names that Python accepts. Windows' code pages come first, because
# they include the standards: CP949 includes EUC-KR, CP932 Shift-JIS, CP950 Big5, and GB18030 GBK.
_COMMON_ENCODINGS = (
    *(UTF_8, "cp949", "cp932", "gb18030", "cp950", "euc-jp", WESTERN),
    *(f"cp125{digit}" for digit in "01345678"),
    *("koi8-r", "cp874"),
)
_MAX_ENCODINGS = 3
# The numbers of lines and bytes to guess an encoding from
LINES_SAMPLED = 200
_BYTES_SAMPLED = 16_384
# ASCII characters to show before a line's first other character
_ASCII_BEFORE = 20
# Bytes that are never the second byte of a character
_ASCII_ENDS = (b"\n", b"\r", b"\t", b" ", b",", b".", b'"')
# The number of invalid bytes to show
_BYTES_SHOWN = 4
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


def read_lines(path: str | os.PathLike[str], encoding: str = UTF_8) -> Iterator[str]:
    """Yields the physical lines in a text file or URL, with their line ends.

    The file must be in `encoding`. A byte order mark of UTF-8, UTF-16 or UTF-32 takes precedence.
    Files that start like gzip, bzip2, xz or Zstandard files are decompressed. Zstandard requires
    pyarrow. The bytes are split at line feeds before they are decoded, because text may contain
    other characters that `str.splitlines` treats as line ends. A file without line feeds is split
    at carriage returns, the line ends of classic Mac OS.

    Args:
        path: The file or URL.
        encoding: The name of a text encoding in Python, such as `"cp949"`. Defaults to `"utf-8"`.

    Warns:
        UserWarning: If `encoding` is not UTF-8, but the file seems to be UTF-8.

    Raises:
        ValueError: If the encoding is unknown, or if the file is not in this encoding. The message
            contains the file, the line, the bytes and the likely encodings.
    """
    with open_file(path) as file:
        yield from decoded_lines(file, os.fspath(path), encoding)


def decoded_lines(
    file: BinaryIO, name: str | os.PathLike[str], encoding: str = UTF_8
) -> Iterator[str]:
    """Yields the lines in a binary file, such as standard input. See `read_lines`."""
    number = 0
    num_extra = 0  # The number of bytes minus the number of characters
    seems_utf_8: bool | None = None  # `None` until the first line that is not ASCII
    try:
        lines, encoding = byte_lines(file, name, encoding)
        for line in lines:
            number += 1
            text = line.decode(encoding)
            num_extra += len(line) - len(text)
            if encoding != UTF_8 and seems_utf_8 is not False and not line.isascii():
                seems_utf_8 = is_utf_8(line)
            yield text
    except UnicodeDecodeError as error:
        sample = sample_lines(itertools.chain([error.object], lines))
        if encoding == UTF_8 and _is_damaged_utf_8(sample, num_extra):
            advice = _repair_advice(name)
        else:
            advice = encoding_advice(sample, encoding)
            if encoding == UTF_8 and num_extra:
                advice = f"Previous lines are not ASCII and valid UTF-8. {advice}"
        found = error.object[error.start : error.start + _BYTES_SHOWN].hex(" ")
        raise ValueError(
            f"{name}, line {number}: the file must be {encoding.upper()}. Received: bytes {found} "
            f"at position {error.start} of the line. {advice}"
        ) from error
    except UNREADABLE as error:
        raise ValueError(f"{name}: cannot be read past line {number}: {error}") from error
    if seems_utf_8:
        warnings.warn(
            f"{name} is read as {encoding.upper()}, but all of its lines are also valid UTF-8. If "
            f"the text is UTF-8, pass encoding={UTF_8!r} (--encoding={UTF_8} in commands)",
            stacklevel=2,
        )


def check_encoding(encoding: str) -> None:
    """Raises a `ValueError` if Python has no such text encoding."""
    try:
        "\n".encode(encoding)
    except (LookupError, ValueError) as error:
        raise ValueError(
            "encoding (--encoding in commands) must be a text encoding in Python, such as utf-8 or "
            f"cp949. Received: {encoding!r}"
        ) from error


def likely_encodings(sample: bytes, exclude: str = UTF_8) -> dict[str, str]:
    """Returns at most three encodings that text is likely in, the most likely first.

    Code pages for Western and Central European languages differ in few characters. If one of them
    is likely, so is Windows-1252.

    Args:
        sample: Text in an unknown encoding, of a few lines. Characters must be complete.
        exclude: An encoding that the text is not in.

    Returns:
        A dict from encoding to the decoded sample. Empty if no common encoding is likely.

    Example:

    >>> list(likely_encodings("영화가 정말 재미있어요".encode("cp949")))[0]
    'cp949'
    """
    import charset_normalizer  # The import needs 0.1 seconds.

    names = [name for name in _COMMON_ENCODINGS if name != exclude.replace("_", "-")]
    texts: dict[str, str] = {}
    for match in charset_normalizer.from_bytes(sample, cp_isolation=names):
        found = {name.replace("_", "-") for name in (match.encoding, *match.could_be_from_charset)}
        text = str(match)
        is_latin = all("LATIN" in unicodedata.name(c, "") for c in text if c.isalpha())
        if is_latin and WESTERN not in texts and WESTERN in names:
            texts[WESTERN] = sample.decode(WESTERN, "replace")
        name = next((name for name in names if name in found), match.encoding)
        texts.setdefault(name, text)
    return dict(itertools.islice(texts.items(), _MAX_ENCODINGS))


def encoding_advice(sample: bytes, encoding: str = UTF_8) -> str:
    """Describes which encodings a text is likely in, for a message.

    Args:
        sample: The line that is not in `encoding`, and some of the next lines.
        encoding: The encoding that the text is not in.
    """
    likely = likely_encodings(sample, encoding)
    if not likely:
        return "No common encoding fits these bytes. Is this a text file?"
    first = next(iter(likely))
    lines = {name: text.partition("\n")[0].strip() for name, text in likely.items()}
    excerpts = ", ".join(f"{name.upper()} {shorten_repr(line)}" for name, line in lines.items())
    return (
        f"The line in likely encodings: {excerpts}. Pass the right encoding, such as "
        f"encoding={first!r} (--encoding={first} in commands)"
    )


def sample_lines(lines: Iterable[bytes]) -> bytes:
    """Returns the non-ASCII parts of the first lines, with a few characters before each part."""
    sample = b""
    for line in itertools.islice(_readable(lines), LINES_SAMPLED):
        if line.isascii():
            continue
        start = next(index for index, byte in enumerate(line) if byte >= 0x80)
        sample += line[max(0, start - _ASCII_BEFORE) : start + _BYTES_SAMPLED]
        if len(sample) > _BYTES_SAMPLED:
            # Cut where no encoding has the middle of a character.
            sample = sample[:_BYTES_SAMPLED]
            return sample[: max(map(sample.rfind, _ASCII_ENDS)) + 1] or sample
    return sample


def _readable(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines before invalid compressed data."""
    with contextlib.suppress(*UNREADABLE):
        yield from lines


def is_utf_8(line: bytes) -> bool:
    """Returns whether the bytes are valid UTF-8."""
    return "\ufffd" not in line.decode(UTF_8, errors="replace")


def _is_damaged_utf_8(sample: bytes, num_extra: int) -> bool:
    """Returns whether less than a tenth of the non-ASCII bytes are invalid.

    Args:
        sample: The invalid line and some of the next lines.
        num_extra: The number of bytes minus the number of characters in the previous lines.
    """
    valid_text = sample.decode(UTF_8, errors="ignore")
    num_valid = len(valid_text.encode())
    return 10 * (len(sample) - num_valid) < num_extra + num_valid - len(valid_text)


def _repair_advice(name: str | os.PathLike[str]) -> str:
    files, path = "", Path(name)
    if path.is_file() and plain_name(path.name) == path.name:
        target = path.with_name(f"{path.stem}.utf8{path.suffix}")
        files = f" {shlex.quote(str(path))} > {shlex.quote(str(target))}"
    return (
        "Most other characters are UTF-8. "
        f"`iconv -c -f UTF-8 -t UTF-8{files}` removes the invalid bytes."
    )


def is_plain(path: str | os.PathLike[str]) -> bool:
    """Returns whether a file is neither compressed nor has a byte order mark."""
    with open_file(path) as file:
        start = _peek(file)[1]
    marks = (*_COMPRESSED, _ZSTANDARD, *_BYTE_ORDER_MARKS, codecs.BOM_UTF8)
    return not start.startswith(marks)


def byte_lines(
    file: BinaryIO, name: str | os.PathLike[str], encoding: str = UTF_8
) -> tuple[Iterator[bytes], str]:
    """Returns the lines in a binary file, decompressed and without a byte order mark.

    Returns:
        A tuple of the lines and their encoding: `encoding`, or UTF-8 for a file with a byte order
        mark or in an encoding such as UTF-16, whose line feeds are not single bytes.
    """
    check_encoding(encoding)
    encoding = codecs.lookup(encoding).name
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
    mark = next((its for mark, its in _BYTE_ORDER_MARKS.items() if start.startswith(mark)), None)
    if mark is not None or "\n".encode(encoding) != b"\n":
        file, encoding = _transcode(file, mark or encoding, name), UTF_8
    elif len(start) == 4 and b"\0\0" in (start[::2], start[1::2]):
        order = "be" if start[0] == 0 else "le"
        raise ValueError(
            f"{name}, line 1: the file must be {encoding.upper()}. Received: NUL bytes, as in "
            f"UTF-16 without a byte order mark. Pass encoding='utf-16-{order}' "
            f"(--encoding=utf-16-{order} in commands)"
        )
    elif start.startswith(codecs.BOM_UTF8):
        encoding = UTF_8
    return _split_lines(file), encoding


def _split_lines(file: BinaryIO) -> Iterator[bytes]:
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
            f"{name}, line {number}: the file must be {encoding.upper()}, like its byte order mark "
            f"or the given encoding. Received: an invalid byte {error.start} ({error.reason})"
        ) from error

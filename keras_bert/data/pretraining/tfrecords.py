# SPDX-License-Identifier: Apache-2.0
"""Reads and writes TFRecord files of `tf.train.Example` without TensorFlow.

A record consists of its length, the length's checksum, its content and the content's checksum. The
content is an example in the wire format of Protocol Buffers.

Reference:
    [TFRecord and tf.train.Example](https://www.tensorflow.org/tutorials/load_data/tfrecord);
    [the wire format](https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple, TypeVar

import numpy as np

from keras_bert.data.arrays import NUMPY, Ragged, row_starts
from keras_bert.data.file_systems import open_file

_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
# The number of bytes to read at a time, the number of bytes to read for the first record, and the
# number of records to write at a time
_BLOCK_BYTES = 1 << 20
_FIRST_BLOCK_BYTES = 1 << 16
_BLOCK_RECORDS = 1024
# The number of bytes per record in each checksum step. The table for a few bytes stays in the
# cache, and larger pieces need fewer steps in a long record.
_PIECES = (32, 1024)

Item = TypeVar("Item")


class Record(NamedTuple):
    """A record in a file.

    Args:
        content: The serialized example.
        path: The path to the file.
        number: The index of the record in the file.
    """

    content: bytes
    path: str
    number: int

    def __str__(self) -> str:
        return f"{self.path}, record {self.number}"


# === Files ===


def read_records(path: str, file: BinaryIO | None = None) -> Iterator[Record]:
    """Yields the records in a file. Closes the file at the end, even if the caller opened it."""
    numbers = itertools.count()
    for block, starts, lengths in _blocks(path, file):
        _check(path, numbers, block, starts, lengths)
        for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True):
            yield Record(block[start:end], path, next(numbers))


def first_record(path: str) -> Record | None:
    """Returns a file's first record, or `None` if the file is empty."""
    for block, starts, lengths in _blocks(path, block_bytes=_FIRST_BLOCK_BYTES):
        _check(path, itertools.count(), block, starts[:1], lengths[:1])
        return Record(block[starts[0] : starts[0] + lengths[0]], path, 0)
    return None


def count_records(path: str) -> int:
    """Counts the records in a file without checking or parsing their contents."""
    return sum(len(starts) for _, starts, _ in _blocks(path))


def write_records(file: BinaryIO, records: Iterable[bytes]) -> int:
    """Writes records to a file and returns their number."""
    count = 0
    for chunk in chunked(records, _BLOCK_RECORDS):
        lengths = np.array([len(record) for record in chunk], "int64")
        headers = lengths.astype("<u8").view("u1")
        length_checksums = _checksums(
            headers, np.arange(0, len(headers), 8), np.full_like(lengths, 8)
        )
        contents = np.frombuffer(b"".join(chunk), "u1")
        content_checksums = _checksums(contents, row_starts(NUMPY, lengths), lengths)
        numbers = zip(
            lengths.tolist(), length_checksums.tolist(), content_checksums.tolist(), strict=True
        )
        frames = [
            (_HEADER.pack(length, length_checksum), record, _FOOTER.pack(content_checksum))
            for record, (length, length_checksum, content_checksum) in zip(
                chunk, numbers, strict=True
            )
        ]
        file.write(b"".join(itertools.chain.from_iterable(frames)))
        count += len(chunk)
    return count


def _blocks(
    path: str, file: BinaryIO | None = None, block_bytes: int = _BLOCK_BYTES
) -> Iterator[tuple[bytes, np.ndarray, np.ndarray]]:
    """Yields blocks of whole records, with the offsets and lengths of their contents."""
    number = 0
    with file or open_file(path) as file:
        rest = b""
        while data := file.read(block_bytes):
            block = rest + data
            starts: list[int] = []
            lengths: list[int] = []
            end = 0
            while len(block) - end >= _HEADER.size:
                length, checksum = _HEADER.unpack_from(block, end)
                if checksum != _length_checksum(length):
                    raise ValueError(
                        f"{path}, record {number + len(starts)}: truncated or corrupt: the "
                        "checksum of its length does not match."
                    )
                start = end + _HEADER.size
                if start + length + _FOOTER.size > len(block):
                    break
                starts.append(start)
                lengths.append(length)
                end = start + length + _FOOTER.size
            number += len(starts)
            if starts:
                yield block, np.array(starts, "int64"), np.array(lengths, "int64")
            rest = block[end:]
        if rest:
            raise ValueError(
                f"{path}, record {number}: truncated or corrupt: the file ends in the record at "
                f"byte {file.tell() - len(rest)}."
            )


def _check(
    path: str, numbers: Iterator[int], block: bytes, starts: np.ndarray, lengths: np.ndarray
) -> None:
    """Compares the checksums of the contents in a block."""
    data = np.frombuffer(block, "u1")
    file_checksums = data[(starts + lengths)[:, np.newaxis] + np.arange(_FOOTER.size)]
    wrong = np.flatnonzero(file_checksums.view("<u4")[:, 0] != _checksums(data, starts, lengths))
    if len(wrong):
        raise ValueError(
            f"{path}, record {next(numbers) + wrong[0]}: truncated or corrupt: the checksum of its "
            "content does not match."
        )


def chunked(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Splits items into lists of `size` items. The last list may be shorter."""
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


# === Checksums ===


@functools.cache
def _tables() -> tuple[np.ndarray, np.ndarray]:
    """Returns how a piece's bytes and the initial state contribute to its CRC-32C.

    A CRC is linear. Each byte contributes a value that depends on the number of bytes after it, and
    these values are combined with exclusive or. Both arrays are uint32. The first is `(piece, 256)`
    and indexed by the number of bytes after a byte. The second is `(piece,)` and indexed by the
    length of the piece.
    """
    state = np.arange(256, dtype="uint32")
    for _ in range(8):
        state = np.where(state & 1, state >> 1 ^ 0x82F63B78, state >> 1)
    last, initial = state, np.uint32(0xFFFFFFFF)
    byte_tables, initial_values = [], []
    for _ in range(max(_PIECES)):
        byte_tables.append(state)
        initial_values.append(initial)
        state = state >> 8 ^ last[state & 0xFF]
        initial = initial >> 8 ^ last[initial & 0xFF]
    return np.stack(byte_tables), np.array(initial_values)


def _checksums(data: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Returns the masked CRC-32C for chunks in `data`, uint32 `(chunks,)`."""
    byte_tables, initial_values = _tables()
    small, large = _PIECES
    first = lengths % small
    bytes_after = np.repeat(first + starts, first) - NUMPY.ranges(starts, first) - 1
    crc: np.ndarray = initial_values[first]
    if len(bytes_after):
        values = byte_tables.reshape(-1)[bytes_after * 256 + data[NUMPY.ranges(starts, first)]]
        has_rest = first > 0
        crc[has_rest] ^= np.bitwise_xor.reduceat(values, row_starts(NUMPY, first)[has_rest])
    starts = starts + first
    for size, counts in ((small, lengths // small % (large // small)), (large, lengths // large)):
        # The table entries for bytes with 0, 1, … and `size - 1` bytes before them
        entries = np.arange(size - 1, -1, -1) * 256
        for number in range(counts.max(initial=0)):
            more = np.flatnonzero(counts > number)
            pieces = data[(starts[more] + number * size)[:, np.newaxis] + np.arange(size)]
            pieces[:, :4] ^= crc[more].astype("<u4").view("u1").reshape(-1, 4)
            crc[more] = np.bitwise_xor.reduce(byte_tables.take(entries + pieces), axis=1)
        starts = starts + counts * size
    crc = ~crc
    # TFRecord files contain rotated checksums.
    return (crc >> 15 | crc << 17) + np.uint32(0xA282EAD8)


@functools.lru_cache(maxsize=4096)
def _length_checksum(length: int) -> int:
    data = np.array([length], "<u8").view("u1")
    return int(_checksums(data, np.array([0]), np.array([8]))[0])


# === Examples ===

# Tags of length-delimited fields with the numbers 1 and 2
_FIRST, _SECOND = b"\x0a", b"\x12"
_KINDS = {0x0A: "bytes", 0x12: "float", 0x1A: "int64"}
_TAGS = {kind: bytes([tag]) for tag, kind in _KINDS.items()}


def serialize(features: Mapping[str, Ragged]) -> list[bytes]:
    """Serializes integer or float32 features, each row as a `tf.train.Example`.

    Features in an example are sorted by name.
    """
    columns = []
    for name in sorted(features):
        values, lengths = features[name]
        kind = "float" if values.dtype.kind == "f" else "int64"
        if kind == "float":
            content, sizes = values.astype("<f4").tobytes(), 4 * lengths
        else:
            content, sizes = _varints(values, lengths)
        ends = np.cumsum(sizes)
        bounds = zip((ends - sizes).tolist(), ends.tolist(), sizes.tolist(), strict=True)
        columns.append([_start(name, kind, size) + content[a:b] for a, b, size in bounds])
    return [_FIRST + _prepend_length(b"".join(row)) for row in zip(*columns, strict=True)]


@functools.lru_cache(maxsize=1 << 16)
def _start(name: str, kind: str, size: int) -> bytes:
    """Returns the bytes before a feature's values, with its name, type and sizes."""
    values = bytes(size)
    # Protocol Buffers omit an empty list.
    feature = _TAGS[kind] + _prepend_length(_FIRST + _prepend_length(values) if size else b"")
    entry = _FIRST + _prepend_length(
        _FIRST + _prepend_length(name.encode()) + _SECOND + _prepend_length(feature)
    )
    return entry[: len(entry) - size]


def parse(records: Sequence[Record], kinds: Mapping[str, str]) -> dict[str, Ragged]:
    """Parses features of serialized examples. `kinds` contains `"int64"` or `"float"`.

    A record without a feature gets no values for it.
    """
    payloads: dict[str, list[bytes]] = {name: [] for name in kinds}
    for record in records:
        feature_spans = spans(record)
        for name, kind in kinds.items():
            own, start, end = feature_spans.get(name, (kind, 0, 0))
            if own != kind and end > start:
                raise ValueError(f"{record}, feature {name}: must be {kind}. Received: {own}")
            values = [record.content[a:b] for _, a, b in _fields(record.content, start, end)]
            payloads[name].append(values[0] if len(values) == 1 else b"".join(values))
    features = {}
    for name, contents in payloads.items():
        lengths = np.array([len(content) for content in contents], "int64")
        data = np.frombuffer(b"".join(contents), "u1")
        if kinds[name] == "float":
            features[name] = Ragged(data.view("<f4"), lengths // 4)
        else:
            features[name] = _integers(data, lengths)
    return features


def spans(record: Record) -> dict[str, tuple[str, int, int]]:
    """Returns each feature's type in a record, and the start and end of its values.

    Raises:
        ValueError: If the record is not a `tf.train.Example`.
    """
    content, feature_spans = record.content, {}
    try:
        for tag, start, end in _fields(content, 0, len(content)):
            if tag != _FIRST[0]:
                continue
            for _, entry, entry_end in _fields(content, start, end):
                name, kind, values, values_end = "", "int64", 0, 0
                for tag_of_field, first, last in _fields(content, entry, entry_end):
                    if tag_of_field == _FIRST[0]:
                        name = content[first:last].decode()
                    else:
                        for kind_tag, values, values_end in _fields(content, first, last):  # noqa: B007
                            kind = _KINDS[kind_tag]
                feature_spans[name] = (kind, values, values_end)
    except (IndexError, KeyError, UnicodeDecodeError):
        raise ValueError(f"{record}: the record is not a tf.train.Example.") from None
    return feature_spans


def _fields(content: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields the tag of each field in a message, and the start and end of its value."""
    while position < end:
        tag = content[position]
        position += 1
        kind = tag & 7
        if kind == 2:
            length = content[position]
            position += 1
            if length >= 128:  # Most of these lengths have two bytes.
                length += content[position] - 1 << 7
                position += 1
                if length >= 1 << 14:
                    length, position = _varint(content, position - 2)
            last = position + length
        elif kind == 0:
            _, last = _varint(content, position)
        else:
            last = position + {1: 8, 5: 4}[kind]
        if last > end:
            raise IndexError(f"a field ends at {last} and its message at {end}")
        yield tag, position, last
        position = last


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """Decodes a varint. Returns its value and the position after it."""
    value = shift = 0
    while True:
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return value, position
        shift += 7


def _integers(data: np.ndarray, num_bytes: np.ndarray) -> Ragged:
    """Decodes the varints in the bytes of each row."""
    ends = np.flatnonzero(data < 128) + 1
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    sizes = ends - starts
    values = np.zeros(len(ends), "uint64")
    for number in range(sizes.max(initial=0)):
        more = sizes > number
        bits = (data[starts[more] + number] & 0x7F).astype("uint64")
        values[more] |= bits << np.uint64(7 * number)
    lengths = np.diff(np.searchsorted(ends, np.cumsum(num_bytes), "right"), prepend=0)
    return Ragged(values.view("int64"), lengths)


def _varints(values: np.ndarray, lengths: np.ndarray) -> tuple[bytes, np.ndarray]:
    """Encodes integers as varints. Also returns the number of bytes in each row."""
    words = values.astype("int64").view("uint64")
    if words.max(initial=0) < 128:
        return words.astype("u1").tobytes(), lengths
    sizes = np.ones(len(words), "int64")
    for bits in range(7, int(words.max()).bit_length(), 7):
        sizes += words >> np.uint64(bits) > 0
    ends = np.cumsum(sizes)
    encoding = np.empty(ends[-1], "u1")
    row_ends = np.concatenate([[0], ends])[np.cumsum(lengths)]
    positions, bytes_left = ends - sizes, sizes
    while len(words):
        more = bytes_left > 1
        encoding[positions] = words.astype("u1") & 0x7F | more.astype("u1") << 7
        words, positions, bytes_left = (
            words[more] >> np.uint64(7),
            positions[more] + 1,
            bytes_left[more] - 1,
        )
    return encoding.tobytes(), np.diff(row_ends, prepend=0)


def _prepend_length(content: bytes) -> bytes:
    """Prepends a content's length."""
    length, size = len(content), bytearray()
    while length >= 128:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes(size) + content

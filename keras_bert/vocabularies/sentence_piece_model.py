# SPDX-License-Identifier: Apache-2.0
"""Reads and writes serialized SentencePiece models.

This module parses the required fields of the protocol buffer. The protobuf classes in the
`sentencepiece` package cannot be used, because importing them together with the classes in
`transformers` raises protobuf's error "duplicate file name sentencepiece_model.proto".

Reference:
    [SentencePiece](https://github.com/google/sentencepiece), `sentencepiece_model.proto`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class PieceType(enum.IntEnum):
    """The type of a piece in a SentencePiece model."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4


class Piece(NamedTuple):
    """A piece in a SentencePiece model.

    Args:
        text: The characters of the piece, with `▁` for the space.
        score: The logarithm of its probability.
        type: Its `PieceType`.
    """

    text: str
    score: float
    type: int


# Smaller differences are rounding errors between decimal digits and floats.
_SAME_SCORE = 1e-3
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_UNIGRAM = 1
_MOST_VARINT_BYTES = 10  # 64 bits, with 7 bits per byte


def read_pieces(model: bytes) -> list[Piece]:
    """Reads the pieces of a serialized model in id order.

    Raises:
        ValueError: If it is not a SentencePiece model, or has no pieces.
    """
    try:
        pieces = [_piece(value) for number, value in _fields(model) if number == 1]
    except (IndexError, TypeError, UnicodeDecodeError, struct.error) as error:
        raise ValueError(f"not a SentencePiece model ({error!r})") from error
    if not pieces:
        raise ValueError("not a SentencePiece model: it has no pieces")
    return pieces


def read_characters_map(model: bytes) -> bytes:
    """Reads a valid model's precompiled normalization map. The map can be empty."""
    for number, normalizer in _fields(model):
        if number == 3 and isinstance(normalizer, bytes):
            value = dict(_fields(normalizer)).get(2, b"")
            return value if isinstance(value, bytes) else b""
    return b""


def without_characters_map(model: bytes) -> bytes:
    """Removes a valid model's normalization map, so that the model does not change characters."""
    fields = []
    for number, value in _fields(model):
        if number == 3 and isinstance(value, bytes):
            value = b"".join(_field(*each) for each in _fields(value) if each[0] != 2)
        fields.append(_field(number, value))
    return b"".join(fields)


def have_same_pieces(model: bytes, other: bytes) -> bool:
    """Returns whether two models have the same pieces and normalization map.

    Only the scores of normal pieces are compared, and no types.
    """
    pieces, others = read_pieces(model), read_pieces(other)
    return (
        len(pieces) == len(others)
        and all(
            piece.text == other.text
            # Only normal pieces are found by score.
            and (piece.type != PieceType.NORMAL or abs(piece.score - other.score) < _SAME_SCORE)
            for piece, other in zip(pieces, others, strict=True)
        )
        and read_characters_map(model) == read_characters_map(other)
    )


def write_model(pieces: Iterable[Piece], characters_map: bytes) -> bytes:
    """Serializes a unigram model from pieces and a precompiled normalization map."""
    parts = list(map(_serialized, pieces))
    trainer = _field(3, _UNIGRAM) + _field(4, len(parts))
    # precompiled_charsmap, add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces
    normalizer = _field(2, characters_map) + _field(3, 1) + _field(4, 1) + _field(5, 1)
    return b"".join([*parts, _field(2, trainer), _field(3, normalizer)])


def replace_pieces(model: bytes, pieces: Iterable[Piece]) -> bytes:
    """Replaces a valid model's pieces and keeps its other fields."""
    others = [_field(number, value) for number, value in _fields(model) if number != 1]
    return b"".join([*map(_serialized, pieces), *others])


def _serialized(piece: Piece) -> bytes:
    fields = (
        _field(1, piece.text.encode("utf-8")),
        b"\x15",  # This is the tag of field 2, a four-byte value.
        struct.pack("<f", piece.score),
        # The library omits the default.
        b"" if piece.type == PieceType.NORMAL else _field(3, int(piece.type)),
    )
    return _field(1, b"".join(fields))


def _piece(message: object) -> Piece:
    if not isinstance(message, bytes):
        raise TypeError("field 1 is not a message")
    fields = dict(_fields(message))
    text, score = fields.get(1, b""), fields.get(2, b"\0\0\0\0")
    if not isinstance(text, bytes) or not isinstance(score, bytes):
        raise TypeError("the text or score of a piece has a wrong type")
    kind = fields.get(3, PieceType.NORMAL)
    if not isinstance(kind, int):
        raise TypeError("the type of a piece is not a number")
    return Piece(text.decode("utf-8"), struct.unpack("<f", score)[0], kind)


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yields a message's field numbers and values. Fixed-size numbers are yielded as bytes."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _read_varint(message, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            length, position = _read_varint(message, position)
        elif wire_type in (_EIGHT_BYTES, _FOUR_BYTES):
            length = 8 if wire_type == _EIGHT_BYTES else 4
        else:
            raise TypeError(f"wire type {wire_type} at byte {position}")
        if position + length > len(message):
            raise IndexError(f"a field ends at byte {position + length} of {len(message)}")
        yield number, message[position : position + length]
        position += length


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_MOST_VARINT_BYTES):
        byte = message[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise TypeError(f"a number has more than {_MOST_VARINT_BYTES} bytes at byte {position}")


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*parts, value))

# SPDX-License-Identifier: Apache-2.0
"""Reads and writes BPE vocabularies in `vocab.json` and `merges.txt`.

In byte-level BPE, tokens consist of bytes, and each byte is represented by a character. In BPE with
byte fallback, tokens consist of characters. A character outside of the vocabulary is replaced with
a token for each of its bytes.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_bert.atomic import write_bytes
from keras_bert.vocabularies.files import read_json, read_text

TOKENS_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
SPACE = "Ġ"
"""The character that represents the space in tokens of byte-level BPE."""
BLANK = "▁"
"""The character that represents the space in tokens of BPE with byte fallback."""

_FIRST_LINE = "#version:"
# The bytes represented by visible Latin-1 characters
_VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))


@functools.cache
def byte_characters() -> tuple[str, ...]:
    """Returns the characters that represent the 256 bytes in tokens.

    Visible Latin-1 characters represent their own bytes. The characters from U+0100 represent the
    other bytes in order.

    Reference:
        [Radford et al., 2019](https://github.com/openai/gpt-2), the original GPT-2 code.
    """
    hidden = [byte for byte in range(256) if byte not in _VISIBLE]
    return tuple(
        chr(byte) if byte in _VISIBLE else chr(0x100 + hidden.index(byte)) for byte in range(256)
    )


@functools.cache
def byte_tokens() -> tuple[str, ...]:
    """Returns the tokens for the 256 bytes in BPE with byte fallback, for example `<0x0A>`."""
    return tuple(f"<0x{byte:02X}>" for byte in range(256))


@functools.cache
def _character_bytes() -> Mapping[str, int]:
    return {character: byte for byte, character in enumerate(byte_characters())}


def token_bytes(token: str) -> bytes | None:
    """Returns a token's bytes, or `None` if a character does not represent a byte."""
    known = _character_bytes()
    if any(character not in known for character in token):
        return None
    return bytes(known[character] for character in token)


def load_tokens(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Reads a `vocab.json` with an id for each token. Returns the tokens in the order of ids."""
    return tokens_in_order(read_json(Path(path)), f"{path}: the file")


def tokens_in_order(ids: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Sorts tokens by their ids. The ids must be 0, 1, 2 …"""
    for token, index in ids.items():
        if not isinstance(index, int) or isinstance(index, bool):
            raise ValueError(
                f"{where} must map each token to an integer id. Received: {index!r} for {token!r}"
            )
    tokens = {index: token for token, index in ids.items()}
    if len(tokens) < len(ids):
        first = next(token for token, index in ids.items() if tokens[index] != token)
        raise ValueError(
            f"{where} must give each token a different id. Received: the id {ids[first]} for "
            f"{first!r} and {tokens[ids[first]]!r}"
        )
    gaps = [index for index in range(len(tokens)) if index not in tokens]
    if gaps or not tokens:
        raise ValueError(
            f"{where} must contain the ids 0, 1, 2 …. Received: no token with the id "
            f"{gaps[0] if gaps else 0}"
        )
    return tuple(tokens[index] for index in range(len(tokens)))


def load_merges(
    path: str | os.PathLike[str], vocabulary: Collection[str] | None = None
) -> tuple[str, ...]:
    """Reads a `merges.txt`. Each line has two tokens separated by a space, for example `"Ġ t"`.

    If a vocabulary is given, it must contain the tokens. Error messages contain the line number.
    """
    merges = []
    for number, line in enumerate(read_text(Path(path)).split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip() or (number == 1 and line.startswith(_FIRST_LINE)):
            continue
        where = f"{path}, line {number}"
        if len(line.split(" ")) != 2:
            raise ValueError(f"{where} must be two tokens separated by a space. Received: {line!r}")
        if vocabulary is not None:
            check_merge(line, vocabulary, where)
        merges.append(line)
    return tuple(merges)


def check_merge(merge: object, vocabulary: Collection[str], where: str) -> tuple[str, str]:
    """Checks that a merge consists of two tokens that form a token together. Returns them."""
    if not isinstance(merge, str):
        raise ValueError(f"{where} must be a string of two tokens. Received: {merge!r}")
    left, _, right = merge.partition(" ")
    absent_tokens = [token for token in (left, right, left + right) if token not in vocabulary]
    if absent_tokens or " " in right:
        what = (
            f"the vocabulary lacks {absent_tokens[0]!r}" if absent_tokens else "it has two spaces"
        )
        raise ValueError(
            f"{where} must be two tokens of the vocabulary separated by a space, whose "
            f"concatenation is also in the vocabulary. Received: {merge!r}: {what}"
        )
    return left, right


def save_tokens_and_merges(
    vocabulary: Sequence[str], merges: Sequence[str], directory: str | os.PathLike[str]
) -> None:
    """Writes `vocab.json` and `merges.txt`, both atomically."""
    ids = {token: index for index, token in enumerate(vocabulary)}
    lines = (f"{_FIRST_LINE} 0.2", *merges)
    write_bytes(Path(directory) / TOKENS_FILE, json.dumps(ids, ensure_ascii=False).encode("utf-8"))
    write_bytes(
        Path(directory) / MERGES_FILE, "".join(f"{line}\n" for line in lines).encode("utf-8")
    )

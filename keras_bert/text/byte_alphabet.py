# SPDX-License-Identifier: Apache-2.0
"""The characters that stand for bytes in byte-level vocabularies."""

from __future__ import annotations

import functools
from collections.abc import Mapping

SPACE = "Ġ"
"""The character that stands for the space."""

# What can be seen in Latin-1 stands for itself.
_VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))


@functools.cache
def byte_characters() -> tuple[str, ...]:
    """For each of the 256 bytes the character that stands for it in tokens.

    Reference:
        [Radford et al., 2019](https://github.com/openai/gpt-2), released code: bytes that cannot
        be seen get the characters from U+0100 on, in their order.
    """
    hidden = [byte for byte in range(256) if byte not in _VISIBLE]
    return tuple(
        chr(byte) if byte in _VISIBLE else chr(0x100 + hidden.index(byte)) for byte in range(256)
    )


@functools.cache
def _bytes() -> Mapping[str, int]:
    return {character: byte for byte, character in enumerate(byte_characters())}


def token_bytes(token: str) -> bytes | None:
    """The bytes of a token; `None` if one of its characters stands for no byte."""
    known = _bytes()
    if any(character not in known for character in token):
        return None
    return bytes(known[character] for character in token)

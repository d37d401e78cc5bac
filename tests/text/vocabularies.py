# SPDX-License-Identifier: Apache-2.0
"""Vocabularies and texts shared by several tests of tokenizers."""

import functools
import unicodedata
from pathlib import Path

from keras_bert import minilm
from tests.text.real_text import WHOLE

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def released_file() -> Path:
    """The uncased English vocabulary of 30,522 tokens, from an installed package."""
    return minilm.directory() / "vocab.txt"


@functools.cache
def released() -> tuple[str, ...]:
    """The tokens of `released_file`, read in the plainest way."""
    return tuple(released_file().read_bytes().decode().split("\n")[:-1])


@functools.cache
def assigned_characters() -> tuple[str, ...]:
    """Every character that this Python's Unicode tables know."""
    characters = map(chr, range(0x110000))
    unassigned = ("Cn", "Co", "Cs")
    return tuple(item for item in characters if unicodedata.category(item) not in unassigned)


@functools.cache
def characters_of_rules() -> tuple[str, ...]:
    """Of blocks that one rule holds for, a character of eleven, and of the others every one.

    Before a release all of them.
    """
    blocks = ("CJK UNIFIED IDEOGRAPH", "HANGUL SYLLABLE", "TANGUT IDEOGRAPH")
    return tuple(
        item
        for item in assigned_characters()
        if WHOLE or ord(item) % 11 == 0 or not unicodedata.name(item, "").startswith(blocks)
    )


def character_vocabulary(characters, *tokens: str) -> tuple[str, ...]:
    """A vocabulary in which every character is a token, at a word's beginning and inside."""
    lowered = {part for item in characters for part in unicodedata.normalize("NFD", item.lower())}
    letters = sorted({*characters, *lowered})
    return (*SPECIAL_TOKENS, *tokens, *letters, *(f"##{letter}" for letter in letters))


@functools.cache
def cased() -> tuple[str, ...]:
    """The released vocabulary with capitalised words put in."""
    words = [token for token in released() if token.isascii() and token.isalpha()]
    capitalised = sorted({word.capitalize() for word in words} | {word.upper() for word in words})
    return (*released(), *capitalised)

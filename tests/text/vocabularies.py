# SPDX-License-Identifier: Apache-2.0
"""Vocabularies and characters shared by the tokenizer tests."""

import functools
import unicodedata
from pathlib import Path

from keras_bert import minilm
from tests.text.real_text import WHOLE

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def released_vocabulary_file() -> Path:
    """Returns the uncased English vocabulary file with 30,522 tokens from an installed package."""
    return minilm.directory() / "vocab.txt"


@functools.cache
def released_vocabulary() -> tuple[str, ...]:
    """Returns the tokens of `released_vocabulary_file`, read without the library."""
    return tuple(released_vocabulary_file().read_bytes().decode().split("\n")[:-1])


@functools.cache
def assigned_characters() -> tuple[str, ...]:
    """Returns every character in this Python's Unicode tables."""
    characters = map(chr, range(0x110000))
    unassigned = ("Cn", "Co", "Cs")
    return tuple(item for item in characters if unicodedata.category(item) not in unassigned)


@functools.cache
def representative_characters() -> tuple[str, ...]:
    """Returns the assigned characters, with one in eleven from blocks with uniform rules.

    Before a release, all characters are returned.
    """
    blocks = ("CJK UNIFIED IDEOGRAPH", "HANGUL SYLLABLE", "TANGUT IDEOGRAPH")
    return tuple(
        item
        for item in assigned_characters()
        if WHOLE or ord(item) % 11 == 0 or not unicodedata.name(item, "").startswith(blocks)
    )


def character_vocabulary(characters, *tokens: str) -> tuple[str, ...]:
    """Returns a vocabulary with a token for each character at the start of and inside a word."""
    lowered = {part for item in characters for part in unicodedata.normalize("NFD", item.lower())}
    alphabet = sorted({*characters, *lowered})
    return (*SPECIAL_TOKENS, *tokens, *alphabet, *(f"##{character}" for character in alphabet))


@functools.cache
def cased_vocabulary() -> tuple[str, ...]:
    """Returns the released vocabulary with capitalized words added."""
    words = [token for token in released_vocabulary() if token.isascii() and token.isalpha()]
    capitalized = sorted({word.capitalize() for word in words} | {word.upper() for word in words})
    return (*released_vocabulary(), *capitalized)

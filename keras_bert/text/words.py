# SPDX-License-Identifier: Apache-2.0
"""Splits raw text into words like the data sets for tagging."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from keras_bert.text.characters import IDEOGRAPHS, character_class


def split_words(text: str) -> tuple[list[str], list[int], list[int]]:
    """Splits a text into words.

    Punctuation marks and CJK ideographs are separate words, except inside words (`AT&T`, `o'clock`,
    `12:30`, `U.S.`) and URLs, and at the start of `@name` and `#tag`.

    Returns:
        A tuple of the words, the offset of each word's first character, and the offset after its
        last character.

    Example:

    >>> words, starts, ends = split_words("Ann (U.S.) smiles.")
    >>> words
    ['Ann', '(', 'U.S.', ')', 'smiles', '.']
    >>> starts
    [0, 4, 5, 9, 11, 17]
    """
    matches = [
        match
        for match in _words_and_gaps().finditer(text.replace("\0", " "))
        if match.lastgroup == "word"
    ]
    return (
        [match[0] for match in matches],
        [match.start() for match in matches],
        [match.end() for match in matches],
    )


def word_patterns(characters: Callable[[str], str]) -> tuple[str, str]:
    """Returns regular expressions for a word and for the text between words.

    `characters` returns all characters in a general category, such as `L` or `Cf`.
    """
    letters, numbers, marks, spaces, punctuation, symbols = map(characters, "LNMZPS")
    controls, formats = map(characters, ("Cc", "Cf"))
    emoji = characters("So") + characters("Sk")
    # The characters that can start a word, and the characters that can follow. The latter include
    # accents and the zero-width joiners of Persian or Hindi.
    first = f"[^{spaces}{punctuation}{symbols}{controls}{formats}{IDEOGRAPHS}]"
    letter = f"[^{spaces}{punctuation}{symbols}{controls}{IDEOGRAPHS}]"
    word = "|".join(
        (
            rf"https?://[^\t\n\f\r{spaces}]+",
            rf"(?:[{letters}]\.){{2,}}",  # U.S.
            f"[{numbers}]+(?:[.,:/][{numbers}]+)+",  # 3,000.5 and 12:30
            f"[@#]?{first}{letter}*(?:[-.'’&/:@_+]{first}{letter}*)*",  # o'clock, AT&T, #tag
            f"[{IDEOGRAPHS}]",
            r"\.{2,}|-{2,}",
            f"[{emoji}][{emoji}{marks}{formats}]*",
            f"[{punctuation}{symbols}]",
        )
    )
    return word, f"[{spaces}{controls}{formats}{marks}]+"


@functools.cache
def _words_and_gaps() -> re.Pattern[str]:
    word, gap = word_patterns(character_class)
    return re.compile(f"(?P<word>{word})|{gap}")

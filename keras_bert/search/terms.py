# SPDX-License-Identifier: Apache-2.0
"""The terms of a text for word search: words, or pairs of characters in some scripts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from keras_bert.text.characters import UNSPACED, character_class

# Runs of characters in scripts without spaces, and in Korean because words have particles. Korean
# is written with syllables, or in NFD with their parts.
PAIRED = rf"\uac00-\ud7a3\u1100-\u11ff{UNSPACED}"
"""The characters of these scripts, for a regular expression"""
_RUN = re.compile(rf"[{PAIRED}]+")
# Python does not count marks as parts of words, but most words in Hindi have them.
_LETTER, _MARK = rf"[^\W{PAIRED}]", f"[{character_class('Mn')}{character_class('Mc')}]"
_WORDS = re.compile(rf"[{PAIRED}]+|{_LETTER}(?:{_LETTER}|{_MARK})*")
_ASCII_WORDS = re.compile(r"\w+", re.ASCII)  # the same for ASCII text, but three times as fast


def terms(text: str) -> Iterator[str]:
    """Yields the terms of a text in lower case.

    Terms are words and numbers in Unicode's form NFKC. In Chinese, Japanese, Korean and Thai, they
    are pairs of adjacent characters, or a single character between other scripts.

    Example:

    >>> list(terms("BERT 모델을"))
    ['bert', '모델', '델을']
    """
    return (term for term, _, _ in term_spans(text))


def term_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """Yields the terms of a text with their start and end in it."""
    if text.isascii():
        for match in _ASCII_WORDS.finditer(text):
            yield match[0].lower(), *match.span()
        return
    for match in _WORDS.finditer(text):
        word, begin, end = unicodedata.normalize("NFKC", match[0]).lower(), *match.span()
        if not _RUN.fullmatch(word):
            yield word, begin, end
            continue
        is_aligned = len(word) == end - begin
        # As in Lucene's CJKAnalyzer, a single character is also a term.
        for start in range(max(1, len(word) - 1)):
            pair = word[start : start + 2]
            yield (
                pair,
                *((begin + start, begin + start + len(pair)) if is_aligned else (begin, end)),
            )

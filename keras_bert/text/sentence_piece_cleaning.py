# SPDX-License-Identifier: Apache-2.0
"""ALBERT's text normalization before SentencePiece, and the source of each byte.

Reference:
    [Lan et al., 2020](https://arxiv.org/abs/1909.11942), original code, `preprocess_text`.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from typing import NamedTuple

from keras_bert.text.characters import WHITE_SPACE, combining_class, decompose, lower_text

_QUOTES = re.compile("``|''")
_SPACES = re.compile(r"\s+")
_SPACE = re.compile(f"[{WHITE_SPACE}]")
_JOINED = re.compile(f"[{WHITE_SPACE}]{{2,}}|[\n\r\t]")


class Traces(NamedTuple):
    """The normalized representation of each character in a text.

    Args:
        widths: Each character's size in the normalized text in bytes. 0 for dropped characters.
        is_merged: Whether a character has no bytes because it is merged with the previous
            character.
    """

    widths: list[int]
    is_merged: list[bool]


@dataclasses.dataclass(frozen=True)
class TextCleaner:
    """Normalizes texts.

    Args:
        lowercase: Whether to lowercase text.
        keep_accents: Whether to keep accents. Otherwise, characters are decomposed (NFKD) and
            combining marks are dropped.
        collapse: Whether to replace runs of whitespace with one space, strip texts, and replace
            pairs of backticks or apostrophes with a quotation mark.
        join_spaces: Whether to replace runs of whitespace, line breaks and tabs with one space, and
            to drop whitespace at the end. Defaults to `False`.
    """

    lowercase: bool
    keep_accents: bool
    collapse: bool
    join_spaces: bool = False

    def __call__(self, text: str) -> str:
        """Normalizes a text."""
        if self.collapse:
            text = _QUOTES.sub('"', " ".join(text.split()))
        if self.join_spaces:
            text = _JOINED.sub(" ", text[: _end(text)])
        return _fold(text, self.lowercase, self.keep_accents)

    def traces(self, text: str) -> Traces:
        """Returns the normalized representation of each character in a text."""
        # Only the lowercase sigma depends on neighboring characters. Both of its forms have the
        # same number of bytes.
        options = map(itertools.repeat, (self.lowercase, self.keep_accents))
        widths = [1] * len(text) if text.isascii() else list(map(_width, text, *options))
        is_merged = [False] * len(text)
        if self.collapse:
            for match in _QUOTES.finditer(text):
                is_merged[match.start() + 1] = True
                widths[match.start() + 1] = 0
            for match in _SPACES.finditer(text):
                start, end = match.span()
                is_inside = start > 0 and end < len(text)
                widths[start:end] = [int(is_inside), *[0] * (end - start - 1)]
        if self.join_spaces:
            last = _end(text)
            widths[last:] = [0] * (len(text) - last)
            for match in _JOINED.finditer(text, 0, last):
                start, end = match.span()
                widths[start:end] = [1, *[0] * (end - start - 1)]
        return Traces(widths, is_merged)


def _end(text: str) -> int:
    """Returns the start offset of the trailing whitespace."""
    end = len(text)
    while end and _SPACE.match(text, end - 1):
        end -= 1
    return end


def _fold(text: str, lowercase: bool, keep_accents: bool) -> str:
    if not keep_accents and not text.isascii():
        text = "".join(map(_base, text))
    return lower_text(text) if lowercase else text


@functools.cache
def _width(character: str, lowercase: bool, keep_accents: bool) -> int:
    """Returns a character's size in bytes after normalization."""
    return len(_fold(character, lowercase, keep_accents).encode("utf-8"))


@functools.cache
def _base(character: str) -> str:
    """Decomposes a character (NFKD) and drops combining marks."""
    parts = decompose(character, compatible=True)
    return "".join(part for part in parts if not combining_class(part))

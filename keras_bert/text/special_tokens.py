# SPDX-License-Identifier: Apache-2.0
"""Recognition of special and added tokens in texts, for each kind of tokenizer."""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_bert.text.characters import WHITE_SPACE
from keras_bert.text.normalization import without_case

PADDING, UNKNOWN, CLASSIFY, SEPARATE, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PADDING, UNKNOWN, CLASSIFY, SEPARATE, MASK)
SUFFIX = "##"
"""The prefix of tokens that continue a word."""

# Unassigned code points in the range of CJK ideographs: each is a word of its own, normalization
# does not change it, and it does not occur in real text.
FIRST_MARK = 0xFAE0
_NO_CHARACTER = 0xFAFF


class TokenMarks:
    """Replaces each special token in a text with a single character that the tokenizer recognizes.

    Args:
        tokens: The tokens to recognize.
        uncased: Those of them that are recognized in any case and with any accents.

    Raises:
        ValueError: If there are more than 31 tokens.
    """

    def __init__(self, tokens: Sequence[str], uncased: Collection[str] = ()) -> None:
        if len(tokens) > _NO_CHARACTER - FIRST_MARK:
            raise ValueError(
                f"There are {len(tokens)} special and added tokens to find in texts; at most "
                f"{_NO_CHARACTER - FIRST_MARK} are supported."
            )
        # Longer tokens are replaced first, since they may contain shorter ones; uncased ones last.
        self._tokens = tuple(sorted(tokens, key=lambda token: (token in uncased, -len(token))))
        spellings = [without_case(token) if token in uncased else token for token in self._tokens]
        self.widths = tuple(map(len, spellings))
        patterns = (
            "".join(map(_any_case, spelling)) if token in uncased else re.escape(token)
            for token, spelling in zip(self._tokens, spellings, strict=True)
        )
        # A mark that occurs in a text is not a special token.
        marks = "".join(self.marks.values())
        self.replacements = (
            (f"[{marks}]", chr(_NO_CHARACTER)),
            *zip(patterns, self.marks.values(), strict=True),
        )
        """Regular expressions and the replacements of their matches, applied in this order."""
        self._compiled = [(re.compile(pattern), mark) for pattern, mark in self.replacements]

    @property
    def marks(self) -> Mapping[str, str]:
        """The character that replaces each token."""
        return {token: chr(FIRST_MARK + index) for index, token in enumerate(self._tokens)}

    def mark(self, text: str) -> str:
        """Replaces the tokens in a text with their marks."""
        for pattern, mark in self._compiled:
            text = pattern.sub(mark, text)
        return text

    def offsets(self, marked: str) -> np.ndarray:
        """Returns the offsets in the text before `mark` of each character and of the end."""
        points = np.frombuffer(marked.encode("utf-32-le", "surrogatepass"), np.uint32)
        widths = np.ones(len(points) + 1, np.int64)
        for mark, width in zip(self.marks.values(), self.widths, strict=True):
            widths[1:][points == ord(mark)] = width
        widths[0] = 0
        return np.cumsum(widths)


class Segment(NamedTuple):
    """A part of a text: a special token, or what is between two of them.

    Args:
        start: The offset of its first character, without whitespace that a token takes.
        end: The offset one past its last character.
        token_id: The id of the token; `None` for other text.
    """

    start: int
    end: int
    token_id: int | None


class TokenSplitter:
    """Splits texts at special tokens.

    Args:
        ids: The id of each special token.
        takes_space: The token that includes the whitespace before it, if it is one of them.
    """

    def __init__(self, ids: Mapping[str, int], takes_space: str) -> None:
        self.ids = tuple(ids.values())
        self.patterns = tuple(
            (f"[{WHITE_SPACE}]*" if token == takes_space else "") + re.escape(token)
            for token in ids
        )
        groups = "|".join(f"({pattern})" for pattern in self.patterns)
        self._tokens = re.compile(groups)
        self._space = re.compile(f"[{WHITE_SPACE}]*")

    def __call__(self, text: str) -> Iterator[Segment]:
        """Yields the segments of a text in order; other text may be empty."""
        begin = 0
        for found in self._tokens.finditer(text):
            yield Segment(begin, found.start(), None)
            spaces = self._space.match(text, found.start(), found.end())
            start = spaces.end() if spaces else found.start()
            assert found.lastindex is not None
            yield Segment(start, found.end(), self.ids[found.lastindex - 1])
            begin = found.end()
        yield Segment(begin, len(text), None)


def segments(text: str, splitter: TokenSplitter | None) -> Iterator[Segment]:
    """Yields the segments of a text, which is one without a `splitter`."""
    return splitter(text) if splitter else iter([Segment(0, len(text), None)])


@functools.cache
def _spellings() -> Mapping[str, Sequence[str]]:
    """Maps each character to all characters that become it without case and accents."""
    spellings = collections.defaultdict(list)
    for point in range(0x20000):  # ideographs follow
        if not 0xD800 <= point < 0xE000:
            spellings[without_case(chr(point))].append(chr(point))
    return spellings


def _any_case(character: str) -> str:
    """Returns a regular expression for a character in any case and with any accent."""
    return f"[{''.join(map(re.escape, _spellings().get(character, [character])))}]"

# SPDX-License-Identifier: Apache-2.0
"""Recognition of special and added tokens in texts, for each kind of tokenizer."""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from keras_bert.text.characters import WHITE_SPACE
from keras_bert.text.normalization import Normalization, without_case

PADDING, UNKNOWN, CLASSIFY, SEPARATE, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PADDING, UNKNOWN, CLASSIFY, SEPARATE, MASK)
SUFFIX = "##"
"""The prefix of tokens that continue a word."""

# Unassigned code points in the range of CJK ideographs: each is a word of its own, normalization
# does not change it, and it does not occur in real text.
FIRST_MARK = 0xFAE0
_NO_CHARACTER = 0xFAFF
# A regular expression without a match
_NOTHING = "(?!)"


class TokenMarks:
    """Replaces each special token in a text with a single character that the tokenizer recognizes.

    Args:
        tokens: The tokens to recognize, at most 31; a `ValueError` if there are more.
        uncased: Those that are recognized in normalized text: in any case, and with any accents.
        rules: How text is normalized.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        uncased: Collection[str] = (),
        rules: Normalization | None = None,
    ) -> None:
        if len(tokens) > _NO_CHARACTER - FIRST_MARK:
            raise ValueError(
                f"There are {len(tokens)} special and added tokens to find in texts; at most "
                f"{_NO_CHARACTER - FIRST_MARK} are supported."
            )
        # Longer tokens are replaced first, since they may contain shorter ones; uncased ones last.
        self._tokens = tuple(sorted(tokens, key=lambda token: (token in uncased, -len(token))))
        rules = rules or Normalization()
        spellings = [
            without_case(token, rules) if token in uncased else token for token in self._tokens
        ]
        self.widths = tuple(map(len, spellings))
        patterns = (
            "".join(_any_case(each, rules) for each in spelling)
            if token in uncased
            else re.escape(token)
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

    def offsets(self, marked_text: str) -> np.ndarray:
        """Returns the offsets in the text before `mark` of each character and of the end."""
        points = np.frombuffer(marked_text.encode("utf-32-le", "surrogatepass"), np.uint32)
        widths = np.ones(len(points) + 1, np.int64)
        for mark, width in zip(self.marks.values(), self.widths, strict=True):
            widths[1:][points == ord(mark)] = width
        widths[0] = 0
        return np.cumsum(widths)


class Segment(NamedTuple):
    """A chunk of a text: a special token, or the text between two of them.

    Args:
        start: The offset of its first character, without whitespace that a token takes.
        end: The offset one past its last character.
        token_id: The id of the token; `None` for other text.
    """

    start: int
    end: int
    token_id: int | None


class TokenSplitter:
    """Splits texts at tokens that are one token each wherever they occur.

    Of tokens that begin at the same character, the longest one is found. The tokens `taking_space`,
    which include the whitespace before them, are found before others, so that a run of spaces that
    is a token itself belongs to a mask token after it. `ids` has the id of each token.
    """

    def __init__(self, ids: Mapping[str, int], taking_space: Collection[str] = ()) -> None:
        self.ids = dict(ids)
        with_space = longest_of(token for token in ids if token in taking_space)
        others = longest_of(token for token in ids if token not in taking_space)
        self.patterns = [
            *([f"[{WHITE_SPACE}]*{with_space}"] if with_space else []),
            *([others] if others else []),
        ]
        """Regular expressions of RE2. The second is for the text between matches of the first: as
        one, they would read a run of spaces again for each token of spaces in it."""
        # One of Python would read it again from each space.
        spaces = f"(?:(?<![{WHITE_SPACE}])[{WHITE_SPACE}]+)?"
        self._with_space = re.compile(f"{spaces}({with_space or _NOTHING})")
        self._others = re.compile(others or _NOTHING)

    def __call__(self, text: str) -> Iterator[Segment]:
        """Yields the segments of a text in order; other text may be empty."""
        begin = 0
        for match in self._with_space.finditer(text):
            yield from self._without_space(text, begin, match.start())
            yield Segment(match.start(1), match.end(), self.ids[match[1]])
            begin = match.end()
        yield from self._without_space(text, begin, len(text))

    def _without_space(self, text: str, begin: int, end: int) -> Iterator[Segment]:
        for match in self._others.finditer(text, begin, end):
            yield Segment(begin, match.start(), None)
            yield Segment(match.start(), match.end(), self.ids[match[0]])
            begin = match.end()
        yield Segment(begin, end, None)


def longest_of(strings: Iterable[str]) -> str:
    """Returns a regular expression for any of some strings, the longest one that matches.

    It reads each character once, while a list of alternatives would be tried one after the other.
    """
    rests = collections.defaultdict(list)
    for string in strings:
        rests[string[:1]].append(string[1:])
    is_end = bool(rests.pop("", None))
    branches = [re.escape(first) + longest_of(rest) for first, rest in rests.items()]
    if not branches:
        return ""
    pattern = "|".join(branches)
    if len(branches) > 1 or is_end:
        pattern = f"(?:{pattern})"
    return f"{pattern}?" if is_end else pattern


def segments(text: str, splitter: TokenSplitter | None) -> Iterator[Segment]:
    """Yields the segments of a text, which is one without a `splitter`."""
    return splitter(text) if splitter else iter([Segment(0, len(text), None)])


@functools.cache
def _spellings(rules: Normalization) -> Mapping[str, Sequence[str]]:
    """Maps each character to all characters that become it without case and accents."""
    spellings = collections.defaultdict(list)
    for point in range(0x20000):  # ideographs follow
        if not 0xD800 <= point < 0xE000:
            spellings[without_case(chr(point), rules)].append(chr(point))
    return spellings


def _any_case(character: str, rules: Normalization) -> str:
    """Returns a regular expression for a character in any case and with any accent."""
    return f"[{''.join(map(re.escape, _spellings(rules).get(character, [character])))}]"

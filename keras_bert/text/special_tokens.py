# SPDX-License-Identifier: Apache-2.0
"""Recognition of special and added tokens in texts, for each kind of tokenizer."""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from keras_bert.text.characters import WHITE_SPACE, character_class
from keras_bert.text.composition import compose_text
from keras_bert.text.normalization import Normalization, is_dropped, without_case

PADDING, UNKNOWN, CLASSIFY, SEPARATE, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PADDING, UNKNOWN, CLASSIFY, SEPARATE, MASK)
SUFFIX = "##"
"""The prefix of tokens that continue a word."""

# Unassigned code points in the range of CJK ideographs: each is a word of its own, normalization
# does not change it, and it does not occur in real text.
FIRST_MARK = 0xFAE0
_NO_CHARACTER = 0xFAFF
BORDERS = "\ufade\ufadf"
"""The characters around a token that was found, before a mark replaces both and the token."""
AROUND_DROPPED = "\ufadc\ufadd"
"""The characters around those that normalization drops, meanwhile: patterns that had all of them
between any two letters would be too large."""
# A regular expression without a match
_NOTHING = "(?!)"
# Characters that normalization replaces with a space
_SPACES = "[\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
# Characters that it drops, for a character class of RE2 and PCRE2
_DROPPED = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\p{Cf}\x{fffd}"


class TokenMarks:
    """Replaces each special token in a text with a single character that the tokenizer recognizes.

    Of the tokens that begin at the same character, the longest one is found. As in the `tokenizers`
    library, `normalized` tokens are found after the others, in normalized text.

    Args:
        tokens: The tokens to recognize, at most 31; a `ValueError` if there are more.
        normalized: Those that are recognized in normalized text: around characters that
            normalization drops and, if it does so, in any case and with any accents.
        rules: How text is normalized.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        normalized: Collection[str] = (),
        rules: Normalization | None = None,
    ) -> None:
        if len(tokens) > _NO_CHARACTER - FIRST_MARK:
            raise ValueError(
                f"There are {len(tokens)} special and added tokens to find in texts; at most "
                f"{_NO_CHARACTER - FIRST_MARK} are supported."
            )
        raw = [token for token in tokens if token not in normalized]
        others = [token for token in tokens if token in normalized]
        self.raw_widths = tuple(map(len, raw))
        """The number of characters of each token that is found in raw text."""
        self.marks = {token: chr(FIRST_MARK + index) for index, token in enumerate((*raw, *others))}
        """The character that replaces each token, those that are found in raw text first."""
        rules = rules or Normalization()
        spelling = _Spelling(rules)

        def marked(token: str, pattern: str) -> tuple[str, str]:
            return BORDERS[0] + pattern + BORDERS[1], self.marks[token]

        # A mark that occurs in a text is not a special token.
        marks = "".join(self.marks.values())
        self.until_borders = [(f"[{marks}{BORDERS}{AROUND_DROPPED}]", chr(_NO_CHARACTER))]
        """Regular expressions (of RE2) and the replacements of their matches. They leave borders
        around the tokens that are found in normalized text."""
        self.from_borders: list[tuple[str, str]] = []
        """Those that replace these tokens, with their borders, with marks."""
        if raw:
            self.until_borders.append(_put_around(longest_of(raw), BORDERS))
            self.until_borders += [marked(token, re.escape(token)) for token in raw]
        if others:
            dropped = _DROPPED + r"\p{Mn}" * rules.strip_accents
            self.until_borders += [
                _put_around(f"[{dropped}]+", AROUND_DROPPED),
                _put_around(spelling.pattern(others), BORDERS),
            ]
            self.from_borders = [marked(token, spelling.pattern([token])) for token in others]
            self.from_borders.append((f"[{AROUND_DROPPED}]", ""))
        self._until_borders, self._from_borders = (
            [(re.compile(_in_python(pattern)), mark) for pattern, mark in replacements]
            for replacements in (self.until_borders, self.from_borders)
        )

    def border(self, text: str) -> str:
        """Replaces tokens in a text with their marks, or puts them between borders."""
        for pattern, mark in self._until_borders:
            text = pattern.sub(mark, text)
        return text

    def mark(self, bordered_text: str) -> str:
        """Replaces the tokens between borders with their marks."""
        for pattern, mark in self._from_borders:
            bordered_text = pattern.sub(mark, bordered_text)
        return bordered_text

    def offsets(self, bordered_text: str, marked_text: str) -> np.ndarray:
        """Returns the offsets in the text before `border` of each character and of the end."""
        index = _code_points(marked_text).astype(np.int64) - FIRST_MARK
        widths = np.ones(len(index) + 1, np.int64)
        widths[0] = 0
        num_raw = len(self.raw_widths)
        is_raw = (index >= 0) & (index < num_raw)
        widths[1:][is_raw] = np.array(self.raw_widths, np.int64)[index[is_raw]]
        points = _code_points(re.sub(f"[{AROUND_DROPPED}]", "", bordered_text))
        begins, ends = (np.flatnonzero(points == ord(border)) for border in BORDERS)
        widths[1:][(index >= num_raw) & (index < len(self.marks))] = ends - begins - 1
        return np.cumsum(widths)


def _put_around(pattern: str, characters: str) -> tuple[str, str]:
    """Returns a replacement that puts one character before, and another after, each match."""
    return f"({pattern})", rf"{characters[0]}\1{characters[1]}"


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _in_python(pattern: str) -> str:
    """Returns a regular expression of RE2 for Python, which has no classes by category."""
    for name in ("Cf", "Mn"):
        if rf"\p{{{name}}}" in pattern:
            pattern = pattern.replace(rf"\p{{{name}}}", character_class(name))
    return pattern.replace(r"\x{fffd}", "\ufffd")


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
            yield from self._strip_space(text, begin, match.start())
            yield Segment(match.start(1), match.end(), self.ids[match[1]])
            begin = match.end()
        yield from self._strip_space(text, begin, len(text))

    def _strip_space(self, text: str, begin: int, end: int) -> Iterator[Segment]:
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


class _Spelling:
    """Regular expressions for the raw texts that become the same normalized text as some tokens."""

    def __init__(self, rules: Normalization) -> None:
        self._rules = rules
        end = AROUND_DROPPED[1]
        self._between = f"(?:{AROUND_DROPPED[0]}[^{end}]*{end})?"

    def pattern(self, tokens: Iterable[str]) -> str:
        """Returns a pattern for any of some tokens, the longest one that matches."""
        tree: dict[str, Any] = {}
        for token in tokens:
            text = "".join(map(self._normalized, token))
            node = tree
            for letter in compose_text(text) if self._rules.strip_accents else text:
                node = node.setdefault(letter, {})
            if text:
                node[""] = {}
        return self._branches(tree) or r"[^\s\S]"  # no match

    def _branches(self, tree: Mapping[str, Any]) -> str:
        branches = [
            self._letter(letter) + self._rest(rest) for letter, rest in tree.items() if letter
        ]
        return f"(?:{'|'.join(branches)})" if branches else ""

    def _rest(self, tree: Mapping[str, Any]) -> str:
        branches = self._branches(tree)
        if not branches:
            return ""
        longer = self._between + branches
        return f"(?:{longer})?" if "" in tree else longer

    def _letter(self, letter: str) -> str:
        """Returns a pattern for a letter, of several characters if it may be decomposed."""
        if letter == " ":
            return _SPACES
        spellings = _spellings(self._rules)

        def spelled(parts: str) -> list[str]:
            whole = spellings.get(parts, [parts] if len(parts) == 1 else [])
            patterns = [f"[{''.join(map(re.escape, whole))}]"] if whole else []
            for size in range(1, len(parts)):
                patterns += [
                    first + self._between + rest
                    for first in spelled(parts[:size])[:1]
                    for rest in spelled(parts[size:])
                ]
            return patterns

        parts = self._normalized(letter) if self._rules.strip_accents else letter
        patterns = spelled(parts)
        return patterns[0] if len(patterns) == 1 else f"(?:{'|'.join(patterns)})"

    def _normalized(self, character: str) -> str:
        if re.match(_SPACES, character):
            return " "
        return "" if is_dropped(character) else without_case(character, self._rules)


@functools.cache
def _spellings(rules: Normalization) -> Mapping[str, Sequence[str]]:
    """Maps each character to all characters that become it without case and accents."""
    spellings = collections.defaultdict(list)
    for point in range(0x20000):  # ideographs follow
        if not 0xD800 <= point < 0xE000:
            spellings[without_case(chr(point), rules)].append(chr(point))
    return spellings

# SPDX-License-Identifier: Apache-2.0
"""Finds special and added tokens in texts, for each type of tokenizer."""

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

# Unassigned code points among the CJK ideographs. Each of them is a separate word, normalization
# does not change it, and it does not occur in real text.
FIRST_MARK = 0xFAE0
_NO_CHARACTER = 0xFAFF
NUM_MARKS = _NO_CHARACTER - FIRST_MARK
# Unassigned letters for more tokens. They need spaces around them to be separate words.
FIRST_SPACED_MARK = 0xE1000
_LAST_SPACED_MARK = 0xEFFFD
_NO_LETTER = FIRST_SPACED_MARK - 1
BORDERS = "\ufade\ufadf"
"""The characters that temporarily enclose a found token. A mark later replaces all of them."""
AROUND_DROPPED = "\ufadc\ufadd"
"""The characters that temporarily enclose characters to drop in normalization.

Without them, patterns would need to allow all dropped characters between any two letters and be too
large.
"""
# A regular expression that does not match anything
_NOTHING = "(?!)"
# Characters that normalization replaces with a space
_SPACES = "[\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
# Characters that normalization drops, for a character class (RE2 and PCRE2)
_DROPPED = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\p{Cf}\x{fffd}"


class TokenMarks:
    """Replaces each special token in a text with a single character that the tokenizer recognizes.

    If multiple tokens start at the same character, the longest is found. As in the `tokenizers`
    library, `normalized` tokens are found after the other tokens, in normalized text.

    Args:
        tokens: The tokens to find.
        normalized: The tokens to find in normalized text: around characters that normalization
            drops and, if it folds case and strips accents, in any case and with any accents.
        rules: The normalization rules.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        normalized: Collection[str] = (),
        rules: Normalization | None = None,
    ) -> None:
        raw = [token for token in tokens if token not in normalized]
        others = [token for token in tokens if token in normalized]
        self.raw_widths = tuple(map(len, raw))
        """The number of characters in each token to find in raw text."""
        self.marks = {token: _mark(index) for index, token in enumerate((*raw, *others))}
        """The character that replaces each token. Tokens found in raw text come first."""
        rules = rules or Normalization()
        spelling = _Spelling(rules)

        def marked(token: str, pattern: str) -> tuple[str, str]:
            mark = self.marks[token]
            mark = mark if ord(mark) < FIRST_SPACED_MARK else f" {mark} "
            return BORDERS[0] + pattern + BORDERS[1], mark

        # A mark in the original text is not a special token.
        marks = list(self.marks.values())
        reserved = "".join(marks[:NUM_MARKS]) + BORDERS + AROUND_DROPPED
        self.until_borders = [(f"[{reserved}]", chr(_NO_CHARACTER))]
        if len(marks) > NUM_MARKS:
            letters = f"[{chr(FIRST_SPACED_MARK)}-{chr(_LAST_SPACED_MARK)}]"
            self.until_borders.append((letters, chr(_NO_LETTER)))
        """Regular expressions (RE2) and the replacements for their matches.

        They leave borders around tokens to find in normalized text.
        """
        self.from_borders: list[tuple[str, str]] = []
        """Regular expressions that replace these tokens and their borders with marks."""
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
            [(re.compile(_to_python(pattern)), mark) for pattern, mark in replacements]
            for replacements in (self.until_borders, self.from_borders)
        )

    def border(self, text: str) -> str:
        """Replaces tokens in a text with their marks, or encloses them in borders."""
        for pattern, mark in self._until_borders:
            text = pattern.sub(mark, text)
        return text

    def mark(self, bordered_text: str) -> str:
        """Replaces tokens between borders with their marks."""
        for pattern, mark in self._from_borders:
            bordered_text = pattern.sub(mark, bordered_text)
        return bordered_text

    def offsets(self, bordered_text: str, marked_text: str) -> np.ndarray:
        """Maps each character in a marked text to its offset in the text before `border`.

        The last value is the length of the text before `border`.
        """
        points = _code_points(marked_text).astype(np.int64)
        index = points - FIRST_MARK
        index[index >= NUM_MARKS] = -1
        spaced_index = points - FIRST_SPACED_MARK
        is_spaced = (spaced_index >= 0) & (spaced_index < len(self.marks) - NUM_MARKS)
        index[is_spaced] = spaced_index[is_spaced] + NUM_MARKS
        widths = np.ones(len(index) + 1, np.int64)
        widths[0] = 0
        num_raw = len(self.raw_widths)
        is_raw = (index >= 0) & (index < num_raw)
        widths[1:][is_raw] = np.array(self.raw_widths, np.int64)[index[is_raw]]
        bordered = _code_points(re.sub(f"[{AROUND_DROPPED}]", "", bordered_text))
        begins, ends = (np.flatnonzero(bordered == ord(border)) for border in BORDERS)
        widths[1:][(index >= num_raw) & (index < len(self.marks))] = ends - begins - 1
        # The spaces around these marks are not in the original text.
        for neighbor in (-1, 1):
            widths[1:][np.flatnonzero(is_spaced) + neighbor] = 0
        return np.cumsum(widths)


def _mark(index: int) -> str:
    """Returns the character that replaces the token with an index."""
    first = FIRST_MARK if index < NUM_MARKS else FIRST_SPACED_MARK - NUM_MARKS
    return chr(first + index)


def _put_around(pattern: str, characters: str) -> tuple[str, str]:
    """Returns a replacement that encloses each match in two characters."""
    return f"({pattern})", rf"{characters[0]}\1{characters[1]}"


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _to_python(pattern: str) -> str:
    """Converts an RE2 regular expression for Python, which has no category classes."""
    for name in ("Cf", "Mn"):
        if rf"\p{{{name}}}" in pattern:
            pattern = pattern.replace(rf"\p{{{name}}}", character_class(name))
    return pattern.replace(r"\x{fffd}", "\ufffd")


class Segment(NamedTuple):
    """A special token in a text, or the text between two special tokens.

    Args:
        start: The offset of the first character, without a token's whitespace.
        end: The offset after the last character.
        token_id: The id of the token, or `None` for other text.
    """

    start: int
    end: int
    token_id: int | None


class TokenSplitter:
    """Splits texts at special and added tokens.

    If multiple tokens start at the same character, the longest is found. The tokens in
    `taking_space` include preceding whitespace and are found first. Therefore, a run of spaces
    belongs to a mask token after it, even if the run is a token. `ids` contains the id of each
    token.
    """

    def __init__(self, ids: Mapping[str, int], taking_space: Collection[str] = ()) -> None:
        self.ids = dict(ids)
        with_space = longest_of(token for token in ids if token in taking_space)
        others = longest_of(token for token in ids if token not in taking_space)
        self.patterns = [
            *([f"[{WHITE_SPACE}]*{with_space}"] if with_space else []),
            *([others] if others else []),
        ]
        """RE2 regular expressions. The second applies to the text between matches of the first. A
        combined expression would scan a run of spaces again for each token of spaces in it."""
        # Without the lookbehind, Python would scan a run of spaces again from each space.
        spaces = f"(?:(?<![{WHITE_SPACE}])[{WHITE_SPACE}]+)?"
        self._with_space = re.compile(f"{spaces}({with_space or _NOTHING})")
        self._others = re.compile(others or _NOTHING)

    def __call__(self, text: str) -> Iterator[Segment]:
        """Yields a text's segments in order. Only segments without a token may be empty."""
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
    """Returns a regular expression that matches the longest of some strings.

    It reads each character once, whereas a list of alternatives would be tried one by one.
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
    """Yields a text's segments. Without a `splitter`, the only segment is the whole text."""
    return splitter(text) if splitter else iter([Segment(0, len(text), None)])


class _Spelling:
    """Creates regular expressions for raw texts with the same normalized text as some tokens."""

    def __init__(self, rules: Normalization) -> None:
        self._rules = rules
        end = AROUND_DROPPED[1]
        self._between = f"(?:{AROUND_DROPPED[0]}[^{end}]*{end})?"

    def pattern(self, tokens: Iterable[str]) -> str:
        """Returns a pattern that matches the longest of some tokens."""
        tree: dict[str, Any] = {}
        for token in tokens:
            text = "".join(map(self._normalized, token))
            node = tree
            for letter in compose_text(text) if self._rules.strip_accents else text:
                node = node.setdefault(letter, {})
            if text:
                node[""] = {}
        return self._branches(tree) or r"[^\s\S]"  # It does not match anything.

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
        """Returns a pattern for a letter, including its decompositions into multiple characters."""
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
    """Maps each character to all characters that equal it without case and accents."""
    spellings = collections.defaultdict(list)
    for point in range(0x20000):  # Higher planes contain ideographs.
        if not 0xD800 <= point < 0xE000:
            spellings[without_case(chr(point), rules)].append(chr(point))
    return spellings

# SPDX-License-Identifier: Apache-2.0
"""Unicode properties of characters that match TensorFlow's operations in every Python version.

Categories and combining classes are read from `characters.txt`. After Unicode assigns a character,
its case and decomposition never change, so Python's data is used for characters in the table. Newer
characters have neither case nor decomposition, unless the table contains them.
"""

from __future__ import annotations

import bisect
import functools
import importlib.resources
import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

WHITE_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Whitespace in character classes of regular expressions (Python and RE2)."""

_SUPPLEMENTARY_IDEOGRAPHS = (
    "\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf"
    "\U0002f800-\U0002fa1f"
)
IDEOGRAPHS = f"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff{_SUPPLEMENTARY_IDEOGRAPHS}"
"""The blocks that the original BERT code regards as Chinese, in character classes."""
UNSPACED = (
    "\u0e00-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Characters of scripts that do not separate words by spaces, in character classes.

Thai, Lao, Tibetan, Burmese, Khmer, kana and Han.
"""

# The last block ends before the code points that mark special tokens.
IDEOGRAPHS_AS_LETTERS = (
    ("\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufadf", 0xF0000),
    (_SUPPLEMENTARY_IDEOGRAPHS, 0xE0000),
)
"""Ideographs in character classes, and their distance to letters in the private use planes."""
PRIVATE_PLANES = ("\U000f0000-\U0010ffff", "\U000ffffd")
"""The characters of these planes in character classes, and their replacement."""

DECOMPOSED_MARKS = "\u0344\u0f73\u0f75\u0f81"
"""The characters that decompose to multiple combining marks. Unicode will not add more."""

_UNASSIGNED = "Cn"


class CharacterRange(NamedTuple):
    """Consecutive code points with the same properties."""

    first: int
    last: int
    category: str
    combining_class: int


class _Table(NamedTuple):
    """The content of `characters.txt`: ranges in ascending order, and newer decompositions."""

    ranges: list[CharacterRange]
    canonical: dict[str, str]
    compatible: dict[str, str]


@functools.cache
def category(character: str) -> str:
    """Returns the general category: `"L"` for letters, `"N"` for numbers, else two letters."""
    return _character_range(character).category


@functools.cache
def combining_class(character: str) -> int:
    """Returns the canonical combining class: 0, except for combining marks."""
    return _character_range(character).combining_class


@functools.cache
def is_punctuation(character: str) -> bool:
    """Returns whether BERT splits at a character (category P or any other ASCII symbol)."""
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return category(character)[0] == "P"


@functools.cache
def is_ideograph(character: str) -> bool:
    """Returns whether the original BERT code regards a character as Chinese."""
    return re.match(f"[{IDEOGRAPHS}]", character) is not None


def ideographs_as_letters(text: str) -> str:
    """Replaces ideographs with characters that do not separate words."""
    if text.isascii():
        return text
    characters, replacement = PRIVATE_PLANES
    text = re.sub(f"[{characters}]", replacement, text)
    for characters, distance in IDEOGRAPHS_AS_LETTERS:
        text = re.sub(f"[{characters}]", lambda each: chr(ord(each[0]) + distance), text)  # noqa: B023
    return text


def check_characters(text: Any, where: str) -> None:
    """Checks that UTF-8 can represent a text, so the text must not contain lone surrogates."""
    # `isascii` takes almost no time.
    if not isinstance(text, str) or text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} must only contain characters that UTF-8 can represent. Received: the lone "
            f"surrogate {text[error.start]!r} at position {error.start}"
        ) from error


def lower_text(text: str) -> str:
    """Lowercases a text. A word-final sigma becomes `ς`, as in `str.lower`."""
    if text.isascii():
        return text.lower()
    runs = itertools.groupby(text, lambda character: category(character) == _UNASSIGNED)
    return "".join("".join(run) if is_new else "".join(run).lower() for is_new, run in runs)


@functools.cache
def decompose(character: str, compatible: bool = False) -> str:
    """Decomposes a character with NFD or, if `compatible`, NFKD."""
    table = _table()
    if category(character) == _UNASSIGNED:
        decomposition = table.canonical.get(character)
        return decomposition or (compatible and table.compatible.get(character)) or character
    if compatible and character in table.compatible:
        return table.compatible[character]
    return unicodedata.normalize("NFKD" if compatible else "NFD", character)


def character_class(category: str) -> str:
    """Returns all characters in a category, such as `"Cf"` or `"L"`, for regular expressions."""
    return _spell(
        (row.first, row.last) for row in _table().ranges if row.category.startswith(category)
    )


def character_class_of(points: Iterable[int]) -> str:
    """Returns the characters with the given code points, for regular expressions."""
    return _spell((point, point) for point in sorted(points))


def combining_marks() -> str:
    """Returns the characters of `combining_points`, for regular expressions."""
    return character_class_of(combining_points())


def combining_points() -> set[int]:
    """Returns the code points of combining marks, including characters that decompose to marks."""
    ranges = (range(row.first, row.last + 1) for row in combining_classes())
    return {*itertools.chain.from_iterable(ranges), *map(ord, DECOMPOSED_MARKS)}


def combining_classes() -> Sequence[CharacterRange]:
    """Returns the ranges of characters with a combining class, in ascending order."""
    return [row for row in _table().ranges if row.combining_class]


def _spell(ranges: Iterable[tuple[int, int]]) -> str:
    merged_ranges: list[tuple[int, int]] = []
    for first, last in ranges:
        if merged_ranges and merged_ranges[-1][1] == first - 1:
            first = merged_ranges.pop()[0]
        merged_ranges.append((first, last))
    return "".join(
        f"{re.escape(chr(first))}-{re.escape(chr(last))}" if first < last else re.escape(chr(first))
        for first, last in merged_ranges
    )


def _character_range(character: str) -> CharacterRange:
    point = ord(character)
    ranges = _table().ranges
    index = bisect.bisect(ranges, point, key=lambda row: row.first) - 1
    if ranges[index].last >= point:
        return ranges[index]
    return CharacterRange(point, point, _UNASSIGNED, 0)


@functools.cache
def _table() -> _Table:
    table = _Table([], {}, {})
    file = importlib.resources.files("keras_bert.text") / "characters.txt"
    for line in file.read_text("ascii").splitlines():
        if line.startswith("#"):
            continue
        points, mark, *rest = line.split()
        if mark in "=~":
            decompositions = table.canonical if mark == "=" else table.compatible
            decompositions[chr(int(points, 16))] = "".join(chr(int(point, 16)) for point in rest)
        else:
            first, _, last = points.partition("..")
            mark_class = int(rest[0]) if rest else 0
            table.ranges.append(
                CharacterRange(int(first, 16), int(last or first, 16), mark, mark_class)
            )
    return table

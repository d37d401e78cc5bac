# SPDX-License-Identifier: Apache-2.0
"""BERT's text normalization and splitting into words, with the source of each character.

Reference:
    [Devlin et al., 2019](https://arxiv.org/abs/1810.04805), the released code, `BasicTokenizer`.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from keras_bert.text.characters import (
    category,
    combining_class,
    decomposed,
    is_ideograph,
    is_punctuation,
    lowered,
)

MAX_WORD_LENGTH = 200
"""The maximum number of characters of a word; longer words are unknown, as in the original."""

# What `str.split` takes for whitespace and the original drops, as control characters
_DROPPED_SPACE = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
# A run of what is no whitespace for the original
_RAW_WORD = re.compile(r"(?:\S|[\x0b\x0c\x1c-\x1f\x85])+")
_JOINERS_AND_TAGS = frozenset(map(chr, (0x200C, 0x200D, *range(0xE0020, 0xE0080))))


class Word(NamedTuple):
    """A normalized word.

    Args:
        letters: Its characters.
        firsts: The index in the raw word of the character that each of them comes from; of marks
            that canonical decomposition may reorder, the first one.
        lasts: The index of the last one of these.
    """

    letters: str
    firsts: Sequence[int]
    lasts: Sequence[int]

    def part(self, begin: int, end: int) -> Word:
        """Returns some of its characters."""
        return Word(self.letters[begin:end], self.firsts[begin:end], self.lasts[begin:end])


def raw_words(text: str) -> list[str]:
    """Splits a text at whitespace; control characters that the original drops may be missing."""
    if _DROPPED_SPACE.search(text):
        text = _DROPPED_SPACE.sub("", text)
    return text.split()


def raw_words_with_starts(text: str) -> Iterator[tuple[str, int]]:
    """Yields the words between whitespace, with the offset of the first character of each."""
    for found in _RAW_WORD.finditer(text):
        yield found[0], found.start()


def words_of(raw: str, lowercase: bool) -> Iterator[Word]:
    """Normalizes a raw word, and splits it at punctuation and ideographs, which are words too.

    Args:
        raw: Text without whitespace.
        lowercase: Whether to lowercase and strip accents, for an uncased vocabulary.
    """
    word = _normalized(raw, lowercase)
    begin = 0
    for index, letter in enumerate(word.letters):
        if is_punctuation(letter) or is_ideograph(letter):
            if begin < index:
                yield word.part(begin, index)
            yield word.part(index, index + 1)
            begin = index + 1
    if begin < len(word.letters):
        yield word.part(begin, len(word.letters))


def split_words(lowercase: bool) -> Callable[[str], Iterator[str]]:
    """Returns a function that normalizes a text and splits it into words.

    Each punctuation mark and each CJK ideograph is a word.

    Args:
        lowercase: Whether to lowercase and strip accents.
    """

    @functools.lru_cache(1 << 17)
    def words(raw: str) -> list[str]:
        return [word.letters for word in words_of(raw, lowercase)]

    return lambda text: itertools.chain.from_iterable(map(words, raw_words(text)))


def over_dropped_marks(
    text: str, start: int, end: int, is_dropped: Callable[[int], bool]
) -> tuple[int, int]:
    """Extends a span by the marks after it that normalization drops.

    Marks at the beginning of a text, or after whitespace, belong to the span after them.

    Args:
        text: A text.
        start: The offset of the first character of the span.
        end: The offset one past its last character.
        is_dropped: Returns whether the character at an offset is a mark that is dropped.

    Returns:
        A tuple of the offsets of the extended span.
    """
    while end < len(text) and is_dropped(end):
        end += 1
    marks = start
    while marks and is_dropped(marks - 1):
        marks -= 1
    begins_word = not marks or text[marks - 1] in " \t\n\r" or category(text[marks - 1])[0] == "Z"
    return (marks if begins_word else start), end


def is_extending(character: str) -> bool:
    """Returns whether a character belongs to the one before it (UAX 29, rule GB9), if dropped."""
    return _is_mark(character) or character in _JOINERS_AND_TAGS


def without_case(text: str) -> str:
    """Lowercases a text and strips its accents, as an uncased tokenizer does."""
    parts = "".join(map(decomposed, lowered(text)))
    return "".join(part for part in parts if not _is_mark(part))


def _normalized(raw: str, lowercase: bool) -> Word:
    """Drops control characters and, for uncased vocabularies, case and accents."""
    if raw.isascii() and raw.isprintable():
        return Word(raw.lower() if lowercase else raw, range(len(raw)), range(len(raw)))
    sources = [index for index, character in enumerate(raw) if not _is_dropped(character)]
    letters = "".join([raw[index] for index in sources])
    return _uncased(letters, sources) if lowercase else Word(letters, sources, sources)


def _uncased(letters: str, sources: Sequence[int]) -> Word:
    """Lowercases, decomposes, and strips marks of category Mn."""
    # The form of a sigma depends on its neighbors; the number of small letters does not.
    small = lowered(letters)
    origins = [
        source
        for letter, source in zip(letters, sources, strict=True)
        for _ in range(len(lowered(letter)))
    ]
    parts = [
        (part, source)
        for letter, source in zip(small, origins, strict=True)
        for part in decomposed(letter)
    ]
    kept = [part for part in _in_canonical_order(parts) if not _is_mark(part[0])]
    clusters = _movable_marks([part for part in parts if not _is_mark(part[0])])
    return Word(
        "".join([letter for letter, _ in kept]),
        [clusters.get(source, (source,))[0] for _, source in kept],
        [clusters.get(source, (source,))[-1] for _, source in kept],
    )


def _movable_marks(parts: list[tuple[str, int]]) -> dict[int, list[int]]:
    """Maps the source of each mark that may be reordered to those of the marks around it."""
    sources = {source for letter, source in parts if combining_class(letter)}
    clusters: dict[int, list[int]] = {}
    if sources:
        order = sorted({source for _, source in parts})
        for is_movable, run in itertools.groupby(order, sources.__contains__):
            if is_movable:
                cluster = list(run)
                clusters |= dict.fromkeys(cluster, cluster)
    return clusters


def _in_canonical_order(parts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Sorts each run of combining marks by their combining class."""
    classes = [combining_class(letter) for letter, _ in parts]
    if not any(classes):
        return parts
    ordered: list[int] = []
    for _, run in itertools.groupby(range(len(parts)), lambda index: classes[index] > 0):
        ordered += sorted(run, key=classes.__getitem__)
    return [parts[index] for index in ordered]


@functools.cache
def _is_dropped(character: str) -> bool:
    return category(character) in ("Cc", "Cf") or character == "\ufffd"


@functools.cache
def _is_mark(character: str) -> bool:
    return category(character) == "Mn"

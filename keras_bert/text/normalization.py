# SPDX-License-Identifier: Apache-2.0
"""BERT's text normalization and splitting into words, with the source of each character.

Reference:
    [Devlin et al., 2019](https://arxiv.org/abs/1810.04805), original code, `BasicTokenizer`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_bert.text.characters import (
    category,
    combining_class,
    decompose,
    ideographs_as_letters,
    is_ideograph,
    is_punctuation,
    lower_text,
)

# Control characters that the original BERT code drops, although `str.split` splits at them
_DROPPED_SPACE = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"
_OTHER_CONTROL = str.maketrans(dict.fromkeys(_DROPPED_SPACE, "\x01"))
# Replaces a character whose normalization depends on the surrounding characters
_IN_CONTEXT = "\0"
_JOINERS_AND_TAGS = frozenset(map(chr, (0x200C, 0x200D, *range(0xE0020, 0xE0080))))


class Normalization(NamedTuple):
    """Rules for text normalization.

    Args:
        lowercase: Whether to lowercase text.
        strip_accents: Whether to decompose characters and drop marks of category Mn.
        split_ideographs: Whether each CJK ideograph is a separate word. Otherwise, ideographs are
            replaced with characters that later steps treat as letters.
    """

    lowercase: bool = True
    strip_accents: bool = True
    split_ideographs: bool = True


class Word(NamedTuple):
    """A normalized word.

    Args:
        letters: Its characters.
        firsts: For each character, the index of its source in the raw word. For adjacent marks that
            canonical decomposition may reorder, the index of the first mark.
        lasts: Like `firsts`, but with the index of the last mark.
    """

    letters: str
    firsts: Sequence[int]
    lasts: Sequence[int]

    def part(self, begin: int, end: int) -> Word:
        """Returns a slice of the word."""
        return Word(self.letters[begin:end], self.firsts[begin:end], self.lasts[begin:end])


def splittable(texts: Sequence[str]) -> Sequence[str]:
    """Replaces characters so that `str.split` splits where the original BERT code does."""
    all_text = "".join(texts)
    if any(character in all_text for character in _DROPPED_SPACE):
        return [text.translate(_OTHER_CONTROL) for text in texts]
    return texts


def word_starts(text: str) -> np.ndarray:
    """Returns the start offset of each word that `str.split` returns."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    table = _is_space()
    is_space = table[np.minimum(points, len(table) - 1)]
    return np.flatnonzero(~is_space & np.append(True, is_space[:-1]))


def normalized_characters(raw: str, rules: Normalization) -> list[str]:
    """Normalizes and splits a raw word like `split_word`, but without character sources."""
    if raw.isascii() and raw.isalnum():
        return [raw.lower() if rules.lowercase else raw]
    words = raw.translate(_letters(rules))
    if _IN_CONTEXT in words:
        return [word.letters for word in split_word(raw, rules)]
    return words.split()


def split_word(raw: str, rules: Normalization) -> Iterator[Word]:
    """Normalizes and splits a raw word. Punctuation marks and ideographs are separate words."""
    parts = _parts(raw, rules)
    if _IN_CONTEXT in parts:
        yield from _split_in_context(raw, rules)
        return
    sources = [index for index, part in enumerate(parts) for _ in part]
    begin = 0
    for letters in "".join(parts).split(" "):
        end = begin + len(letters)
        if letters:
            yield Word(letters, sources[begin:end], sources[begin:end])
        begin = end + 1


def drops_characters(raw: str, rules: Normalization) -> bool:
    """Returns whether normalization drops any character in a raw word."""
    return not all(_parts(raw, rules))


def _split_in_context(raw: str, rules: Normalization) -> Iterator[Word]:
    """Splits a word whose normalization depends on neighboring characters."""
    word = _normalize(raw, rules)
    begin = 0
    for index, letter in enumerate(word.letters):
        if is_punctuation(letter) or is_ideograph(letter):
            if begin < index:
                yield word.part(begin, index)
            yield word.part(index, index + 1)
            begin = index + 1
    if begin < len(word.letters):
        yield word.part(begin, len(word.letters))


def _parts(raw: str, rules: Normalization) -> list[str]:
    """Returns the normalization of each character in a raw word. See `_CharacterMap`."""
    return list(map(_letters(rules).__getitem__, map(ord, raw)))


def split_words(lowercase: bool) -> Callable[[str], Iterator[str]]:
    """Returns a function that normalizes a text and splits it into words.

    Each punctuation mark and each CJK ideograph is a word.
    """

    rules = Normalization(lowercase, strip_accents=lowercase)

    @functools.lru_cache(1 << 17)
    def words(raw: str) -> list[str]:
        return normalized_characters(raw, rules)

    return lambda text: itertools.chain.from_iterable(map(words, splittable([text])[0].split()))


def extend_over_dropped_marks(
    text: str, start: int, end: int, is_dropped: Callable[[int], bool]
) -> tuple[int, int]:
    """Extends a span by the following marks that normalization drops.

    Marks belong to the next span if they follow whitespace or start the text.
    """
    while end < len(text) and is_dropped(end):
        end += 1
    marks = start
    while marks and is_dropped(marks - 1):
        marks -= 1
    if marks == start:
        return start, end
    begins_word = not marks or text[marks - 1] in " \t\n\r" or category(text[marks - 1])[0] == "Z"
    return (marks if begins_word else start), end


def is_extending(character: str) -> bool:
    """Returns whether a dropped character extends its predecessor (UAX 29, rule GB9)."""
    return _is_mark(character) or character in _JOINERS_AND_TAGS


def without_case(text: str, rules: Normalization | None = None) -> str:
    """Lowercases a text and strips its accents, by default like an uncased tokenizer."""
    rules = rules or Normalization()
    text = lower_text(text) if rules.lowercase else text
    if not rules.strip_accents:
        return text
    return "".join(part for part in "".join(map(decompose, text)) if not _is_mark(part))


class _CharacterMap(dict[int, str]):
    """The normalization of each code point, with spaces around punctuation and ideographs."""

    def __init__(self, rules: Normalization) -> None:
        super().__init__()
        self._rules = rules

    def __missing__(self, point: int) -> str:
        letters = self[point] = self._normalize_character(chr(point))
        return letters

    def _normalize_character(self, character: str) -> str:
        if is_dropped(character):
            return ""
        letters = lower_text(character) if self._rules.lowercase else character
        # A lowercase sigma has two forms.
        depends = self._rules.lowercase and character == "Σ"
        if self._rules.strip_accents:
            parts = "".join(map(decompose, letters))
            letters = "".join(letter for letter in parts if not _is_mark(letter))
            # Combining marks may be reordered.
            depends = depends or any(map(combining_class, letters))
        if depends:
            return _IN_CONTEXT
        if not self._rules.split_ideographs:
            letters = ideographs_as_letters(letters)
        return "".join(
            f" {letter} " if is_punctuation(letter) or is_ideograph(letter) else letter
            for letter in letters
        )


@functools.cache
def _letters(rules: Normalization) -> _CharacterMap:
    return _CharacterMap(rules)


@functools.cache
def _is_space() -> np.ndarray:
    """Returns whether code points are whitespace, for code points up to U+3001."""
    return np.array([chr(point).isspace() for point in range(0x3002)])


def _normalize(raw: str, rules: Normalization) -> Word:
    """Drops control characters and normalizes the other characters by the rules."""
    sources = [index for index, character in enumerate(raw) if not is_dropped(character)]
    letters = "".join([raw[index] for index in sources])
    if rules.lowercase:
        # A sigma's neighbors determine its lowercase form, but not the number of lowercase letters.
        sources = [
            source
            for letter, source in zip(letters, sources, strict=True)
            for _ in range(len(lower_text(letter)))
        ]
        letters = lower_text(letters)
    word = Word(letters, sources, sources)
    word = _strip_accents(word) if rules.strip_accents else word
    if rules.split_ideographs:
        return word
    return word._replace(letters=ideographs_as_letters(word.letters))


def _strip_accents(word: Word) -> Word:
    """Decomposes characters and strips marks of category Mn."""
    parts = [
        (part, source)
        for letter, source in zip(word.letters, word.firsts, strict=True)
        for part in decompose(letter)
    ]
    unaccented = [part for part in _canonical_order(parts) if not _is_mark(part[0])]
    clusters = _movable_marks([part for part in parts if not _is_mark(part[0])])
    return Word(
        "".join([letter for letter, _ in unaccented]),
        [clusters.get(source, (source,))[0] for _, source in unaccented],
        [clusters.get(source, (source,))[-1] for _, source in unaccented],
    )


def _movable_marks(parts: list[tuple[str, int]]) -> dict[int, list[int]]:
    """Maps the source of each reorderable mark to the sources of the surrounding marks."""
    sources = {source for letter, source in parts if combining_class(letter)}
    clusters: dict[int, list[int]] = {}
    if sources:
        order = sorted({source for _, source in parts})
        for is_movable, run in itertools.groupby(order, sources.__contains__):
            if is_movable:
                cluster = list(run)
                clusters |= dict.fromkeys(cluster, cluster)
    return clusters


def _canonical_order(parts: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Sorts each run of combining marks by their combining class."""
    classes = [combining_class(letter) for letter, _ in parts]
    if not any(classes):
        return parts
    order: list[int] = []
    for _, run in itertools.groupby(range(len(parts)), lambda index: classes[index] > 0):
        order += sorted(run, key=classes.__getitem__)
    return [parts[index] for index in order]


@functools.cache
def is_dropped(character: str) -> bool:
    """Returns whether the original BERT code drops a non-whitespace character."""
    return category(character) in ("Cc", "Cf") or character == "\ufffd"


@functools.cache
def _is_mark(character: str) -> bool:
    return category(character) == "Mn"

# SPDX-License-Identifier: Apache-2.0
"""BERT's tokenizer in plain Python, as in its released code, with the offsets of each token.

A reference for tests, with the Unicode tables of the running Python.
"""

import functools
import itertools
import unicodedata
from collections.abc import Iterable, Iterator

IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
LONGEST_WORD = 200
JOINERS_AND_TAGS = {"\u200c", "\u200d", *map(chr, range(0xE0020, 0xE0080))}


# A character of the normalized text, and the index of the one it comes from.
Placed = tuple[str, int]
Word = list[Placed]
# An id, and the smallest span of characters with a part in it and the dropped marks that belong to
# them: the first, and one past the last.
Piece = tuple[int, int, int]


@functools.cache
def kind(character: str) -> str:
    """What the clean-up makes of a character: `drop`, `space`, `alone` (ideograph) or `keep`."""
    category = unicodedata.category(character)
    # What str.split() takes for white space beyond this are control characters.
    if character in " \t\n\r\u2028\u2029" or category == "Zs":
        return "space"
    if character in "\0\ufffd" or category in ("Cc", "Cf"):
        return "drop"
    is_ideograph = any(first <= ord(character) <= last for first, last in IDEOGRAPHS)
    return "alone" if is_ideograph else "keep"


@functools.cache
def is_punctuation(character: str) -> bool:
    ascii_symbol = character.isascii() and character.isprintable() and not character.isalnum()
    return (ascii_symbol and character != " ") or unicodedata.category(character)[0] == "P"


def clean_words(text: str, splits_ideographs: bool) -> Iterator[Word]:
    """Words between white space, without what is dropped; ideographs may be words."""
    word: Word = []
    for placed in zip(text, itertools.count(), strict=False):
        what = kind(placed[0])
        if what == "keep" or (what == "alone" and not splits_ideographs):
            word.append(placed)
        elif what != "drop":
            yield word
            yield [placed] if what == "alone" else []
            word = []
    yield word


def split_at_punctuation(word: Word) -> Iterator[Word]:
    """Each punctuation mark a word of its own."""
    begin = 0
    for index, (character, _) in enumerate(word):
        if is_punctuation(character):
            yield word[begin:index]
            yield word[index : index + 1]
            begin = index + 1
    yield word[begin:]


def lower(word: Word) -> Word:
    lowered = "".join([character for character, _ in word]).lower()
    placed, position = [], 0
    for character, source in word:
        # The small letters depend on the neighbors (a final sigma), their number does not.
        width = len(character.lower())
        placed += [(part, source) for part in lowered[position : position + width]]
        position += width
    assert position == len(lowered)
    return placed


@functools.cache
def decomposed(character: str) -> str:
    """The canonical decomposition without the marks of category Mn."""
    parts = unicodedata.normalize("NFD", character)
    return "".join([part for part in parts if unicodedata.category(part) != "Mn"])


def strip_accents(word: Word) -> Word:
    return in_canonical_order(
        [(part, source) for character, source in word for part in decomposed(character)]
    )


def in_canonical_order(word: Word) -> Word:
    """Each run of combining marks sorted by combining class."""
    classes = [unicodedata.combining(character) for character, _ in word]
    if not any(classes):
        return word
    ordered: Word = []
    for is_mark, run in itertools.groupby(range(len(word)), lambda index: classes[index] > 0):
        ordered += [
            word[index] for index in (sorted(run, key=classes.__getitem__) if is_mark else run)
        ]
    return ordered


@functools.lru_cache(1_000)
def words(
    text: str, lowercase: bool, strips: bool | None = None, splits_ideographs: bool = True
) -> list[Word]:
    """What the basic tokenizer makes of a text."""
    strips = lowercase if strips is None else strips
    cleaned = clean_words(text, splits_ideographs)
    lowered = (lower(word) if lowercase else word for word in cleaned)
    normalized = (strip_accents(word) if strips else word for word in lowered)
    return [part for word in normalized for part in split_at_punctuation(word) if part]


def extend_over_dropped_marks(text: str, start: int, end: int, strips: bool) -> tuple[int, int]:
    """A span and the dropped marks behind it, and those before it that no character is before."""

    def is_dropped_mark(character: str) -> bool:
        is_mark = unicodedata.category(character) == "Mn"
        return (strips and is_mark) or character in JOINERS_AND_TAGS

    while end < len(text) and is_dropped_mark(text[end]):
        end += 1
    marks = start
    while marks and is_dropped_mark(text[marks - 1]):
        marks -= 1
    return (marks if not marks or kind(text[marks - 1]) == "space" else start), end


class ReferenceTokenizer:
    """Ids and places of word pieces.

    Args:
        vocabulary: The tokens, a token's id being its index.
        lowercase: Whether to lower-case.
        strip_accents: Whether to strip accents, by default as `lowercase`.
        tokenize_chinese_chars: Whether ideographs are words.
    """

    def __init__(
        self,
        vocabulary: Iterable[str],
        lowercase: bool,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ) -> None:
        self.ids = {token: index for index, token in enumerate(vocabulary)}
        self.strips = lowercase if strip_accents is None else strip_accents
        self.rules = lowercase, self.strips, tokenize_chinese_chars
        # A plain space always ends a word, so that what lies between two can be looked up. Tuples,
        # because the garbage collector passes them over.
        self.pieces_of = functools.lru_cache(100_000)(lambda text: tuple(self.tokenize(text)))

    def __call__(self, text: str) -> list[Piece]:
        pieces, begin = [], 0
        for part in text.split(" "):
            for token_id, start, end in self.pieces_of(part):
                pieces.append((token_id, begin + start, begin + end))
            begin += len(part) + 1
        return pieces

    def tokenize(self, text: str) -> Iterator[Piece]:
        """The same, without looking anything up."""
        for word in words(text, *self.rules):
            for token_id, start, end in self.cut(word):
                yield token_id, *extend_over_dropped_marks(text, start, end, self.strips)

    def cut(self, word: Word) -> list[Piece]:
        """Greedily, the longest token first; unknown if a rest is left."""
        letters = "".join([character for character, _ in word])
        sources = [source for _, source in word]
        unknown = [(self.ids["[UNK]"], min(sources), max(sources) + 1)]
        if len(word) > LONGEST_WORD:
            return unknown
        pieces, start = [], 0
        while start < len(word):
            prefix, end = "##" if start else "", len(word)
            while end > start and prefix + letters[start:end] not in self.ids:
                end -= 1
            if end == start:
                return unknown
            span = sources[start:end]
            pieces.append((self.ids[prefix + letters[start:end]], min(span), max(span) + 1))
            start = end
        return pieces

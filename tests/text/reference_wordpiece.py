# SPDX-License-Identifier: Apache-2.0
"""A reference implementation of BERT's tokenizer in plain Python, with the offsets of each token.

It follows the original BERT code and uses the Unicode tables of the running Python.
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


# A character of the normalized text, and the index of the source character
SourcedCharacter = tuple[str, int]
Word = list[SourcedCharacter]
# An id, and the start and end of the smallest span that contains the token's source characters and
# their dropped marks
Piece = tuple[int, int, int]


@functools.cache
def character_class(character: str) -> str:
    """Classifies a character for cleaning: `drop`, `space`, `ideograph` or `keep`."""
    category = unicodedata.category(character)
    # Other characters that str.split() treats as whitespace are control characters.
    if character in " \t\n\r\u2028\u2029" or category == "Zs":
        return "space"
    if character in "\0\ufffd" or category in ("Cc", "Cf"):
        return "drop"
    is_ideograph = any(first <= ord(character) <= last for first, last in IDEOGRAPHS)
    return "ideograph" if is_ideograph else "keep"


@functools.cache
def is_punctuation(character: str) -> bool:
    ascii_symbol = character.isascii() and character.isprintable() and not character.isalnum()
    return (ascii_symbol and character != " ") or unicodedata.category(character)[0] == "P"


def clean_words(text: str, splits_ideographs: bool) -> Iterator[Word]:
    """Yields the words between whitespace, without dropped characters. Ideographs can be words."""
    word: Word = []
    for sourced in zip(text, itertools.count(), strict=False):
        class_name = character_class(sourced[0])
        if class_name == "keep" or (class_name == "ideograph" and not splits_ideographs):
            word.append(sourced)
        elif class_name != "drop":
            yield word
            yield [sourced] if class_name == "ideograph" else []
            word = []
    yield word


def split_at_punctuation(word: Word) -> Iterator[Word]:
    """Yields words, with each punctuation mark as a separate word."""
    start = 0
    for index, (character, _) in enumerate(word):
        if is_punctuation(character):
            yield word[start:index]
            yield word[index : index + 1]
            start = index + 1
    yield word[start:]


def lowercase_word(word: Word) -> Word:
    lowered = "".join([character for character, _ in word]).lower()
    sourced, position = [], 0
    for character, source in word:
        # Lowercase letters depend on their neighbors (final sigma). Their number does not.
        width = len(character.lower())
        sourced += [(part, source) for part in lowered[position : position + width]]
        position += width
    assert position == len(lowered)
    return sourced


@functools.cache
def decompose(character: str) -> str:
    """Returns the canonical decomposition without marks of category Mn."""
    parts = unicodedata.normalize("NFD", character)
    return "".join([part for part in parts if unicodedata.category(part) != "Mn"])


def strip_accents(word: Word) -> Word:
    return sort_marks(
        [(part, source) for character, source in word for part in decompose(character)]
    )


def sort_marks(word: Word) -> Word:
    """Sorts each run of combining marks by combining class."""
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
    """Returns the words of the basic tokenizer."""
    strips = lowercase if strips is None else strips
    cleaned = clean_words(text, splits_ideographs)
    lowered = (lowercase_word(word) if lowercase else word for word in cleaned)
    normalized = (strip_accents(word) if strips else word for word in lowered)
    return [part for word in normalized for part in split_at_punctuation(word) if part]


def extend_over_dropped_marks(text: str, start: int, end: int, strips: bool) -> tuple[int, int]:
    """Extends a span by the dropped marks after it, and by those before it at a word start."""

    def is_dropped_mark(character: str) -> bool:
        is_mark = unicodedata.category(character) == "Mn"
        return (strips and is_mark) or character in JOINERS_AND_TAGS

    while end < len(text) and is_dropped_mark(text[end]):
        end += 1
    marks = start
    while marks and is_dropped_mark(text[marks - 1]):
        marks -= 1
    return (marks if not marks or character_class(text[marks - 1]) == "space" else start), end


class ReferenceTokenizer:
    """Computes the ids and offsets of word pieces.

    Args:
        vocabulary: Tokens in id order.
        lowercase: Whether to lowercase the text.
        strip_accents: Whether to strip accents. Defaults to `lowercase`.
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
        # A space always ends a word, so the text between two spaces can be cached. The cache holds
        # tuples because the garbage collector does not track them.
        self.cached_pieces = functools.lru_cache(100_000)(lambda text: tuple(self.tokenize(text)))

    def __call__(self, text: str) -> list[Piece]:
        pieces, offset = [], 0
        for part in text.split(" "):
            for token_id, start, end in self.cached_pieces(part):
                pieces.append((token_id, offset + start, offset + end))
            offset += len(part) + 1
        return pieces

    def tokenize(self, text: str) -> Iterator[Piece]:
        """Yields the same pieces as a call, without the cache."""
        for word in words(text, *self.rules):
            for token_id, start, end in self.split_word(word):
                yield token_id, *extend_over_dropped_marks(text, start, end, self.strips)

    def split_word(self, word: Word) -> list[Piece]:
        """Matches the longest tokens greedily. A word with an unmatched rest is unknown."""
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

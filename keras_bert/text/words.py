# SPDX-License-Identifier: Apache-2.0
"""Splits raw text into words, in the unit of the words that a tagger was trained on."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, get_args

from keras_bert.text.characters import IDEOGRAPHS, UNSPACED, character_class

WordUnit = Literal[
    "words", "words_or_characters", "whitespace", "characters", "characters_and_spaces", "segmented"
]
WORD_UNITS: tuple[WordUnit, ...] = get_args(WordUnit)

# Fewer different training words do not show their unit.
_FEWEST_WORDS = 10
# The maximum number of sentences to read for the unit, and the maximum fraction of exceptions
_SENTENCES_READ = 10_000
_EXCEPTIONS = 0.05


def split_words(text: str, unit: WordUnit = "words") -> tuple[list[str], list[int], list[int]]:
    """Splits a text into words.

    A character is a Unicode code point. A decomposed Hangul syllable, an accented letter with a
    combining accent and an emoji with a skin tone therefore have multiple characters.

    | unit | a word is |
    |---|---|
    | `"words"` | a word, a punctuation mark or a Chinese character |
    | `"words_or_characters"` | the same, or a character in any other script without spaces |
    | `"whitespace"` | the text between whitespace |
    | `"characters"` | a character except whitespace |
    | `"characters_and_spaces"` | a character |
    | `"segmented"` | as for `"words"`, since only the user has the segmenter of the training data |

    Punctuation marks are not separate words inside words (`AT&T`, `o'clock`, `12:30`, `U.S.`) and
    URLs, and at the start of `@name` and `#tag`.

    Args:
        text: The text.
        unit: One of the units above. Defaults to `"words"`.

    Returns:
        A tuple of the words, the offset of each word's first character, and the offset after its
        last character.

    Example:

    >>> words, starts, ends = split_words("Ann (U.S.) smiles.")
    >>> words
    ['Ann', '(', 'U.S.', ')', 'smiles', '.']
    >>> starts
    [0, 4, 5, 9, 11, 17]
    """
    matches = [
        match
        for match in _words_and_gaps(unit).finditer(text.replace("\0", " "))
        if match.lastgroup == "word"
    ]
    return (
        [match[0] for match in matches],
        [match.start() for match in matches],
        [match.end() for match in matches],
    )


def join_words(words: Iterable[str], unit: WordUnit | None) -> str:
    """Joins words to a text. It is the text that `split_words` splits into the same words.

    Words in the units `"words"`, `"words_or_characters"` and `"segmented"` are joined by spaces,
    although the original text may have none.
    """
    return _separator(unit).join(words)


def joined_spans(words: Sequence[str], unit: WordUnit | None) -> list[tuple[int, int]]:
    """Returns the start and end of each word in the text that `join_words` returns."""
    length = len(_separator(unit))
    ends = itertools.accumulate(len(word) + length for word in words)
    return [(end - length - len(word), end - length) for word, end in zip(words, ends, strict=True)]


def _separator(unit: WordUnit | None) -> str:
    return "" if unit in ("characters", "characters_and_spaces") else " "


def infer_word_unit(sentences: Iterable[Sequence[str]]) -> WordUnit | None:
    """Infers the unit of the words in sentences, or `None` for fewer than 10 different words.

    Words are `"segmented"` if they have multiple characters in scripts without spaces, or if they
    contain spaces, as in Vietnamese.

    Example:

    >>> infer_word_unit([list("경찰은 또 자금을 관리했다.")])
    'characters_and_spaces'
    >>> infer_word_unit(["용퇴, 항룡 압력설 의심만 가율, 비토리오 양일 만에 영사관 감호.".split()])
    'whitespace'
    >>> infer_word_unit(["東京 に 住ん で い ます が 、 大阪 も 好き です 。".split()])
    'segmented'
    """
    read = itertools.islice(sentences, _SENTENCES_READ)
    counts = Counter(itertools.chain.from_iterable(read))
    if len(counts) < _FEWEST_WORDS:
        return None
    if all(len(word) == 1 for word in counts):
        has_spaces = any(not split_words(word, "characters")[0] for word in counts)
        return "characters_and_spaces" if has_spaces else "characters"
    unspaced = re.compile(f"[{UNSPACED}]")
    num_unspaced = sum(count for word, count in counts.items() if unspaced.search(word))
    num_single = sum(count for word, count in counts.items() if unspaced.fullmatch(word))
    if 2 * num_unspaced >= counts.total():
        if num_unspaced - num_single > _EXCEPTIONS * num_unspaced:
            return "segmented"
        others = re.compile(f"(?![{IDEOGRAPHS}])[{UNSPACED}]")
        has_others = any(map(others.fullmatch, counts))
        return "words_or_characters" if has_others else "words"
    num_joined = num_marks = num_attached = 0
    for word, count in counts.items():
        num_joined += count * (len(word.split()) > 1)
        num_marks += count * (len(word) == 1 and not word.isalnum())
        num_attached += count * (len(split_words(word)[0]) > 1)
    if num_joined > _EXCEPTIONS * counts.total():
        return "segmented"
    return "whitespace" if num_attached > num_marks else "words"


def find_unspaced_words(words: Iterable[str]) -> str:
    """Returns the first word with multiple characters in scripts without spaces.

    Without such a word, it returns an empty string.
    """
    pattern = re.compile(f"[{UNSPACED}]{{2}}")
    return next((word for word in words if not word.isascii() and pattern.search(word)), "")


def word_patterns(characters: Callable[[str], str], unit: WordUnit = "words") -> tuple[str, str]:
    """Returns regular expressions for a word and for the text between words.

    Args:
        characters: Returns all characters in a general category, such as `L` or `Cf`.
        unit: The unit, see `split_words`.
    """
    letters, numbers, marks, spaces, punctuation, symbols = map(characters, "LNMZPS")
    controls, formats = map(characters, ("Cc", "Cf"))
    blank = f"{spaces}{controls}"
    if unit == "whitespace":
        return f"[^{blank}]+", f"[{blank}]+"
    if unit == "characters":
        return f"[^{blank}]", f"[{blank}]+"
    if unit == "characters_and_spaces":
        return f"[^{blank}]|[{blank}]", f"[{blank}]"
    emoji = characters("So") + characters("Sk")
    singles = UNSPACED if unit == "words_or_characters" else IDEOGRAPHS
    # The characters that can start a word, and the characters that can follow. The latter include
    # accents and the zero-width joiners of Persian or Hindi.
    first = f"[^{spaces}{punctuation}{symbols}{controls}{formats}{singles}]"
    letter = f"[^{spaces}{punctuation}{symbols}{controls}{singles}]"
    word = "|".join(
        (
            rf"https?://[^\t\n\f\r{spaces}]+",
            rf"(?:[{letters}]\.){{2,}}",  # U.S.
            f"[{numbers}]+(?:[.,:/][{numbers}]+)+",  # 3,000.5 and 12:30
            f"[@#]?{first}{letter}*(?:[-.'’&/:@_+]{first}{letter}*)*",  # o'clock, AT&T, #tag
            f"[{singles}]",
            r"\.{2,}|-{2,}",
            f"[{emoji}][{emoji}{marks}{formats}]*",
            f"[{punctuation}{symbols}]",
        )
    )
    return word, f"[{spaces}{controls}{formats}{marks}]+"


@functools.cache
def _words_and_gaps(unit: WordUnit) -> re.Pattern[str]:
    word, gap = word_patterns(character_class, unit)
    return re.compile(f"(?P<word>{word})|{gap}")

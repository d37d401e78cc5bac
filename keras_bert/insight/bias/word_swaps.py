# SPDX-License-Identifier: Apache-2.0
"""Replaces words for people in texts by their counterparts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from keras_bert.insight.bias.word_lists import counterparts, word_list
from keras_bert.text.word_search import fit_particle, word_pattern

# A text or a text pair
Text = str | tuple[str, str]
# Lines of interchangeable words for one kind of swap
Lines = Sequence[Sequence[str]]

# Words in two lines, with their counterparts before a noun and elsewhere
_AMBIGUOUS = {"her": ("his", "him"), "his": ("her", "hers")}


def default_swaps() -> dict[str, list[tuple[str, ...]]]:
    """Returns the English word lists in this package, by kind of swap.

    Returns:
        `gender` (pronouns, and words for women and men), `names` and `groups` (religions, origins
        and other groups). Each is a list of lines with interchangeable words.
    """
    return {
        "gender": [*counterparts("pronouns"), *counterparts("gendered_words")],
        "names": counterparts("names"),
        "groups": counterparts("groups"),
    }


class Replacement(NamedTuple):
    """A replaced word in a changed text.

    Attributes:
        word: The word, as written in the list.
        replacement: The word that replaces it.
        column: Index of `word` in its line.
        line_length: Number of words in the line.
    """

    word: str
    replacement: str
    column: int
    line_length: int


class Swapper:
    """Replaces words in texts for one kind of swap."""

    def __init__(self, kind: str, lines: Lines) -> None:
        self._lines_of: dict[str, list[Sequence[str]]] = {}
        for line in lines:
            if len(line) < 2:
                raise ValueError(
                    f"Each line in swaps[{kind!r}] must have at least two words. Received: "
                    f"{list(line)}"
                )
            for word in line:
                self._lines_of.setdefault(word.lower(), []).append(line)
        for word, word_lines in self._lines_of.items():
            others = [
                other.lower() for line in word_lines for other in line if other.lower() != word
            ]
            if len(word_lines) > 1 and sorted(others) != sorted(_AMBIGUOUS.get(word, ())):
                raise ValueError(
                    f"Each word in swaps[{kind!r}] must be in one line. Received: {word!r} in "
                    f"{len(word_lines)} lines"
                )
        article = r"(?:(?<!\w)(?P<article>an?)(?P<space>\s+))?"
        self._pattern = re.compile(article + word_pattern(self._lines_of), re.IGNORECASE)
        self.most = max((len(line) - 1 for line in lines), default=0)

    def swap(self, text: Text, step: int) -> tuple[Text, tuple[Replacement, ...]]:
        """Replaces each word by the word `step` places after it in its line, cyclically.

        Returns:
            The changed text, and the replaced words in the order of the text.
        """
        replacements: list[Replacement] = []

        def replace(match: re.Match[str]) -> str:
            replacement = self._replacement(step, match)
            if replacement is None:
                return match[0]
            replacements.append(replacement)
            return _fit_into_text(match, replacement.replacement)

        parts = [text] if isinstance(text, str) else text
        swapped = as_text([self._pattern.sub(replace, part) for part in parts])
        return swapped, tuple(replacements)

    def _replacement(self, step: int, match: re.Match[str]) -> Replacement | None:
        original = match["word"]
        lines = self._lines_of[original.lower()]
        rest = match.string[match.end() :]
        line = lines[0] if len(lines) == 1 else _choose_line(original.lower(), lines, rest)
        index = [word.lower() for word in line].index(original.lower())
        # A lowercase name is a different word, unless the whole text has no capitals.
        if line[index] != line[index].lower() and original.islower() and not match.string.islower():
            return None
        other = (index + 1 + (step - 1) % (len(line) - 1)) % len(line)
        return Replacement(line[index], line[other], index, len(line))


def _fit_into_text(match: re.Match[str], other: str) -> str:
    """Returns the other word, with the matched word's capitalization, article and particle."""
    word, article = match["word"], match["article"]
    if word.islower():
        other = other.lower()
    elif word.isupper() and len(word) > 1:
        other = other.upper()
    elif word[0].isupper():
        other = other[0].upper() + other[1:]
    other += fit_particle(match["particle"], other)
    if article is None:
        return other
    is_vowel = re.match("(?!eu|uni)[aeiou]", other, re.IGNORECASE) is not None
    return article[0] + "n" * is_vowel + match["space"] + other


def _choose_line(word: str, lines: Sequence[Sequence[str]], rest: str) -> Sequence[str]:
    """Chooses the line for `her` or `his` based on the text after it."""
    following = re.match(r"\s+([^\W\d_]+)", rest)
    is_alone = following is None or following[1].lower() in word_list("object_ends")
    (line,) = [line for line in lines if _AMBIGUOUS[word][is_alone] in map(str.lower, line)]
    return line


def contains_any(lines: Lines) -> Callable[[Text], bool]:
    """Returns a function that checks if a text contains one of the words, for `error_rates`.

    Args:
        lines: Words as in `counterfactuals`, for example `default_swaps()["gender"]`.
    """
    swapper = Swapper("lines", lines)

    def has_word(text: Text) -> bool:
        return bool(swapper.swap(text, 1)[1])

    return has_word


def as_text(parts: Sequence[str]) -> Text:
    return parts[0] if len(parts) == 1 else (parts[0], parts[1])

# SPDX-License-Identifier: Apache-2.0
"""Splits documents into passages that fit into an encoder's window."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from keras_bert.search.terms import PAIRED
from keras_bert.text.tokenizer import Tokenizer

# The end of a paragraph, of a sentence, or of a line before a heading, a list item or a table row.
# Other lines may be wrapped.
_BREAKS = re.compile(
    r"\n\s*\n\s*|(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])|\n+(?=\s*(?:[-*+•#|>]|\d+[.)]\s))"
)


_WORDS = re.compile(rf"[{PAIRED}]|[^\s{PAIRED}]+")


class WordSplitter:
    """Splits text into words instead of tokens, for passages without an encoder.

    In scripts without spaces, each character counts as a word.
    """

    def __call__(self, text: str) -> list[str]:
        return _WORDS.findall(text)

    def flat_ids(self, texts: Sequence[str]) -> tuple[None, np.ndarray]:
        """Returns the number of words in each text, like `Tokenizer.flat_ids` without IDs."""
        return None, np.array([len(self(text)) for text in texts])

    def tokenize_with_offsets(self, text: str) -> tuple[list[str], list[int], list[int]]:
        """Returns the words with their starts and ends, like `Tokenizer.tokenize_with_offsets`."""
        found = [*_WORDS.finditer(text)]
        return [x[0] for x in found], [x.start() for x in found], [x.end() for x in found]


class Window(NamedTuple):
    """What fits into a passage.

    Args:
        tokenizer: The tokenizer that counts tokens.
        max_tokens: Maximum number of tokens, without special tokens and the prompt.
    """

    tokenizer: Tokenizer | WordSplitter
    max_tokens: int


WITHOUT_ENCODER = Window(WordSplitter(), 200)
"""The passages of an index without an embedder. They are about as long as with an encoder."""


def split_passages(
    text: str, tokenizer: Tokenizer | WordSplitter, max_tokens: int
) -> list[tuple[int, int]]:
    """Splits a text into passages of whole sentences.

    A passage is as long as `max_tokens` allows. It ends earlier at the end of a paragraph if it
    has at least half of these tokens. Sentences with more tokens are split between tokens.

    Args:
        text: The text.
        tokenizer: The tokenizer that counts tokens.
        max_tokens: Maximum number of tokens in a passage, without special tokens.

    Returns:
        The start and end of each passage in characters. `end` is the offset after the last
        character. Passages neither overlap nor start or end with whitespace.
    """
    passages: list[tuple[int, int]] = []
    begin, end, total = 0, 0, 0
    for first, last, count, ends_paragraph in _units(text, tokenizer, max_tokens):
        if total and total + count > max_tokens:
            passages.append((begin, end))
            total = 0
        if not total:
            begin = first
        end, total = last, total + count
        if ends_paragraph and 2 * total >= max_tokens:
            passages.append((begin, end))
            total = 0
    if total:
        passages.append((begin, end))
    return passages


def text_with_title(title: str, text: str) -> str:
    """Returns the text by which a passage is found: its document's title, if any, and its own."""
    return f"{title} {text}".strip()


def shorten_title(title: str, tokenizer: Tokenizer | WordSplitter, max_tokens: int) -> str:
    """Cuts a title after a number of tokens."""
    ids, _, ends = tokenizer.tokenize_with_offsets(title)
    if len(ids) <= max_tokens:
        return title
    return title[: ends[max_tokens - 1]] if max_tokens else ""


def sentences(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yields the start and end of each sentence, and whether a paragraph ends after it.

    Example:

    >>> [(text[:8][a:b], last) for text in ["A b. C."] for a, b, last in sentences(text)]
    [('A b.', False), ('C.', True)]
    """
    start = 0
    for match in (*_BREAKS.finditer(text), None):
        stop = len(text) if match is None else match.start()
        following = len(text) if match is None else match.end()
        closing = "" if match is None else match[0].rstrip()
        stop += len(closing)
        piece = text[start:stop]
        begin = start + len(piece) - len(piece.lstrip())
        end = start + len(piece.rstrip())
        if begin < end:
            blank_line = match is None or match[0].count("\n") > 1
            yield begin, end, blank_line
        start = following


def _units(
    text: str, tokenizer: Tokenizer | WordSplitter, max_tokens: int
) -> Iterator[tuple[int, int, int, bool]]:
    """Yields the start, end and tokens of sentences, or of parts of sentences that are too long."""
    found = list(sentences(text))
    if not found:
        return
    # The space before a sentence can have tokens of its own.
    ends = [0, *(end for _, end, _ in found)]
    _, counts = tokenizer.flat_ids(
        [text[before:end] for before, (_, end, _) in zip(ends, found, strict=False)]
    )
    for (start, end, last), count in zip(found, counts.tolist(), strict=True):
        if count <= max_tokens:
            if count:
                yield start, end, count, last
            continue
        _, starts, stops = tokenizer.tokenize_with_offsets(text[start:end])
        count = len(starts)
        for index in range(0, count, max_tokens):
            stop = min(index + max_tokens, count) - 1
            is_last = last and stop == count - 1
            yield start + int(starts[index]), start + int(stops[stop]), stop + 1 - index, is_last

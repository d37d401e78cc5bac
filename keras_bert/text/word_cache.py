# SPDX-License-Identifier: Apache-2.0
"""Caches the tokens of words, for tokenizers that split text into words first."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable

import numpy as np

from keras_bert.text.flat_tokens import FlatTokens

# The number of words in each cache half, newer and older. A word occupies about 200 bytes.
_MAX_WORDS = 1 << 17
# Longer words rarely occur twice.
_MAX_WORD_LENGTH = 64

END = "\ud800"
"""The word that ends each text. It is a lone surrogate, so it does not occur in valid text."""


class WordCache(dict[str, bytes]):
    """Maps words to their tokens, computed at the first lookup.

    Tokens are stored as the bytes of int32 numbers, because bytes are faster to join than lists.
    The cache has a limited size and drops words without recent lookups. Multiple threads may use
    it.

    Args:
        tokens: Computes a word's ids or, for each token in the word, the id, start and end.
        width: The number of values for each token, 1 or 3.
    """

    def __init__(self, tokens: Callable[[str], Iterable[int]], width: int) -> None:
        super().__init__()
        self._tokens = tokens
        self._width = width
        self._older: dict[str, bytes] = {}

    def __missing__(self, word: str) -> bytes:
        entry = self._older.get(word)
        if entry is None:
            numbers = [-1] * self._width if word == END else self._tokens(word)
            entry = array.array("i", numbers).tobytes()
        if len(word) <= _MAX_WORD_LENGTH:
            if len(self) >= _MAX_WORDS:
                self._older = dict(self)
                self.clear()
            self[word] = entry
        return entry

    def ids(self, words: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns all ids and the number of ids per text. Each text must end with `END`."""
        ids = np.frombuffer(b"".join(map(self.__getitem__, words)), np.int32)
        is_end = ids < 0
        return ids[~is_end], _lengths(is_end)

    def tokens(self, words: Iterable[str], begins: np.ndarray) -> FlatTokens:
        """Returns the tokens of texts. `begins` contains each word's offset, including `END`."""
        entries = list(map(self.__getitem__, words))
        tokens = np.frombuffer(b"".join(entries), np.int32).reshape(-1, 3)
        counts = np.fromiter(map(len, entries), np.int64, len(entries)) // (3 * tokens.itemsize)
        is_end = tokens[:, 0] < 0
        begins = np.repeat(begins, counts)
        ids, starts, ends = tokens[~is_end].T
        begins = begins[~is_end]
        return FlatTokens(ids, starts + begins, ends + begins, _lengths(is_end))


def _lengths(is_end: np.ndarray) -> np.ndarray:
    """Returns the number of tokens in each text. `is_end` marks the ends of the texts."""
    return np.diff(np.flatnonzero(is_end), prepend=-1) - 1

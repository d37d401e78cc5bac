# SPDX-License-Identifier: Apache-2.0
"""Finds where each token in a packed sequence comes from, with the task's own packing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_bert.data.columns import as_string
from keras_bert.text.flat_tokens import FlatTokens


@dataclass(frozen=True)
class TokenSource:
    """The source of a token.

    Args:
        text: The text or word that was tokenized.
        number: The number of this text or word, in the order of tokenization.
        index: The index of the token in the text or word.
        count: The number of tokens in the text or word.
        start: The offset of the token's first character. In a word, 0.
        end: The offset after the token's last character. In a word, its length.
    """

    text: str
    number: int
    index: int
    count: int
    start: int
    end: int


class SourceTokenizer:
    """A tokenizer that returns a unique number for each token instead of its ID.

    A preprocessor with this tokenizer packs the numbers in the same way as IDs. A number in a
    sequence then identifies the token's source. Special tokens keep their IDs.

    Args:
        tokenizer: The tokenizer to imitate. It provides all other attributes.
    """

    # The preprocessor stores numbers in a type for IDs below this size.
    vocabulary_size = int(np.iinfo("int32").max)

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._first = tokenizer.vocabulary_size
        self._sources: list[TokenSource] = []
        self._num_texts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def source(self, number: int) -> TokenSource | None:
        """Returns the source of a token, or `None` for a special token."""
        return self._sources[number - self._first] if number >= self._first else None

    def flat_tokens(self, texts: Sequence[str | bytes]) -> FlatTokens:
        tokens: FlatTokens = self._tokenizer.flat_tokens(texts)
        offsets = zip(tokens.starts.tolist(), tokens.ends.tolist(), strict=True)
        return tokens._replace(ids=self._numbers(texts, tokens.lengths, offsets))

    def flat_ids(self, texts: Sequence[str | bytes]) -> tuple[np.ndarray, np.ndarray]:
        tokens = self.flat_tokens(texts)
        return tokens.ids, tokens.lengths

    def flat_words(
        self, words: Sequence[str | bytes], is_first: Iterable[bool] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        _, lengths = self._tokenizer.flat_words(words, is_first)
        # The preprocessor replaces a word without tokens by one unknown token.
        lengths = np.maximum(lengths, 1)
        bounds = [
            (0, len(as_string(word)))
            for word, length in zip(words, lengths.tolist(), strict=True)
            for _ in range(length)
        ]
        return self._numbers(words, lengths, bounds), lengths

    def _numbers(
        self,
        texts: Sequence[str | bytes],
        lengths: np.ndarray,
        offsets: Iterable[tuple[int, int]],
    ) -> np.ndarray:
        """Stores the sources of all tokens, and returns their numbers, int32 `(tokens,)`."""
        first, offsets = self._first + len(self._sources), iter(offsets)
        for text, count in zip(texts, lengths.tolist(), strict=True):
            self._sources += [
                TokenSource(as_string(text), self._num_texts, index, count, *next(offsets))
                for index in range(count)
            ]
            self._num_texts += 1
        return np.arange(first, self._first + len(self._sources), dtype="int32")


def track_sources(preprocessor: Any) -> tuple[Any, SourceTokenizer]:
    """Returns a copy of a preprocessor that packs sources, and its tokenizer."""
    tokenizer = SourceTokenizer(preprocessor.tokenizer)
    options = {name: getattr(preprocessor, name) for name in preprocessor.options}
    return type(preprocessor)(tokenizer, **options), tokenizer

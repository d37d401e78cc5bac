# SPDX-License-Identifier: Apache-2.0
"""The tokens of many texts in flat arrays, computed in chunks of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from keras_bert.text.characters import check_characters
from keras_bert.text.composition import is_composed, sources_of_composed

# The number of characters to tokenize at a time. Words then stay in the processor's cache.
_CHUNK = 1 << 17


class FlatTokens(NamedTuple):
    """The tokens of multiple texts, concatenated.

    Args:
        ids: The id of each token, int32 `(tokens,)`.
        starts: The offset of each token's first character in its text, int32 `(tokens,)`.
        ends: The offset after each token's last character, int32 `(tokens,)`.
        lengths: The number of tokens in each text, int64 `(texts,)`.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    lengths: np.ndarray

    def to_original_offsets(self, texts: Sequence[str]) -> Self:
        """Converts offsets in composed texts to offsets in the original `texts`."""
        starts, ends = np.array(self.starts), np.array(self.ends)
        splits = np.cumsum([0, *self.lengths])
        for text, begin, end in zip(texts, splits[:-1], splits[1:], strict=True):
            if begin < end and not is_composed(text):
                rows = slice(begin, end)
                firsts, lasts = sources_of_composed(text)
                is_empty = starts[rows] >= ends[rows]
                last = lasts[np.maximum(ends[rows] - 1, 0)]
                starts[rows] = firsts[starts[rows]]
                ends[rows] = np.where(is_empty, starts[rows], last)
        return self._replace(starts=starts, ends=ends)


def decoded_chunks(texts: Sequence[str | bytes]) -> Iterator[list[str]]:
    """Decodes and validates texts, and yields chunks with a limited number of characters."""
    chunk: list[str] = []
    first = size = 0
    for text in texts:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "ignore")
        if not isinstance(text, str):
            raise TypeError(
                f"Texts must be strings. Received: {text!r} of type {type(text).__name__}"
            )
        chunk.append(text)
        size += len(text)
        if size >= _CHUNK:
            yield _check(chunk, first)
            first += len(chunk)
            chunk, size = [], 0
    yield _check(chunk, first)


def _check(texts: list[str], first: int) -> list[str]:
    """Validates the characters of consecutive texts, numbered from `first`."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        for index, text in enumerate(texts, first):
            check_characters(text, f"Text {index}")
    return texts


def concatenate(chunks: Iterable[Sequence[np.ndarray]], *dtypes: Any) -> list[np.ndarray]:
    """Concatenates chunks of multiple arrays without a second copy of them all in memory."""
    buffers = [bytearray() for _ in dtypes]
    for chunk in chunks:
        for buffer, values, dtype in zip(buffers, chunk, dtypes, strict=True):
            buffer += np.ascontiguousarray(values, dtype).data
    return [np.frombuffer(buffer, dtype) for buffer, dtype in zip(buffers, dtypes, strict=True)]

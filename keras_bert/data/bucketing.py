# SPDX-License-Identifier: Apache-2.0
"""Buckets of lengths, and batches of rows of similar lengths in a random order."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_bert import checks


def bucket_lengths(sequence_length: int, coarse: bool = False) -> tuple[int, ...]:
    """Returns the lengths that batches are padded to.

    Args:
        sequence_length: Maximum length of a row in tokens; always the last bucket.
        coarse: Whether to use powers of two from 16, for compilers that take seconds for each new
            shape, instead of steps between an eighth and a quarter of the length.

    Returns:
        A tuple of ascending lengths in tokens.

    Raises:
        ValueError: If `sequence_length` is below 1.

    Example:

    >>> bucket_lengths(128, coarse=True)
    (16, 32, 64, 128)
    """
    checks.POSITIVE_INT.check(sequence_length=sequence_length)
    lengths: list[int] = []
    length = 16 if coarse else 8
    while length < sequence_length:
        lengths.append(length)
        length += length if coarse else max(8, 1 << (length.bit_length() - 3))
    return (*lengths, sequence_length)


def bucket_for(length: int, buckets: Sequence[int]) -> int:
    """Returns the shortest of ascending lengths that holds a row of `length` tokens."""
    return buckets[bisect.bisect_left(buckets, length)]


def rows_of_batches(
    lengths: np.ndarray,
    batch_size: int,
    order: tuple[int, ...] | None,
    texts: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Sorts the rows of a window by length, and yields the indices of the rows of each batch.

    `order` has the numbers that the random order of the batches depends on; `None` yields them from
    the shortest rows to the longest. `texts` has numbers of the texts of each row: rows with a text
    in common are in different batches, as far as the rows of the window allow it.
    """
    by_length = np.argsort(lengths, kind="stable")
    if texts is not None:
        by_length = _spread_equal_texts(by_length, texts, batch_size)
    starts = np.arange(0, len(by_length), batch_size)
    if order is not None:
        starts = starts[permutation(len(starts), *order)]
    for start in starts.tolist():
        yield by_length[start : start + batch_size]


def _spread_equal_texts(rows: np.ndarray, texts: np.ndarray, batch_size: int) -> np.ndarray:
    """Has each row wait for a batch that none of its texts is in, if there is one."""
    unused, order = collections.deque(rows.tolist()), list[int]()
    while unused:
        end, in_batch, waiting = len(order) + batch_size, set[int](), list[int]()
        while unused and len(order) < end:
            row = unused.popleft()
            own = set(texts[row].tolist())
            if in_batch.isdisjoint(own):
                order.append(row)
                in_batch |= own
            else:
                waiting.append(row)
        missing = end - len(order)
        order += waiting[:missing]
        unused.extendleft(reversed(waiting[missing:]))
    return np.array(order, "int64")


def permutation(size: int, *seed: int) -> np.ndarray[Any, Any]:
    """Returns a random order of `size` rows, which depends on the numbers of the seed alone.

    It is computed from the bits of a counter-based generator, which no version of NumPy changes.
    """
    key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    bits = np.random.Philox(key=key).random_raw(size)
    return np.argsort(bits, kind="stable")

# SPDX-License-Identifier: Apache-2.0
"""Computes length buckets, and batches of similarly long examples in random order."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from keras_bert import checks


def bucket_lengths(sequence_length: int, coarse: bool = False) -> tuple[int, ...]:
    """Returns the bucket lengths. Batches are padded to these lengths.

    Args:
        sequence_length: Maximum sequence length in tokens. It is always the last bucket.
        coarse: Whether to use powers of two from 16. Use this if compiling a new shape takes
            seconds. The default steps are 8 tokens up to a length of 64, and then between an eighth
            and a quarter of the length.

    Returns:
        Ascending lengths in tokens.

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
    """Returns the shortest bucket of at least `length` tokens. `buckets` must be ascending."""
    return buckets[bisect.bisect_left(buckets, length)]


def rows_of_batches(
    lengths: np.ndarray,
    batch_size: int,
    order: tuple[int, ...] | None,
    texts: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Sorts a window's examples by length, and yields the example indices of each batch.

    The numbers in `order` seed the random order of the batches. With `None`, batches are sorted by
    length. `texts` contains the text numbers of each example. Examples that share a text are put
    into different batches as far as possible within the window.
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
    """Moves each example to a batch without any of its texts, as far as possible."""
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
    """Returns a random order of `size` indices. It only depends on the seed numbers.

    It is computed from a counter-based generator, so it does not change between NumPy versions.
    """
    key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    bits = np.random.Philox(key=key).random_raw(size)
    return np.argsort(bits, kind="stable")

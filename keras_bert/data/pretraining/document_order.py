# SPDX-License-Identifier: Apache-2.0
"""Computes random document orders without storing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Integers = np.ndarray[Any, np.dtype[np.int64]]
_Words = np.ndarray[Any, np.dtype[np.uint64]]

_ROUNDS = 8


class DocumentOrder:
    """A pseudorandom permutation of `range(num_documents)` in constant memory.

    It computes a document's position from its index, and the index from the position. For example,
    a process that only needs some documents in a large corpus does not need to store the whole
    order. The permutation is a Feistel network over the smallest even number of bits that can
    represent the count. Outputs above the count enter the network again ("cycle walking"), on
    average less than four times.

    Args:
        num_documents: The number of documents.
        seed: Nonnegative integers. Equal seeds give equal orders.

    Example:

    >>> from keras_bert.data.pretraining.document_order import DocumentOrder
    >>> order = DocumentOrder(5, 1)
    >>> sorted(order.positions(np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    >>> order.documents(order.positions(np.array([3, 1]))).tolist()
    [3, 1]

    Reference:
        [Black and Rogaway, Ciphers with arbitrary finite domains](https://doi.org/10.1007/3-540-45760-7_9),
        sections 3 and 4.
    """

    def __init__(self, num_documents: int, *seed: int) -> None:
        self.num_documents = num_documents
        half = max(1, (max(1, num_documents - 1).bit_length() + 1) // 2)
        self._half = np.uint64(half)
        self._mask = np.uint64((1 << half) - 1)
        rng = np.random.default_rng(seed)
        self._keys = rng.integers(1 << 64, size=_ROUNDS, dtype=np.uint64)

    def positions(self, documents: Integers) -> Integers:
        """Returns the positions of documents in the order, int64 `(documents,)`."""
        return self._walk(documents, self._encrypt)

    def documents(self, positions: Integers) -> Integers:
        """Returns the indices of the documents at some positions, int64 `(positions,)`."""
        return self._walk(positions, self._decrypt)

    def _walk(self, numbers: Integers, permute: Callable[[_Words], _Words]) -> Integers:
        result: _Words = permute(np.asarray(numbers).astype(np.uint64))
        outside = np.flatnonzero(result >= self.num_documents)
        while len(outside):
            result[outside] = permute(result[outside])
            outside = outside[result[outside] >= self.num_documents]
        return result.astype(np.int64)

    def _encrypt(self, numbers: _Words) -> _Words:
        left, right = numbers >> self._half, numbers & self._mask
        for key in self._keys:
            left, right = right, left ^ self._hash(right, key)
        return left << self._half | right

    def _decrypt(self, numbers: _Words) -> _Words:
        left, right = numbers >> self._half, numbers & self._mask
        for key in self._keys[::-1]:
            left, right = right ^ self._hash(left, key), left
        return left << self._half | right

    def _hash(self, numbers: _Words, key: np.uint64) -> _Words:
        """Mixes bits with a key, in the same way as SplitMix64 mixes its counter."""
        mixed = numbers + key
        mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return (mixed ^ mixed >> np.uint64(31)) & self._mask

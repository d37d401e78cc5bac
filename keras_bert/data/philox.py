# SPDX-License-Identifier: Apache-2.0
"""Computes the same random numbers from a seed as TensorFlow.

Philox 4x32-10 computes each block of four numbers from its index and a key, without a state. The
key and counter are derived from a seed as in `tf.random.stateless_uniform(..., alg="philox")`.

Reference:
    [Parallel random numbers: as easy as 1, 2, 3](https://doi.org/10.1145/2063384.2063405).
"""

from __future__ import annotations

from typing import Any

import numpy as np

_WORD = 0xFFFFFFFF
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
# TensorFlow's key for scrambling seeds
_SEED_KEY = (0x3EC8F720, 0x02461E29)


def random_bits(seed: tuple[Any, Any], size: int, first: int = 0) -> np.ndarray:
    """Returns `size` numbers from a seed's stream, starting at index `first`, int64 in `[0, 2^32)`.

    The seed consists of two integers. Earlier numbers are not computed.
    """
    one, other = (int(word) % 2**64 for word in seed)
    words = (one & _WORD, one >> 32, other & _WORD, other >> 32)
    key_words = _blocks(np.array(words, np.uint64)[:, np.newaxis], _SEED_KEY)[:, 0].tolist()
    key, high = (key_words[0], key_words[1]), key_words[2:]
    index = np.arange(first // 4, -(-(first + size) // 4), dtype=np.uint64)
    counter = np.zeros((4, len(index)), np.uint64)
    counter[0], counter[1] = index & np.uint64(_WORD), index >> np.uint64(32)
    counter[2], counter[3] = high
    start = first % 4
    return _blocks(counter, key).T.reshape(-1)[start : start + size].astype("int64")


def _blocks(counter: np.ndarray, key: tuple[int, int]) -> np.ndarray:
    """Returns the number blocks for four-word counters, uint64 `(4, blocks)`."""
    low, mask = np.uint64(32), np.uint64(_WORD)
    a, b, c, d = counter
    for number in range(_ROUNDS):
        keys = [
            np.uint64((word + number * step) & _WORD)
            for word, step in zip(key, _KEY_STEPS, strict=True)
        ]
        product, other = a * np.uint64(_MULTIPLIERS[0]), c * np.uint64(_MULTIPLIERS[1])
        a, b = (other >> low) ^ b ^ keys[0], other & mask
        c, d = (product >> low) ^ d ^ keys[1], product & mask
    return np.stack([a, b, c, d])

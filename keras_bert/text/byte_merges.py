# SPDX-License-Identifier: Apache-2.0
"""Byte-pair merges as TensorFlow operations: from words to the ids of their pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

_NO_RANK = 2**62


class PieceMerger:
    """Merges the bytes of words into pieces, the pair that was learned first, first.

    Words that are one piece are looked up. In the others, step by step and all words together,
    every pair of the lowest rank in its word becomes one piece, from left to right.

    Args:
        pieces: The bytes of each token; `None` for tokens that no text has.
        merges: Pairs of ids and the id that each makes, in the order of their ranks.
        byte_ids: The ids of the 256 bytes.

    Reference:
        [Sennrich et al., 2016](https://arxiv.org/abs/1508.07909), section 3.2.
    """

    def __init__(
        self,
        pieces: Sequence[bytes | None],
        merges: Mapping[tuple[int, int], int],
        byte_ids: Sequence[int],
    ) -> None:
        self._size = len(pieces)
        pairs = [left * self._size + right for left, right in merges]
        # Outside of graphs the loop would be one of Python's.
        self._merge = tf.function(
            self._merge_bytes, [tf.TensorSpec([None], tf.string)], autograph=False
        )
        # Constants made while a graph is being built would belong to that graph alone.
        with tf.init_scope(), tf.device("CPU:0"):
            self._byte_ids = tf.constant(byte_ids, tf.int64)
            self._merged = tf.constant([*merges.values(), 0], tf.int64)
            ranks = tf.range(len(pairs), dtype=tf.int64)
            self._ranks = _table(tf.constant(pairs, tf.int64), ranks, _NO_RANK)
            # A token is one piece as a word only if the merges lead to it.
            words = tf.constant([b"" if piece is None else piece for piece in pieces])
            made = self._merge(words)
            is_one = (made.row_lengths() == 1) & (
                made.to_tensor(shape=[None, 1])[:, 0] == tf.range(self._size, dtype=tf.int64)
            )
            whole = tf.where(is_one)[:, 0]
            self._whole = _table(tf.gather(words, whole), whole, -1)

    @property
    def resources(self) -> tuple[Any, ...]:
        """The tables."""
        return (self._ranks, self._whole)

    def __call__(self, words: tf.Tensor) -> tf.RaggedTensor:
        """The pieces of words.

        Args:
            words: String tensor `(words,)`.

        Returns:
            Ragged int32 `(words, pieces)`.
        """
        distinct, which = tf.unique(words)
        ids = self._whole.lookup(distinct)
        rest = tf.where(ids < 0)[:, 0]
        merged = self._merge(tf.gather(distinct, rest))
        # The pieces of all distinct words, those made of merges behind those looked up
        whole = tf.RaggedTensor.from_tensor(tf.boolean_mask(ids, ids >= 0)[:, tf.newaxis])
        rows = tf.concat([whole, merged], axis=0)
        is_rest = tf.cast(ids < 0, tf.int64)
        row = tf.where(
            ids < 0,
            whole.nrows() + tf.cumsum(is_rest, exclusive=True),
            tf.cumsum(1 - is_rest, exclusive=True),
        )
        return tf.cast(tf.gather(rows, tf.gather(row, which)), tf.int32)

    def _merge_bytes(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Ids of merged bytes, ragged int64 `(words, pieces)`."""
        lengths = tf.strings.length(words)
        num_words = tf.size(words)
        all_bytes = tf.io.decode_raw(tf.strings.reduce_join(words), tf.uint8)
        ids = tf.gather(self._byte_ids, tf.cast(all_bytes, tf.int32))
        word = tf.repeat(tf.range(num_words), lengths)

        def step(ids: tf.Tensor, word: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
            rank = self._ranks.lookup(ids[:-1] * self._size + ids[1:])
            of_word = word[:-1]
            rank = tf.where(of_word == word[1:], rank, _NO_RANK)
            best = tf.math.unsorted_segment_min(rank, of_word, num_words)
            chosen = (rank < _NO_RANK) & (rank == tf.gather(best, of_word))
            chosen = _every_other(chosen)
            merged = tf.gather(self._merged, tf.where(chosen, rank, 0))
            ids = tf.concat([tf.where(chosen, merged, ids[:-1]), ids[-1:]], axis=0)
            kept = tf.concat([tf.ones_like(ids[:1], tf.bool), ~chosen], axis=0)
            return tf.boolean_mask(ids, kept), tf.boolean_mask(word, kept), tf.reduce_any(chosen)

        unknown_length = tf.TensorShape([None])
        ids, word, _ = tf.while_loop(
            lambda ids, word, go_on: go_on,
            step,
            (ids, word, tf.size(ids) > 1),
            shape_invariants=(unknown_length, unknown_length, tf.TensorShape([])),
        )
        return tf.RaggedTensor.from_value_rowids(
            ids, tf.cast(word, tf.int64), tf.cast(num_words, tf.int64), validate=False
        )


def _every_other(chosen: tf.Tensor) -> tf.Tensor:
    """The first, third, … of each run of chosen places: of `aaa`, the first two are a pair."""
    first = chosen & ~tf.concat([[False], chosen[:-1]], axis=0)
    index = tf.range(tf.size(chosen))
    begins = tf.boolean_mask(index, first)
    run = tf.maximum(tf.cumsum(tf.cast(first, tf.int32)) - 1, 0)
    begin = tf.gather(tf.concat([begins, [0]], axis=0), run)
    return chosen & ((index - begin) % 2 == 0)


def _table(keys: tf.Tensor, values: tf.Tensor, default: int) -> tf.lookup.StaticHashTable:
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.cast(values, tf.int64)), default
    )

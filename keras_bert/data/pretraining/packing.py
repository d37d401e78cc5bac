# SPDX-License-Identifier: Apache-2.0
"""Sequence packing: several short sequences in one row, instead of padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert.data.batching import without_autograph, without_tuning

Integers = np.ndarray[Any, np.dtype[np.int64]]


@without_autograph
def packed_batches(
    windows: tf.data.Dataset,
    *,
    batch_size: int,
    sequence_length: int,
    drop_remainder: bool = False,
) -> tf.data.Dataset:
    """Packs sequences into rows, and groups the rows into batches.

    Args:
        windows: A dataset of dicts of ragged features, int or bool `(sequences, None)`, including
            `token_ids`; the sequences of each window are packed together. With 1000 sequences or
            more in a window, there is hardly any padding. A dataset of single sequences is
            converted to windows by `.ragged_batch(1024)`.
        batch_size: Number of rows in a batch.
        sequence_length: Number of tokens in a row.
        drop_remainder: Whether to drop a last batch that is not full.

    Returns:
        A dataset of dicts as returned by `pack_sequences`, each `(batch_size, sequence_length)`.

    Example:

    >>> import tensorflow as tf
    >>> from keras_bert.data import packed_batches
    >>> sequences = [[2, 7, 8, 3], [2, 9, 3], [2, 7, 3], [2, 3]]
    >>> windows = tf.data.Dataset.from_tensors({"token_ids": tf.ragged.constant(sequences)})
    >>> (batch,) = packed_batches(windows, batch_size=2, sequence_length=7)
    >>> batch["token_ids"].numpy().tolist()
    [[2, 7, 8, 3, 2, 9, 3], [2, 7, 3, 2, 3, 0, 0]]
    >>> batch["sequence_ids"].numpy().tolist()
    [[1, 1, 1, 1, 2, 2, 2], [1, 1, 1, 2, 2, 0, 0]]
    >>> batch["position_ids"].numpy().tolist()
    [[0, 1, 2, 3, 0, 1, 2], [0, 1, 2, 0, 1, 0, 0]]
    """
    rows = windows.map(
        lambda features: pack_sequences(features, sequence_length),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    rows = rows.rebatch(batch_size, drop_remainder=drop_remainder)
    return without_tuning(rows.prefetch(tf.data.AUTOTUNE))


def pack_sequences(
    features: Mapping[str, tf.RaggedTensor], sequence_length: int
) -> dict[str, tf.Tensor]:
    """Packs sequences into rows by the best-fit-decreasing algorithm, which is deterministic.

    Rows are in the order of their first sequences, and the sequences of a row in their original
    order. Empty sequences are dropped.

    Args:
        features: Ragged features `(sequences, None)`, including `token_ids`, with the same row
            lengths.
        sequence_length: Number of tokens in a row.

    Returns:
        A dict of the features, `(rows, sequence_length)`, padded with 0, and of
        `position_ids`: int32, the position of each token in its sequence, from 0;
        `sequence_ids`: int32, which of its row's sequences each token belongs to, from 1, and 0 at
        padding.

    Raises:
        ValueError: If `token_ids` are missing, or a feature has one value per sequence instead of
            one per token.
        tf.errors.InvalidArgumentError: If a sequence is longer than a row, or features differ in
            their row lengths.
    """
    _check_features(features)
    lengths = features["token_ids"].row_lengths()
    longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))
    tf.debugging.assert_less_equal(
        longest,
        tf.cast(sequence_length, tf.int64),
        f"A sequence is longer than a row of {sequence_length} tokens.",
    )
    row = tf.ensure_shape(
        tf.numpy_function(
            lambda values: best_fit_rows(values, sequence_length), [lengths], tf.int64, False
        ),
        lengths.shape,
    )
    order = tf.argsort(row, stable=True)[tf.math.count_nonzero(row < 0, dtype=tf.int32) :]
    row, lengths_in_order = tf.gather(row, order), tf.gather(lengths, order)
    # Tokens of a row: (sequences,) -> (rows,)
    row_lengths = tf.math.segment_sum(lengths_in_order, row)

    def fill(flat: tf.Tensor) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_row_lengths(flat, row_lengths, validate=False)
        return ragged.to_tensor(shape=(None, sequence_length))

    packed = {}
    for name, feature in features.items():
        tf.debugging.assert_equal(
            feature.row_lengths(), lengths, f"{name} and token_ids differ in their lengths."
        )
        packed[name] = fill(tf.gather(feature, order).flat_values)
    positions = tf.ragged.range(tf.cast(lengths_in_order, tf.int32)).flat_values
    number = tf.range(tf.size(row)) - tf.cast(tf.searchsorted(row, row), tf.int32) + 1
    packed["position_ids"] = fill(positions)
    packed["sequence_ids"] = fill(tf.repeat(number, lengths_in_order))
    return packed


def best_fit_rows(lengths: Integers, row_length: int) -> Integers:
    """Assigns sequences to rows: the longest first, each to the fullest row that it fits into.

    Args:
        lengths: The length of each sequence in tokens, int64 `(sequences,)`, at most `row_length`.
        row_length: The length of a row in tokens.

    Returns:
        The index of each sequence's row, int64 `(sequences,)`, in the order of the rows' first
        sequences; -1 for empty sequences.

    Example:

    >>> from keras_bert.data.pretraining.packing import best_fit_rows
    >>> best_fit_rows(np.array([2, 5, 3, 0, 4]), 7).tolist()
    [0, 0, 1, -1, 1]
    """
    sizes = lengths.tolist()
    rows = np.full(len(sizes), -1)
    num_rows = 0
    rows_by_room: list[list[int]] = [[] for _ in range(row_length + 1)]
    # Bit r is set if there is a row with exactly r free positions.
    rooms = 0
    for index in np.argsort(-lengths, kind="stable").tolist():
        size = sizes[index]
        if not size:
            break
        fitting = rooms >> size
        if fitting:
            room = size + (fitting & -fitting).bit_length() - 1
            row = rows_by_room[room].pop()
            if not rows_by_room[room]:
                rooms -= 1 << room
        else:
            room, row = row_length, num_rows
            num_rows += 1
        rows[index] = row
        room -= size
        if room:
            rows_by_room[room].append(row)
            rooms |= 1 << room
    return _in_order_of_arrival(rows)


def _in_order_of_arrival(rows: Integers) -> Integers:
    """Renumbers rows in the order of the first sequence in each."""
    used = rows >= 0
    _, first, inverse = np.unique(rows[used], return_index=True, return_inverse=True)
    rows = rows.copy()
    rows[used] = np.argsort(np.argsort(first))[inverse]
    return rows


def _check_features(features: Mapping[str, tf.RaggedTensor]) -> None:
    if "token_ids" not in features:
        raise ValueError(f"`token_ids` is missing; received the features {sorted(features)}.")
    for name, feature in features.items():
        if not isinstance(feature, tf.RaggedTensor) or feature.shape.rank != 2:
            raise ValueError(
                f"{name} has shape {feature.shape} and is {type(feature).__name__}; expected a "
                "ragged feature (sequences, None) with a value for each token: packed rows cannot "
                "have values of whole sequences."
            )

# SPDX-License-Identifier: Apache-2.0
"""Packs multiple short sequences into each row to avoid padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from keras_bert.data.arrays import NUMPY, Ragged, take_rows

Integers = np.ndarray[Any, np.dtype[np.int64]]


def packed_batches(
    windows: Iterable[Mapping[str, Any]],
    *,
    batch_size: int,
    sequence_length: int,
    drop_remainder: bool = False,
) -> Iterator[dict[str, np.ndarray]]:
    """Packs sequences into rows, and groups the rows into batches.

    Args:
        windows: Features that `pack_sequences` accepts, for example from
            `ragged_pretraining_batches`. The sequences of each window are packed together. With
            1000 or more sequences per window, there is almost no padding.
        batch_size: Number of rows in a batch.
        sequence_length: Number of tokens in a row.
        drop_remainder: Whether to drop the last batch if it is not full. Defaults to `False`.

    Yields:
        Dicts as returned by `pack_sequences`, with shape `(batch_size, sequence_length)`.

    Example:

    >>> from keras_bert.data import packed_batches
    >>> sequences = [[2, 7, 8, 3], [2, 9, 3], [2, 7, 3], [2, 3]]
    >>> (batch,) = packed_batches([{"token_ids": sequences}], batch_size=2, sequence_length=7)
    >>> batch["token_ids"].tolist()
    [[2, 7, 8, 3, 2, 9, 3], [2, 7, 3, 2, 3, 0, 0]]
    >>> batch["sequence_ids"].tolist()
    [[1, 1, 1, 1, 2, 2, 2], [1, 1, 1, 2, 2, 0, 0]]
    >>> batch["position_ids"].tolist()
    [[0, 1, 2, 3, 0, 1, 2], [0, 1, 2, 0, 1, 0, 0]]
    """
    rest: dict[str, np.ndarray] | None = None
    for window in windows:
        rows = pack_sequences(window, sequence_length)
        if rest is not None:
            rows = {name: np.concatenate([rest[name], values]) for name, values in rows.items()}
        full = len(rows["token_ids"]) // batch_size * batch_size
        for start in range(0, full, batch_size):
            yield {name: values[start : start + batch_size] for name, values in rows.items()}
        rest = {name: values[full:] for name, values in rows.items()}
    if rest is not None and len(rest["token_ids"]) and not drop_remainder:
        yield rest


def pack_sequences(features: Mapping[str, Any], sequence_length: int) -> dict[str, np.ndarray]:
    """Packs sequences into rows with the best-fit-decreasing algorithm (deterministic).

    Rows are ordered by their first sequences, and sequences keep their order within a row. Empty
    sequences are dropped.

    Args:
        features: Features with one value per token, including `token_ids`. Each feature is a
            `keras_bert.data.arrays.Ragged` or a list of sequences.
        sequence_length: Number of tokens in a row.

    Returns:
        A dict with the features, padded with 0, and with two more features. All have the shape
        `(rows, sequence_length)`.

        - `position_ids`: Position of each token in its sequence, from 0, int32.
        - `sequence_ids`: Number of each token's sequence in its row, from 1, int32. 0 for padding.

    Raises:
        ValueError: If `token_ids` are missing, a sequence is longer than a row, features differ in
            their sequence lengths, or a feature has one value per sequence instead of one per
            token.
    """
    ragged = _to_ragged(features)
    lengths = ragged["token_ids"].lengths
    for name, feature in ragged.items():
        if feature.lengths.tolist() != lengths.tolist():
            raise ValueError(
                f"The sequences of {name} must be as long as the token_ids, "
                f"{lengths.tolist()[:8]}. Received: {feature.lengths.tolist()[:8]}"
            )
    if lengths.max(initial=0) > sequence_length:
        raise ValueError(
            f"Sequences must have at most sequence_length={sequence_length} tokens. Received: "
            f"{lengths.max()} tokens (sequence {lengths.argmax()})"
        )
    row = best_fit_rows(lengths, sequence_length)
    order = order_by_row(row)
    ragged = {name: take_rows(NUMPY, x, order) for name, x in ragged.items()}
    return filled_rows(ragged, row[order], sequence_length)


def order_by_row(row: Integers) -> Integers:
    """Returns the indices of nonempty sequences (row not -1), sorted by row."""
    return np.argsort(row, kind="stable")[np.count_nonzero(row < 0) :]


def filled_rows(
    features: Mapping[str, Ragged], row: Integers, sequence_length: int
) -> dict[str, np.ndarray]:
    """Fills rows with sequences. `row` `(sequences,)` must be ascending. See `pack_sequences`."""
    lengths = features["token_ids"].lengths
    # Sum the lengths of each row's sequences: (sequences,) -> (rows,).
    row_lengths = np.bincount(row, lengths).astype("int64")

    def fill(flat: np.ndarray) -> np.ndarray:
        rows: np.ndarray = NUMPY.to_dense(Ragged(flat, row_lengths), sequence_length, 0)
        return rows

    arrays = {name: fill(x.values) for name, x in features.items()}
    arrays["position_ids"] = fill(NUMPY.ranges(np.zeros_like(lengths), lengths).astype("int32"))
    number = np.arange(len(row)) - np.searchsorted(row, row) + 1
    arrays["sequence_ids"] = fill(np.repeat(number, lengths).astype("int32"))
    return arrays


def best_fit_rows(lengths: Integers, row_length: int) -> Integers:
    """Assigns sequences, longest first, to the fullest row with enough space.

    The sequence lengths, int64 `(sequences,)`, must be at most `row_length`. Returns the row index
    of each sequence, int64 `(sequences,)`, and -1 for empty sequences. Rows are numbered in the
    order of their first sequences.

    Example:

    >>> from keras_bert.data.pretraining.packing import best_fit_rows
    >>> best_fit_rows(np.array([2, 5, 3, 0, 4]), 7).tolist()
    [0, 0, 1, -1, 1]
    """
    sizes = lengths.tolist()
    rows = np.full(len(sizes), -1)
    num_rows = 0
    rows_by_space: list[list[int]] = [[] for _ in range(row_length + 1)]
    # Bit r is set if a row has exactly r free positions.
    spaces = 0
    for index in np.argsort(-lengths, kind="stable").tolist():
        size = sizes[index]
        if not size:
            break
        fitting = spaces >> size
        if fitting:
            space = size + (fitting & -fitting).bit_length() - 1
            row = rows_by_space[space].pop()
            if not rows_by_space[space]:
                spaces -= 1 << space
        else:
            space, row = row_length, num_rows
            num_rows += 1
        rows[index] = row
        space -= size
        if space:
            rows_by_space[space].append(row)
            spaces |= 1 << space
    return _renumber_rows(rows)


def _renumber_rows(rows: Integers) -> Integers:
    """Renumbers rows in the order of their first sequences."""
    is_row = rows >= 0
    _, first, inverse = np.unique(rows[is_row], return_index=True, return_inverse=True)
    rows = rows.copy()
    rows[is_row] = np.argsort(np.argsort(first))[inverse]
    return rows


def _to_ragged(features: Mapping[str, Any]) -> dict[str, Ragged]:
    """Converts features to ragged rows."""
    if "token_ids" not in features:
        raise ValueError(f"features must contain token_ids. Received: {sorted(features)}")
    ragged = {}
    for name, feature in features.items():
        if not isinstance(feature, Ragged):
            if not all(hasattr(sequence, "__len__") for sequence in feature):
                raise ValueError(
                    f"{name} must have one value for each token, because packed rows cannot store "
                    "values of whole sequences. Received: one value per sequence"
                )
            lengths = np.array([len(sequence) for sequence in feature], "int64")
            values = np.array([value for sequence in feature for value in sequence])
            dtype = "bool" if values.dtype.kind == "b" else "int32"
            feature = Ragged(values.astype(dtype), lengths)
        ragged[name] = feature
    return ragged

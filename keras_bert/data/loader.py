# SPDX-License-Identifier: Apache-2.0
"""Batches of similarly long examples, each padded to the length of its bucket."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from keras_bert.data.arrays import NUMPY
from keras_bert.data.batch_options import BatchOptions, rows_of_shard
from keras_bert.data.batches import Batches, batch_of
from keras_bert.data.bucketing import bucket_for, bucket_lengths, permutation, rows_of_batches
from keras_bert.data.packing import Preprocessor, Sequences

# The number of examples to pack at a time if only their sizes are needed
_ROWS_SIZED = 2048

# The other columns by name, such as `labels` and `weights`, each `(rows, ...)`
Columns = Mapping[str, np.ndarray]
# Validates labels and weights and converts them to columns. It also accepts `num_rows` and
# `first_row`, the first index in error messages.
ReadColumns = Callable[..., Columns]


class Examples(Protocol):
    """Examples that can be packed."""

    def __len__(self) -> int: ...

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs examples into sequences of tokens. `index` contains their indices, int64."""


class Batch(NamedTuple):
    """A batch of packed examples.

    Args:
        features: Features `(batch, length)` or `(batch, sequences, length)`, with `padding_mask`.
        rows: The index of each example in the input, int64 `(batch,)`.
        row_mask: 0 for padding examples at the end of the batch, otherwise 1, float32 `(batch,)`.
            `None` if batches are not padded with examples.
        columns: The other columns of the examples, such as labels.
    """

    features: dict[str, Any]
    rows: np.ndarray
    row_mask: np.ndarray | None
    columns: Columns


class BucketWindow(NamedTuple):
    """Examples to sort by length together.

    Args:
        examples: A source that contains this window's examples.
        rows: Their indices in `examples`, int64 `(rows,)`.
        columns: The other columns of `examples`, such as labels.
        first: The number of examples in the input before `examples`.
    """

    examples: Examples
    rows: np.ndarray
    columns: Columns
    first: int = 0


class RowSource(Protocol):
    """The source of a `Loader`'s windows."""

    num_rows: int | None
    """The number of examples, or `None` if it is unknown."""

    def shared_sizes(self, options: BatchOptions) -> np.ndarray | None:
        """Exchanges the `sizes` of all examples between processes.

        Returns:
            The sizes, or `None` with a single process, which packs each window before it needs
            sizes.
        """

    def example(self) -> BucketWindow | None:
        """Returns a window with the first example without consuming it. `None` without examples."""

    def windows(self, epoch: int, options: BatchOptions, skipped: int) -> Iterator[BucketWindow]:
        """Yields the windows in an epoch, except for the first `skipped` windows."""


class RowsInMemory:
    """Examples in memory, as the source of a `Loader`."""

    def __init__(self, examples: Examples, columns: Columns | None = None) -> None:
        self.examples = examples
        self.columns = columns or {}
        self.num_rows: int | None = len(examples)

    def shared_sizes(self, options: BatchOptions) -> np.ndarray | None:
        if options.sharded_map is None:
            return None

        def sizes_at(rows: np.ndarray) -> np.ndarray:
            chunks = (rows[at : at + _ROWS_SIZED] for at in range(0, len(rows), _ROWS_SIZED))
            return np.concatenate([sizes(self.examples.pack(chunk)) for chunk in chunks])

        return options.sharded_map(
            sizes_at,
            len(self.examples),
            batch_size=options.rows_in_batch,
            bucketing_window=options.window(len(self.examples)) or 0,
            shuffle_seed=-1 if options.shuffle_seed is None else options.shuffle_seed,
        )

    def example(self) -> BucketWindow | None:
        """Returns a window with the first example."""
        return BucketWindow(self.examples, np.arange(1), self.columns) if self.num_rows else None

    def windows(
        self, epoch: int, options: BatchOptions, skipped: int = 0
    ) -> Iterator[BucketWindow]:
        """Yields the windows in an epoch."""
        count, seed = len(self.examples), options.shuffle_seed
        order = np.arange(count) if seed is None else permutation(count, seed, epoch)
        size = options.rows_in_batch * (options.window(count) or 1)
        for start in range(skipped * size, count, size):
            yield BucketWindow(self.examples, order[start : start + size], self.columns)


class Loader(Batches):
    """Batches of similarly long examples.

    A window of examples is packed in one call, sorted by length and split into batches. Each batch
    is padded to the shortest possible bucket. Every batch except one is full, so an epoch has
    `ceil(rows / batch_size)` steps. The order of shuffled examples and batches only depends on the
    seed and the epoch.

    `finish` converts a `Batch` to a batch for Keras, such as `(features, labels, weights)`.
    `targets` contains the labels and weights of all examples, if they are not columns of the
    source.
    """

    def __init__(
        self,
        source: RowSource,
        preprocessor: Preprocessor,
        options: BatchOptions,
        finish: Callable[[Batch], Any] | None = None,
        *,
        targets_have_length: bool = False,
        targets: tuple[Any, Any] = (None, None),
    ) -> None:
        super().__init__()
        self.source = source
        self.options = options
        self._targets = targets
        self.targets_have_length = targets_have_length
        if options.pads_last_batch:
            self.rows_in_batch = options.rows_in_batch // options.shard[1]
        self._finish = finish or to_keras_batch
        self._pad_token_id = preprocessor.tokenizer.pad_token_id
        is_coarse = options.has_few_lengths(self.num_batches)
        self._buckets = bucket_lengths(preprocessor.sequence_length, coarse=is_coarse)
        # Processes exchange the sizes here, before a thread makes batches.
        self._sizes = source.shared_sizes(options)

    @property
    def num_batches(self) -> int | None:
        """The number of batches in an epoch, or `None` if it is unknown."""
        num_rows = self.source.num_rows
        return None if num_rows is None else -(-num_rows // self.options.rows_in_batch)

    def example(self) -> Any:
        """Returns a batch with the first example, or `None` without examples."""
        window = self.source.example()
        if window is None:
            return None
        sequences = window.examples.pack(window.rows)
        row = np.zeros(1, "int64")
        row_mask = np.ones(1, "float32") if self.options.pads_last_batch else None
        return self._finish(self._pad(sequences, row, sizes(sequences)[0], row, row_mask, window))

    def with_indices(self) -> Loader:
        """Returns the same batches in the form `(features, index)`, see `to_indexed_batch`."""
        loader = copy.copy(self)
        loader._finish = to_indexed_batch
        return loader

    def first_targets(self) -> tuple[Any, Any]:
        window = self.source.example()
        columns = {} if window is None else window.columns
        if "labels" not in columns:
            return self._targets
        return columns["labels"], columns.get("weights")

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        options, seed = self.options, self.options.shuffle_seed
        batches_per_window = options.window(self.source.num_rows)
        # Skipped windows are not read. If the window size is unknown, they are read and their
        # batches are dropped.
        windows_skipped, batches_skipped = (
            divmod(first, batches_per_window) if batches_per_window else (0, first)
        )
        windows = self.source.windows(number, options, windows_skipped)
        for index, window in enumerate(windows, windows_skipped):
            sequences = None
            if self._sizes is None:
                sequences = window.examples.pack(window.rows)
                row_sizes = sizes(sequences)
            else:
                row_sizes = self._sizes[window.rows]
            order = None if seed is None else (seed, number, index)
            texts = window.columns.get("texts")
            texts = None if texts is None else texts[window.rows]
            batches = list(rows_of_batches(row_sizes[:, 0], options.rows_in_batch, order, texts))
            yield from self._batches_of_window(
                window, sequences, row_sizes, batches[batches_skipped:]
            )
            batches_skipped = max(0, batches_skipped - len(batches))

    def _batches_of_window(
        self,
        window: BucketWindow,
        sequences: Sequences | None,
        row_sizes: np.ndarray,
        batches: Sequence[np.ndarray],
    ) -> Iterator[Any]:
        """Yields the batches in a window.

        Args:
            window: The window.
            sequences: The sequences of all examples in the window, or `None` to pack only this
                process's examples.
            row_sizes: The `sizes` of all examples in the window.
            batches: The indices in the window of each batch's examples.
        """
        fills, shard = self.options.pads_last_batch, self.options.shard
        full_batches = [np.resize(x, self.options.rows_in_batch) if fills else x for x in batches]
        shards = [rows[rows_of_shard(shard, len(rows))] for rows in full_batches]
        in_sequences = np.arange(len(window.rows))
        if sequences is None:
            sequences, in_sequences = _pack_shards(window, row_sizes, shards)
        for rows, full_batch, own_rows in zip(batches, full_batches, shards, strict=True):
            row_mask = None
            if fills:
                row_mask = np.arange(len(full_batch)) < len(rows)
                row_mask = row_mask[rows_of_shard(shard, len(full_batch))].astype("float32")
            size = row_sizes[rows].max(axis=0)
            yield self._finish(
                self._pad(sequences, in_sequences[own_rows], size, own_rows, row_mask, window)
            )

    def _pad(
        self,
        sequences: Sequences,
        in_sequences: np.ndarray,
        size: np.ndarray,
        in_window: np.ndarray,
        row_mask: np.ndarray | None,
        window: BucketWindow,
    ) -> Batch:
        """Pads examples to a batch.

        Args:
            sequences: Sequences that include the examples' sequences.
            in_sequences: The examples' indices in `sequences`.
            size: The maximum `sizes` in the batch over all processes.
            in_window: The examples' indices in the window.
            row_mask: 1 for examples, 0 for padding. `None` without padding.
            window: The window.
        """
        length, num_sequences = bucket_for(max(1, size[0]), self._buckets), size[1]
        in_source = window.rows[in_window]
        return Batch(
            sequences.take(NUMPY, in_sequences).pad(
                NUMPY, length, self._pad_token_id, num_sequences
            ),
            window.first + in_source,
            row_mask,
            {name: column[in_source] for name, column in window.columns.items()},
        )


def sizes(sequences: Sequences) -> np.ndarray:
    """Returns each example's longest length and number of sequences, int32 `(rows, 2)`.

    They determine the batch shape.
    """
    longest, counts = sequences.longest(NUMPY), sequences.counts
    counts = np.ones_like(longest) if counts is None else counts
    return np.stack([longest, counts], axis=1).astype("int32")


def _pack_shards(
    window: BucketWindow, row_sizes: np.ndarray, shards: Sequence[np.ndarray]
) -> tuple[Sequences, np.ndarray]:
    """Packs only the examples in this process's shards.

    Returns:
        The sequences, and the index of each packed example in them, int64 `(rows,)`. For example,
        if a window has 6 examples and the shards `[[4, 0], [3]]`, examples 4, 0 and 3 have the
        indices 0, 1 and 2.
    """
    own = np.concatenate([np.zeros(0, "int64"), *shards])
    in_sequences = np.arange(len(window.rows))
    in_sequences[own] = np.arange(len(own))
    sequences = window.examples.pack(window.rows[own])
    _check_sizes(sizes(sequences), row_sizes[own], window.rows[own])
    return sequences, in_sequences


def _check_sizes(received: np.ndarray, expected: np.ndarray, rows: np.ndarray) -> None:
    """Checks sizes from a different process."""
    (differs,) = np.nonzero((received != expected).any(axis=1))
    if len(differs):
        at = differs[0]
        raise ValueError(
            f"All processes must have the same examples. Received: example {rows[at]} with "
            f"{received[at][0]} tokens in this process, and with {expected[at][0]} in another"
        )


def to_keras_batch(batch: Batch) -> tuple[Any, ...]:
    """Converts a batch to `(features, labels, weights)`. See `batch_of`.

    In padded batches, padding examples have a sample weight of 0.
    """
    labels, weights = batch.columns.get("labels"), batch.columns.get("weights")
    if batch.row_mask is not None:
        weights = batch.row_mask if weights is None else weights * batch.row_mask
    return batch_of(add_row_mask(batch.features, batch.row_mask), labels, weights)


def add_row_mask(features: dict[str, Any], row_mask: np.ndarray | None) -> dict[str, Any]:
    """Adds a mask with 0 for padding examples. Losses still count other examples of weight 0."""
    # The name is `keras_bert.models.inputs.REAL_ROWS`.
    return features if row_mask is None else {**features, "row_mask": row_mask}


def to_indexed_batch(batch: Batch) -> tuple[Any, ...]:
    """Converts a batch to its features and the indices of its examples, for predictions."""
    return batch.features, batch.rows

# SPDX-License-Identifier: Apache-2.0
"""Reads pre-training records in batches, padded or ragged."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence

import numpy as np

from keras_bert.data.arrays import NUMPY, Ragged, take_rows
from keras_bert.data.batch_options import WINDOW_BATCHES
from keras_bert.data.batches import Batches
from keras_bert.data.bucketing import bucket_for, rows_of_batches
from keras_bert.data.packing import Sequences
from keras_bert.data.pretraining.record_files import Files, record_paths, shuffled_records
from keras_bert.data.pretraining.record_parsing import Features, RecordParser
from keras_bert.data.pretraining.tfrecords import chunked, count_records, read_records


def pretraining_batches(
    files: Files,
    *,
    batch_size: int,
    sequence_length: int,
    buckets: Sequence[int] | None = None,
    shuffle_seed: int | None = None,
    vocabulary_size: int | None = None,
    drop_remainder: bool = False,
) -> Batches:
    """Reads padded batches of pre-training records.

    Args:
        files: TFRecord files with the same features, or a pattern such as `"records/*.tfrecord"`.
        batch_size: Number of records in a batch.
        sequence_length: The length to pad to. Longer records raise an error.
        buckets: Alternative lengths to pad to, in ascending order. The last must be
            `sequence_length`. Records of similar lengths are then grouped into batches, and each
            batch is padded to the shortest possible bucket.
        shuffle_seed: Seed for shuffling files and records, differently in each epoch. `None` keeps
            their order.
        vocabulary_size: If given, ids outside `[0, vocabulary_size)` raise an error.
        drop_remainder: Whether to drop the last batch if it is not full. Defaults to `False`.

    Returns:
        An iterable of dicts. Their values are NumPy arrays: `token_ids` (int32), `segment_ids`
        (int32) and `padding_mask` (bool), of shape `(batch, length)`. Records with masks also have
        `mask_positions` (int32), `mask_ids` (int32) and `mask_weights` (float32), `(batch, slots)`.
        Records without masks have `word_starts`, bool `(batch, length)`. Records with labels also
        have `next_sentence_labels`, int32 `(batch,)`. The iterable's length is the number of
        batches, and its method `epoch(number, start_batch)` skips an epoch's first batches.

    Raises:
        FileNotFoundError: If no file matches, or if a pattern does not match all shards of names
            such as `*-00000-of-00008.tfrecord`.
        ValueError: If a file's first record lacks a pre-training feature or has different features
            than the first file, if `buckets` are invalid, or if a file is truncated. During
            iteration, a corrupt or invalid record also raises an error. The message contains the
            file, the record and the feature.
    """
    lengths = list(buckets or ())
    if buckets is not None and (lengths != sorted(lengths) or lengths[-1:] != [sequence_length]):
        raise ValueError(
            f"buckets must be ascending lengths up to {sequence_length}. Received: {list(buckets)}"
        )
    return _RecordBatches(
        RecordParser(record_paths(files), sequence_length, vocabulary_size),
        batch_size,
        buckets=buckets,
        shuffle_seed=shuffle_seed,
        drop_remainder=drop_remainder,
    )


def ragged_pretraining_batches(
    files: Files,
    *,
    batch_size: int,
    sequence_length: int,
    shuffle_seed: int | None = None,
    vocabulary_size: int | None = None,
) -> Batches:
    """Reads batches of pre-training records without padding, for sequence packing.

    Args:
        files: See `pretraining_batches`.
        batch_size: Number of records in a batch.
        sequence_length: Maximum length in tokens. Longer records raise an error.
        shuffle_seed: See `pretraining_batches`.
        vocabulary_size: See `pretraining_batches`.

    Returns:
        The same as `pretraining_batches`, but with `Ragged` features instead of shape `(batch,
        length)`, and without `padding_mask`.

    Raises:
        FileNotFoundError, ValueError: See `pretraining_batches`.
    """
    parser = RecordParser(record_paths(files), sequence_length, vocabulary_size)
    return _RecordBatches(parser, batch_size, is_ragged=True, shuffle_seed=shuffle_seed)


def has_masks(files: Files) -> bool:
    """Returns whether records have static masks, according to the first record.

    Args:
        files: TFRecord files, or a pattern.

    Raises:
        FileNotFoundError: See `pretraining_batches`.
        ValueError: If the first file has no records, or its first record lacks a pre-training
            feature.
    """
    return RecordParser(record_paths(files)[:1], 0, None).is_masked


class _RecordBatches(Batches):
    """Batches of records. See `pretraining_batches` for the arguments."""

    def __init__(
        self,
        parser: RecordParser,
        batch_size: int,
        *,
        buckets: Sequence[int] | None = None,
        shuffle_seed: int | None = None,
        drop_remainder: bool = False,
        is_ragged: bool = False,
    ) -> None:
        super().__init__()
        self._parser = parser
        self._batch_size = batch_size
        self._buckets = buckets
        self._seed = shuffle_seed
        self._drops_remainder = drop_remainder
        self._is_ragged = is_ragged
        self._num_records = sum(map(count_records, parser.paths))
        self.has_one_shape = drop_remainder and buckets is None
        self.rows_in_batch = batch_size if drop_remainder else None

    @property
    def num_batches(self) -> int:
        """The number of batches in an epoch."""
        full, rest = divmod(self._num_records, self._batch_size)
        return full + (rest > 0 and not self._drops_remainder)

    def example(self) -> Features:
        """Returns a batch with the first record."""
        rows, rest = self._parser([self._parser.first])
        return self._batch(rows, rest, np.zeros(1, "int64"))

    def _epoch(self, number: int, first: int) -> Generator[Features, None, None]:
        paths, seed, size = self._parser.paths, self._seed, self._batch_size
        in_order = itertools.chain.from_iterable(map(read_records, paths))
        records = in_order if seed is None else shuffled_records(paths, seed, number)
        batches_per_window = 1 if self._buckets is None else WINDOW_BATCHES
        num_done = 0
        for count, window in enumerate(chunked(records, size * batches_per_window)):
            if num_done + batches_per_window <= first:
                num_done += batches_per_window
                continue
            rows, rest = self._parser(window)
            # Without buckets, the records keep their order.
            lengths = np.zeros(len(window)) if self._buckets is None else rows["token_ids"].lengths
            order = None if seed is None else (seed, number, count)
            for index in rows_of_batches(lengths, size, order):
                if self._drops_remainder and len(index) < size:
                    continue
                if num_done >= first:
                    yield self._batch(rows, rest, index)
                num_done += 1

    def _batch(self, rows: dict[str, Ragged], rest: Features, index: np.ndarray) -> Features:
        rows = {name: take_rows(NUMPY, values, index) for name, values in rows.items()}
        rest = {name: values[index] for name, values in rest.items()}
        if self._is_ragged:
            return {**rows, **rest}
        buckets = self._buckets or (self._parser.sequence_length,)
        length = bucket_for(rows["token_ids"].lengths.max(), buckets)
        return {**Sequences(rows).pad(NUMPY, length, 0), **rest}

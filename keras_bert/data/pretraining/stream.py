# SPDX-License-Identifier: Apache-2.0
"""An infinite stream of pre-training batches that can resume at any batch."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from keras_bert.data.arrays import NUMPY
from keras_bert.data.batch_options import check_shard, rows_of_shard
from keras_bert.data.batches import Batches, MappedBatches
from keras_bert.data.packing import Sequences
from keras_bert.data.pretraining.masking import MaskedLMMaskGenerator
from keras_bert.data.pretraining.packing import best_fit_rows, filled_rows, order_by_row
from keras_bert.data.pretraining.record_files import (
    SHUFFLE_WINDOW,
    Files,
    interleaved,
    record_paths,
    shuffled,
    shuffled_records,
)
from keras_bert.data.pretraining.record_parsing import Features, RecordParser
from keras_bert.data.pretraining.tfrecords import chunked, count_records

# The number of consecutive sequences to pack together
PACKING_WINDOW = 1024


class StreamPosition(NamedTuple):
    """A batch's position in a stream.

    Attributes:
        epoch: The number of epochs before the batch.
        row: The number of rows before the batch in its epoch, over all file groups.
        batch: The number of batches before the batch. It determines the masks.
    """

    epoch: int = 0
    row: int = 0
    batch: int = 0


class PretrainingStream:
    """An infinite stream of masked batches, shuffled differently in each epoch.

    Batch n, including its masks, only depends on the files, the seed and n. A run that resumes at
    batch n therefore gets the same batches as an uninterrupted run. Each epoch drops the rows that
    do not fill a batch. They differ between epochs.

    Args:
        files: TFRecord files with the same features, or a pattern such as `"records/*.tfrecord"`.
            They are read once in advance to count the records.
        batch_size: Number of rows in a batch.
        sequence_length: Number of tokens in a row.
        masker: The masker for records without masks: a `MaskedLMMaskGenerator`, or another callable
            that accepts a batch and a step. It is called with whole batches, unless it has
            `masks_rows_alone`, or it has a method `shard` and batches are read with
            `return_shards`.
        packed: Whether to pack multiple records into a row instead of padding them. Only supported
            for records without masks. Labels of pairs are dropped, because a row can only have one
            label. Defaults to `False`.
        seed: Seed of the order. The masks depend on the masker's seed. Defaults to 0.
        vocabulary_size: If given, ids outside `[0, vocabulary_size)` raise an error.
        file_groups: Number of file groups. Each group fills an equal number of consecutive rows in
            each batch, so a process with these rows does not read other files. An epoch ends when
            the smallest group ends. The batches depend on the number of groups, but not on the
            number of processes. Defaults to 1.
        count: Applies a function that counts a group's rows to group indices, like `map`. Processes
            can share this work.

    Raises:
        FileNotFoundError: If no file matches, or if a pattern does not match all shards of names
            such as `*-00000-of-00008.tfrecord`.
        ValueError: If a file is truncated, records lack pre-training features, the rows do not fill
            a batch, records with masks would be packed or masked again, `file_groups` exceeds the
            number of files, or `batch_size` is not a multiple of `file_groups`.

    Example:

    >>> import os, tempfile
    >>> import numpy as np
    >>> from keras_bert.data import Instance, InstanceEncoder, write_records
    >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    >>> encode = InstanceEncoder(vocabulary, [2, 3], sequence_length=8)
    >>> ids = np.array([2, 5, 6, 7, 3])
    >>> row = Instance(ids, 0 * ids, None)
    >>> records = [encode(row, np.random.default_rng(0)) for _ in range(6)]
    >>> path = os.path.join(tempfile.mkdtemp(), "rows.tfrecord")
    >>> write_records(path, records)
    6
    >>> masker = MaskedLMMaskGenerator.from_tokenizer(keras_bert.WordPieceTokenizer(vocabulary))
    >>> stream = PretrainingStream(path, batch_size=2, sequence_length=8, masker=masker)
    >>> stream.batches_per_epoch
    3
    >>> batch = next(iter(stream.from_batch(1000)))
    >>> batch["token_ids"].shape, batch["mask_ids"].shape
    ((2, 8), (2, 2))
    """

    def __init__(
        self,
        files: Files,
        *,
        batch_size: int,
        sequence_length: int,
        masker: MaskedLMMaskGenerator | Any = None,
        packed: bool = False,
        seed: int = 0,
        vocabulary_size: int | None = None,
        file_groups: int = 1,
        count: Callable[[Callable[[int], int], Iterable[int]], Iterable[int]] = map,
    ) -> None:
        paths = record_paths(files)
        self._groups = group_files(paths, file_groups)
        self._parser = RecordParser(paths, sequence_length, vocabulary_size)
        if self._parser.is_masked and (masker is not None or packed):
            raise ValueError(
                f"{paths[0]} must have records without masks to be "
                f"{'packed' if packed else 'masked'}. Received: records with masks"
            )
        if masker is None and not self._parser.is_masked:
            raise ValueError(f"Pass a masker, because the records in {paths[0]} have no masks.")
        self.batch_size = batch_size
        self.sequence_length = sequence_length
        self.packed = packed
        self.seed = seed
        self._masker = masker
        self._masks_whole_batch = not (masker is None or getattr(masker, "masks_rows_alone", False))
        # An epoch ends when the smallest group ends.
        self.num_rows = file_groups * min(count(self._count_rows, range(file_groups)))
        self._start = StreamPosition()
        self._check_rows()

    def _check_rows(self) -> None:
        if self.batch_size % len(self._groups):
            raise ValueError(
                f"batch_size must be a multiple of the {len(self._groups)} file groups. "
                f"Received: {self.batch_size}"
            )
        if self.num_rows < self.batch_size:
            paths = self._parser.paths
            raise ValueError(
                f"The {len(paths)} files must have at least one batch of {self.batch_size} rows. "
                f"Received: {self.num_rows} rows (first file: {paths[0]})"
            )

    def _count_rows(self, group: int) -> int:
        """Returns the number of rows in a file group."""
        if self.packed:
            return sum(1 for _ in self._read_rows(group))
        return sum(map(count_records, self._groups[group]))

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        return self.num_rows // self.batch_size

    def resume_after(self, num_batches: int, batch_size: int) -> Self:
        """Returns the rest of this stream after `num_batches`, with a different batch size.

        It continues with the next row, so no row is repeated before the end of the epoch.

        Args:
            num_batches: Number of batches to skip.
            batch_size: Number of rows in the new batches.

        Raises:
            ValueError: If the rows do not fill a batch.
        """
        rest = copy.copy(self)
        rest._start = self._position(num_batches)
        rest.batch_size = batch_size
        rest._check_rows()
        return rest

    def _position(self, num_batches: int) -> StreamPosition:
        """Returns the position after some batches."""
        epoch, row, batch = self._start
        in_first_epoch = (self.num_rows - row) // self.batch_size
        if num_batches < in_first_epoch:
            return StreamPosition(epoch, row + num_batches * self.batch_size, batch + num_batches)
        epochs, batches = divmod(num_batches - in_first_epoch, self.batches_per_epoch)
        return StreamPosition(epoch + 1 + epochs, batches * self.batch_size, batch + num_batches)

    def from_batch(
        self, first: int = 0, shard: tuple[int, int] = (0, 1), *, return_shards: bool = False
    ) -> Batches:
        """Returns the stream's infinite batches, starting at a given batch.

        Args:
            first: The index of the first batch, counted over all epochs. Defaults to 0.
            shard: The index of this process and the number of processes that share each batch. Each
                process gets an equal number of consecutive rows, with the masks of the whole batch.
            return_shards: Whether a masker with a method `shard` only masks this process's rows
                instead of the whole batch. Then each batch is a `BatchShard`, and the processes
                must exchange their numbers of selected tokens. Defaults to `False`.

        Returns:
            An iterable of dicts as returned by `pretraining_batches` for records with masks. Packed
            batches have `sequence_ids` and `position_ids` instead of `padding_mask`. A thread
            prefetches the batches.

        Raises:
            ValueError: If a batch cannot be split equally among the processes.
        """
        return _StreamBatches(
            self,
            lambda skipped: self._from_batch(first + skipped, shard, return_shards),
            None,
            shard,
        )

    def first_batches(
        self, count: int, shard: tuple[int, int] = (0, 1), *, return_shards: bool = False
    ) -> Batches:
        """Returns up to `count` batches in file order with fixed masks, for evaluation.

        Each iteration yields the same batches.

        Args:
            count: The maximum number of batches.
            shard: See `from_batch`.
            return_shards: See `from_batch`.
        """
        count = min(count, self.batches_per_epoch)

        def read(skipped: int) -> Iterator[Any]:
            batches = self._batches(self._read_rows, StreamPosition(), shard, return_shards)
            return itertools.islice(batches, skipped, count)

        return _StreamBatches(self, read, count, shard)

    def example(self) -> Features:
        """Returns a batch with a single row."""
        batch = self._unmask(list(self._as_rows([self._parser.first])))
        features: Features = batch if self._masker is None else self._masker(batch, 0)
        return features

    def _from_batch(self, first: int, shard: tuple[int, int], return_shards: bool) -> Iterator[Any]:
        start = self._position(first)
        while True:
            rows = functools.partial(self._shuffle, start.epoch)
            yield from self._batches(rows, start, shard, return_shards)
            count = (self.num_rows - start.row) // self.batch_size
            start = StreamPosition(start.epoch + 1, 0, start.batch + count)

    def _shuffle(self, epoch: int, group: int) -> Iterator[Any]:
        """Yields a file group's rows in the epoch's order."""
        num_groups = len(self._groups)
        seed = (self.seed, epoch) if num_groups == 1 else (self.seed, epoch, group)
        # All windows together have the same number of rows in memory as a single window.
        window = -(-SHUFFLE_WINDOW // num_groups)
        if self.packed:
            return shuffled(self._read_rows(group), *seed, window=window)
        return shuffled_records(self._groups[group], *seed, window=window)

    def _read_rows(self, group: int) -> Iterator[Any]:
        """Yields a group's rows in file order. They are packed in the same way each time."""
        return self._as_rows(interleaved(self._groups[group]))

    def _as_rows(self, records: Iterable[Any]) -> Iterator[Any]:
        """Yields each record or, for packed rows, the list of records in each row."""
        if not self.packed:
            yield from records
            return
        for window in chunked(records, PACKING_WINDOW):
            row = best_fit_rows(self._parser.lengths(window), self.sequence_length)
            order = order_by_row(row)
            for own in np.split(order, np.flatnonzero(np.diff(row[order])) + 1):
                yield [window[index] for index in own.tolist()]

    def _batches(
        self,
        rows_of_group: Callable[[int], Iterator[Any]],
        start: StreamPosition,
        shard: tuple[int, int],
        return_shards: bool,
    ) -> Iterator[Any]:
        """Yields the remaining full batches in an epoch, or a process's shards of them, with masks.

        `rows_of_group` yields a file group's rows. For the other arguments see `from_batch`.
        """
        own_rows = rows_of_shard(shard, self.batch_size)
        draws_shard = return_shards and hasattr(self._masker, "shard")
        is_whole = self._masks_whole_batch and not draws_shard
        num_groups = len(self._groups)
        groups = groups_of_shard((0, 1) if is_whole else shard, num_groups)
        in_group = self.batch_size // num_groups
        chunks_of_groups = [
            chunked(itertools.islice(rows_of_group(group), start.row // num_groups, None), in_group)
            for group in groups
        ]
        own = slice(own_rows.start - groups[0] * in_group, own_rows.stop - groups[0] * in_group)
        count = (self.num_rows - start.row) // self.batch_size
        for step in range(start.batch, start.batch + count):
            rows: list[Any] = []
            for group, chunks in zip(groups, chunks_of_groups, strict=True):
                chunk = next(chunks, [])
                if len(chunk) < in_group:
                    raise ValueError(
                        f"The files must not change during training. Received: fewer rows than "
                        f"before in the files of {self._groups[group][0]}"
                    )
                rows += chunk
            batch = self._unmask(rows if is_whole else rows[own])
            if draws_shard:
                yield self._masker.shard(batch, step, own_rows.start)
                continue
            if self._masker is not None:
                batch = self._masker(batch, step)
            if is_whole:
                batch = {name: values[own_rows] for name, values in batch.items()}
            yield batch

    def _unmask(self, rows: list[Any]) -> Features:
        """Converts records to a batch without masks."""
        if self.packed:
            features, _ = self._parser(list(itertools.chain.from_iterable(rows)))
            row = np.repeat(np.arange(len(rows)), [len(records) for records in rows])
            return filled_rows(features, row, self.sequence_length)
        features, rest = self._parser(rows)
        return {**Sequences(features).pad(NUMPY, self.sequence_length, 0), **rest}


def group_files(paths: Sequence[str], file_groups: int) -> list[Sequence[str]]:
    """Divides files into groups of almost equal size."""
    if not 1 <= file_groups <= len(paths):
        raise ValueError(
            f"There must be at least one file for each of the {file_groups} groups. Received: "
            f"{len(paths)} files (first file: {paths[0]})"
        )
    return [paths[group::file_groups] for group in range(file_groups)]


def groups_of_shard(shard: tuple[int, int], file_groups: int) -> range:
    """Returns the indices of the file groups with a process's rows."""
    number, count = shard
    return range(number * file_groups // count, -(-(number + 1) * file_groups // count))


class _StreamBatches(Batches):
    """Batches from a stream. `read` accepts the number of batches to skip."""

    has_one_shape = True

    def __init__(
        self,
        stream: PretrainingStream,
        read: Callable[[int], Iterator[Any]],
        num_batches: int | None,
        shard: tuple[int, int],
    ) -> None:
        super().__init__()
        check_shard(shard, stream.batch_size)
        self._stream = stream
        self.rows_in_batch = stream.batch_size // shard[1]
        self._read = read
        self._num_batches = num_batches

    @property
    def num_batches(self) -> int | None:
        """The number of batches, or `None` if they never end."""
        return self._num_batches

    def example(self) -> Features:
        """Returns a batch with a single row."""
        return self._stream.example()

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        yield from self._read(first)


def pretraining_examples(batches: Batches, next_sentence: bool) -> Batches:
    """Converts masked batches to the examples that `Pretrainer.fit` accepts.

    Args:
        batches: Batches with `mask_ids`, `mask_weights` and, for the sentence objective,
            `next_sentence_labels`. For example, from a `PretrainingStream` or
            `pretraining_batches`.
        next_sentence: Whether to also train on the sentence objective (NSP or SOP).

    Returns:
        Batches of `(features, labels, weights)`. Labels and weights are dicts with the names of the
        `Pretrainer`'s outputs.

    Raises:
        ValueError: If the batches have no masks, or if `next_sentence` is true and they have no
            `next_sentence_labels`.
    """
    names = sorted(batches.example())
    if "mask_ids" not in names:
        raise ValueError(
            f"The records must have masks. Received: {names}. Read them with "
            "PretrainingStream(files, masker=MaskedLMMaskGenerator.from_tokenizer(tokenizer), "
            "...).from_batch(). It samples new masks in each epoch."
        )
    if next_sentence and "next_sentence_labels" not in names:
        raise ValueError(
            "The records must have next_sentence_labels for the sentence objective. Received: "
            f"{names}"
        )

    return MappedBatches(batches, lambda batch, _: pretraining_example(batch, next_sentence))


def pretraining_example(
    batch: Features, next_sentence: bool
) -> tuple[Features, Features, Features]:
    """Converts a masked batch to features, labels and weights, see `pretraining_examples`."""
    x = dict(batch)
    labels = {"masked_lm_logits": x.pop("mask_ids")}
    weights = {"masked_lm_logits": x.pop("mask_weights")}
    pairs = x.pop("next_sentence_labels", None)
    if next_sentence:
        labels["next_sentence_logits"] = pairs
        weights["next_sentence_logits"] = x.get("row_mask", np.ones(len(pairs), "float32"))
    return x, labels, weights

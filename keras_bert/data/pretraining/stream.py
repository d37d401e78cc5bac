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
from keras_bert.data.pretraining.packing import best_fit_rows, filled_rows, in_order_of_rows
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

# Number of consecutive sequences that are packed together
PACKING_WINDOW = 1024


class StreamPosition(NamedTuple):
    """Where a batch of a stream begins.

    Attributes:
        epoch: The number of epochs before the batch.
        row: The number of rows before the batch in its epoch, in all groups of files together.
        batch: The number of batches before it, on which its masks depend.
    """

    epoch: int = 0
    row: int = 0
    batch: int = 0


class PretrainingStream:
    """An infinite stream of masked batches, in a different order in each epoch.

    Batch n, including its masks, depends only on the files, the seed and n: training that resumes
    at batch n gets the same batches as without the interruption. The rows of an epoch that do not
    fill a batch are dropped; they differ from epoch to epoch.

    Args:
        files: TFRecord files, all with the same features; or a pattern such as
            `"records/*.tfrecord"`. They are read once in advance, to count the records.
        batch_size: Number of rows in a batch.
        sequence_length: Number of tokens in a row.
        masker: The masker of records without masks: a `MaskedLMMaskGenerator` or another callable
            of a batch and a step. It is called with whole batches, unless it has
            `masks_rows_alone`, or a method `shard` and batches are read `return_shards`.
        packed: Whether to pack several records into a row instead of padding; for records without
            masks only. Labels of pairs are dropped, since a row can have only one.
        seed: Seed of the order; the masks have the seed of the masker.
        vocabulary_size: If given, ids outside `[0, vocabulary_size)` are an error.
        file_groups: Number of groups of files. Each group fills an equal number of consecutive
            rows of each batch, so a process with these rows reads no other files. An epoch ends
            with the rows of the smallest group. The batches depend on the number of groups, and not
            on the number of processes.
        count: Counts the rows of the groups: it calls a function with the index of each group, and
            returns the results in order, as `map` does. Processes can divide this work among
            themselves.

    Raises:
        FileNotFoundError: If no file matches, or a pattern misses some of the shards that file
            names such as `*-00000-of-00008.tfrecord` count.
        ValueError: If a file is truncated, records lack the features of pre-training records, the
            rows do not fill a batch, records that have masks are to be packed or masked again, or
            there are fewer files than groups, or `batch_size` is no multiple of the groups.

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
                f"{paths[0]} has masks already; expected records without masks "
                f"to {'pack' if packed else 'mask'}."
            )
        if masker is None and not self._parser.is_masked:
            raise ValueError(f"{paths[0]} has no masks; expected a masker.")
        self.batch_size = batch_size
        self.sequence_length = sequence_length
        self.packed = packed
        self.seed = seed
        self._masker = masker
        self._masks_whole_batch = not (masker is None or getattr(masker, "masks_rows_alone", False))
        # An epoch ends with the smallest group.
        self.num_rows = file_groups * min(count(self._count_rows, range(file_groups)))
        self._start = StreamPosition()
        self._check_rows()

    def _check_rows(self) -> None:
        if self.batch_size % len(self._groups):
            raise ValueError(
                f"A batch has {self.batch_size} rows; expected a multiple of the "
                f"{len(self._groups)} groups of files."
            )
        if self.num_rows < self.batch_size:
            paths = self._parser.paths
            raise ValueError(
                f"The {len(paths)} files from {paths[0]} on have {self.num_rows} rows; "
                f"expected at least a batch of {self.batch_size}."
            )

    def _count_rows(self, group: int) -> int:
        """Returns the number of rows of a group of files."""
        if self.packed:
            return sum(1 for _ in self._in_order(group))
        return sum(map(count_records, self._groups[group]))

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches in an epoch."""
        return self.num_rows // self.batch_size

    def resume_after(self, num_batches: int, batch_size: int) -> Self:
        """Returns the rest of this stream after some batches, in batches of another size.

        It has the rows that follow, so that a row is not repeated before the end of the epoch.

        Args:
            num_batches: Number of batches before the rest.
            batch_size: Number of rows in its batches.

        Raises:
            ValueError: If the rows do not fill a batch.
        """
        rest = copy.copy(self)
        rest._start = self._position(num_batches)
        rest.batch_size = batch_size
        rest._check_rows()
        return rest

    def _position(self, num_batches: int) -> StreamPosition:
        """Returns where the batch after some batches begins."""
        epoch, row, batch = self._start
        in_first_epoch = (self.num_rows - row) // self.batch_size
        if num_batches < in_first_epoch:
            return StreamPosition(epoch, row + num_batches * self.batch_size, batch + num_batches)
        epochs, batches = divmod(num_batches - in_first_epoch, self.batches_per_epoch)
        return StreamPosition(epoch + 1 + epochs, batches * self.batch_size, batch + num_batches)

    def from_batch(
        self, first: int = 0, shard: tuple[int, int] = (0, 1), *, return_shards: bool = False
    ) -> Batches:
        """Returns the infinite batches from a given one on.

        Args:
            first: The index of the first batch, counted over all epochs.
            shard: The index of this process and the number of processes that share each batch. Each
                gets an equal number of consecutive rows, with the masks of the whole batch.
            return_shards: Whether a masker with a method `shard` masks only the rows of this
                process, instead of the whole batch. Batches are `BatchShard`s then, and the
                processes must tell one another how many tokens are selected in their rows.

        Returns:
            An iterable of dicts as returned by `pretraining_batches` for records with masks; packed
            batches have `sequence_ids` and `position_ids` instead of `padding_mask`. A thread
            prefetches the batches.

        Raises:
            ValueError: If the processes cannot have equal shards.
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
        """Returns up to `count` batches in the order of the files, with fixed masks.

        It is meant for evaluation: each iteration has the same batches.

        Args:
            count: The number of batches.
            shard: See `from_batch`.
            return_shards: See `from_batch`.
        """
        count = min(count, self.batches_per_epoch)

        def read(skipped: int) -> Iterator[Any]:
            batches = self._batches(self._in_order, StreamPosition(), shard, return_shards)
            return itertools.islice(batches, skipped, count)

        return _StreamBatches(self, read, count, shard)

    def example(self) -> Features:
        """Returns a batch of a single row."""
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
        """Yields the rows of a group of files in the order of an epoch."""
        num_groups = len(self._groups)
        seed = (self.seed, epoch) if num_groups == 1 else (self.seed, epoch, group)
        # The windows of all groups together have as many rows in memory as one would.
        window = -(-SHUFFLE_WINDOW // num_groups)
        if self.packed:
            return shuffled(self._in_order(group), *seed, window=window)
        return shuffled_records(self._groups[group], *seed, window=window)

    def _in_order(self, group: int) -> Iterator[Any]:
        """Yields the rows of a group in the order of its files, packed the same each time."""
        return self._as_rows(interleaved(self._groups[group]))

    def _as_rows(self, records: Iterable[Any]) -> Iterator[Any]:
        """Yields each record, or for each packed row the list of its records."""
        if not self.packed:
            yield from records
            return
        for window in chunked(records, PACKING_WINDOW):
            row = best_fit_rows(self._parser.lengths(window), self.sequence_length)
            order = in_order_of_rows(row)
            for own in np.split(order, np.flatnonzero(np.diff(row[order])) + 1):
                yield [window[index] for index in own.tolist()]

    def _batches(
        self,
        rows_of_group: Callable[[int], Iterator[Any]],
        start: StreamPosition,
        shard: tuple[int, int],
        return_shards: bool,
    ) -> Iterator[Any]:
        """Yields the full batches of the rest of an epoch, or a process's shards of them, masked.

        `rows_of_group` yields the rows of a group of files; see `from_batch`.
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
                        f"The files from {self._groups[group][0]} on have fewer rows than when "
                        "they were counted; expected files that do not change."
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
        """Returns a batch of rows as they are recorded, before masking."""
        if self.packed:
            features, _ = self._parser(list(itertools.chain.from_iterable(rows)))
            row = np.repeat(np.arange(len(rows)), [len(records) for records in rows])
            return filled_rows(features, row, self.sequence_length)
        features, rest = self._parser(rows)
        return {**Sequences(features).pad(NUMPY, self.sequence_length, 0), **rest}


def group_files(paths: Sequence[str], file_groups: int) -> list[Sequence[str]]:
    """Divides files into groups of nearly the same number."""
    if not 1 <= file_groups <= len(paths):
        raise ValueError(
            f"There are {len(paths)} files from {paths[0]} on; expected at least one for each of "
            f"{file_groups} groups."
        )
    return [paths[group::file_groups] for group in range(file_groups)]


def groups_of_shard(shard: tuple[int, int], file_groups: int) -> range:
    """Returns the indices of the groups of files that fill the rows of a process."""
    number, count = shard
    return range(number * file_groups // count, -(-(number + 1) * file_groups // count))


class _StreamBatches(Batches):
    """Batches of a stream, from `read`, a function of the number of batches to skip."""

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
        """The number of batches; `None` if they never end."""
        return self._num_batches

    def example(self) -> Features:
        """Returns a batch of a single row."""
        return self._stream.example()

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        yield from self._read(first)


def pretraining_examples(batches: Batches, next_sentence: bool) -> Batches:
    """Converts masked batches to the examples that `Pretrainer.fit` takes.

    Args:
        batches: Batches with `mask_ids`, `mask_weights` and, for the sentence objective,
            `next_sentence_labels`: of a `PretrainingStream`, or `pretraining_batches`.
        next_sentence: Whether to train on the sentence objective (NSP or SOP) too.

    Returns:
        Batches of `(features, labels, weights)`; labels and weights are dicts with the names of
        `Pretrainer`'s outputs.

    Raises:
        ValueError: If the batches have no masks, or if `next_sentence` is true and they lack
            `next_sentence_labels`.
    """
    names = sorted(batches.example())
    if "mask_ids" not in names:
        raise ValueError(
            f"The records must have masks. Received: {names}. Read them by "
            "PretrainingStream(files, masker=MaskedLMMaskGenerator.from_tokenizer(tokenizer), "
            "...).from_batch(), which masks them anew in each epoch."
        )
    if next_sentence and "next_sentence_labels" not in names:
        raise ValueError(
            "The records have no next_sentence_labels, which the sentence objective needs; "
            f"they have {names}."
        )

    def example(batch: Features, _: int) -> tuple[Features, Features, Features]:
        x = dict(batch)
        labels = {"masked_lm_logits": x.pop("mask_ids")}
        weights = {"masked_lm_logits": x.pop("mask_weights")}
        pairs = x.pop("next_sentence_labels", None)
        if next_sentence:
            labels["next_sentence_logits"] = pairs
            weights["next_sentence_logits"] = np.ones(len(pairs), "float32")
        return x, labels, weights

    return MappedBatches(batches, example)

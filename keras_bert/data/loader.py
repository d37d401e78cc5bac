# SPDX-License-Identifier: Apache-2.0
"""Length-bucketed batches: rows of similar lengths, padded to the length of their bucket."""

from __future__ import annotations

import abc
import bisect
import collections
import concurrent.futures
import contextlib
import dataclasses
import itertools
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from keras_bert import checks
from keras_bert.data.arrays import NUMPY
from keras_bert.data.packing import Preprocessor, Sequences

DEFAULT_BATCH_SIZE = 32
# The number of batches in a bucketing window. Its rows are sorted by length together: large
# enough that the rows of a batch differ by a token or two, small enough that the order of an epoch
# stays random. Gradients of batches of similar rows have a larger variance, so the window is
# smaller for small data sets.
WINDOW_BATCHES = 64
# The smallest number of windows in an epoch of shuffled rows: with fewer, long and short rows would
# never be in the same batch; with one, batches would hold the same rows in every epoch.
WINDOWS_IN_EPOCH = 16
# The size of the shuffle buffer of a dataset, in batches
SHUFFLE_BATCHES = 1024
# The number of batches that a thread makes in advance
PREFETCHED_BATCHES = 8
# The number of rows to pack at a time where only their sizes are needed
_ROWS_SIZED = 2048

# Returns values of the rows at some indices, `(rows, ...)`
RowFunction = Callable[[np.ndarray], np.ndarray]
# The other columns of rows by name, such as `labels` and `weights`, `(rows, ...)` each
Columns = Mapping[str, np.ndarray]
# Checks the labels and weights of some rows, if there are any, and converts them to columns. It
# also takes `num_rows`, and `first_row`, the index of the first, for errors.
ReadColumns = Callable[..., Columns]


class ShardedMap(Protocol):
    """A function of rows, computed by several processes: `keras_bert.ops.jax_steps.sharded_map`."""

    def __call__(self, function: RowFunction, num_rows: int, **same: int) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """The options of batching for a call of `fit`, `evaluate` or `predict`.

    Args:
        batch_size: Number of rows in a batch; `None` for the default, 32.
        compiles: Whether each new batch shape is compiled, which takes seconds. Then batches have
            few different lengths, and padding rows complete the last batch of training data.
        batches_for_more_lengths: The number of batches in an epoch from which on they have as many
            lengths as without compilation, since less padding then saves more time than compilation
            takes; `None` for never.
        shuffle_seed: Seed for shuffling the rows and the batches, differently in each epoch; `None`
            does not shuffle. A row of a dataset is at most 1,024 batches earlier than in the input.
        training: Whether the rows are training data.
        negative_share: The fraction of the windows without answers, of questions that have answers
            in other windows.
        bucketing_window: Number of batches with rows that are sorted by length together; 1 does not
            regroup rows. Defaults to 64; if rows are shuffled, to at most a sixteenth of an epoch,
            or, if its size is unknown, of the rows so far.
        num_replicas: Number of devices of this process that share each batch. The last batch
            is then completed with padding rows too, so that each device has as many.
        shard: The index of this process and the number of processes that share each batch: each has
            an equal number of consecutive rows, padded to the length of the whole batch.
        sharded_map: Computes a function of rows, each process for its shard, and checks that all
            processes have the same options. With it, a process packs its shard of the rows in
            memory, from which all learn the lengths, and then its shard of each batch; without, it
            packs all rows.
        allow_unlabeled: Whether a label may be -1 (for regression NaN), which means that the row
            has none.

    Raises:
        ValueError: If an option is out of range, or the replicas or processes cannot have equal
            shards of a batch.
    """

    batch_size: int | None = None
    compiles: bool = False
    batches_for_more_lengths: int | None = None
    shuffle_seed: int | None = None
    training: bool = False
    negative_share: float = 1.0
    bucketing_window: int | None = dataclasses.field(default=None, metadata={"fit": True})
    num_replicas: int = 1
    shard: tuple[int, int] = (0, 1)
    sharded_map: ShardedMap | None = None
    allow_unlabeled: bool = False

    def __post_init__(self) -> None:
        checks.POSITIVE_INT.check_given(
            batch_size=self.batch_size, bucketing_window=self.bucketing_window
        )
        if self.rows_in_batch % self.num_replicas:
            raise ValueError(
                f"batch_size is {self.rows_in_batch}, in a distribution over {self.num_replicas} "
                "devices, which share each batch; expected a multiple of their number."
            )
        check_shard(self.shard, self.rows_in_batch)

    @property
    def rows_in_batch(self) -> int:
        """The number of rows in a batch."""
        return self.batch_size or DEFAULT_BATCH_SIZE

    @property
    def fills_last_batch(self) -> bool:
        """Whether the last batch is completed with repeated rows of weight 0."""
        is_shared = self.num_replicas > 1 or self.shard[1] > 1
        return (self.compiles and self.training) or is_shared

    def has_few_lengths(self, num_batches: int | None) -> bool:
        """Returns whether an epoch of so many batches, if known, has few different lengths."""
        least = self.batches_for_more_lengths
        return self.compiles and (num_batches is None or least is None or num_batches < least)

    def window(self, num_rows: int | None) -> int | None:
        """Returns the number of batches in a window; `None` if it grows with the rows so far."""
        if self.bucketing_window is not None or self.shuffle_seed is None:
            return self.bucketing_window or WINDOW_BATCHES
        if num_rows is None:
            return None
        return max(1, min(WINDOW_BATCHES, num_rows // (WINDOWS_IN_EPOCH * self.rows_in_batch)))


# The fields that are arguments of `fit`, which passes them on unchanged
FIT_OPTIONS = frozenset(
    field.name for field in dataclasses.fields(BatchOptions) if field.metadata.get("fit")
)


def check_shard(shard: tuple[int, int], batch_size: int) -> None:
    """Checks that processes can have equal shards `(index, count)` of a batch."""
    index, count = shard
    if not 0 <= index < count or batch_size % count:
        raise ValueError(
            f"shard is {shard}, with a batch_size of {batch_size}; expected an index below the "
            "number of processes, and a batch_size that is a multiple of this number."
        )


def rows_of_shard(shard: tuple[int, int], batch_size: int) -> slice:
    """Returns the rows of a batch that a process `(index, count)` has."""
    index, count = shard
    return slice(index * batch_size // count, (index + 1) * batch_size // count)


class Examples(Protocol):
    """Rows that can be packed."""

    def __len__(self) -> int: ...

    def pack(self, index: np.ndarray) -> Sequences:
        """Packs the rows at some indices, an int64 array, into sequences of tokens."""


class Batch(NamedTuple):
    """A batch of packed rows.

    Args:
        features: Features `(batch, length)` or `(batch, sequences, length)`, with `padding_mask`.
        rows: The index of each row in the input, int64 `(batch,)`.
        is_real: 0 for the padding rows that complete the batch, float32 `(batch,)`; `None` if
            batches are not completed.
        columns: The other columns of the rows, such as labels.
    """

    features: dict[str, Any]
    rows: np.ndarray
    is_real: np.ndarray | None
    columns: Columns


class Window(NamedTuple):
    """Rows that are sorted by length together.

    Args:
        examples: The examples that contain the rows.
        rows: Their indices in `examples`, int64 `(rows,)`.
        columns: The other columns of `examples`, such as labels.
        first: The index in the input of the first row of `examples`.
    """

    examples: Examples
    rows: np.ndarray
    columns: Columns
    first: int = 0


class RowSource(Protocol):
    """Where the windows of a `Loader` come from."""

    num_rows: int | None
    """The number of rows; `None` if it is unknown."""

    def sizes(self, options: BatchOptions) -> np.ndarray | None:
        """Returns `sizes` of all rows, if rows are sharded over processes; otherwise `None`."""

    def example(self) -> Window | None:
        """Returns a window of the first row, which `windows` yields again; `None` without rows."""

    def windows(self, epoch: int, options: BatchOptions, skipped: int) -> Iterator[Window]:
        """Yields the windows of an epoch, without the first `skipped` ones."""


class RowsInMemory:
    """Rows in memory, as the source of a `Loader`."""

    def __init__(self, examples: Examples, columns: Columns | None = None) -> None:
        self.examples = examples
        self.columns = columns or {}
        self.num_rows: int | None = len(examples)

    def sizes(self, options: BatchOptions) -> np.ndarray | None:
        """Returns `sizes` of all rows, if rows are sharded over processes; otherwise `None`."""
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

    def example(self) -> Window | None:
        """Returns a window of the first row."""
        return Window(self.examples, np.arange(1), self.columns) if self.num_rows else None

    def windows(self, epoch: int, options: BatchOptions, skipped: int = 0) -> Iterator[Window]:
        """Yields the windows of an epoch."""
        count, seed = len(self.examples), options.shuffle_seed
        order = np.arange(count) if seed is None else permutation(count, seed, epoch)
        size = options.rows_in_batch * (options.window(count) or 1)
        for start in range(skipped * size, count, size):
            yield Window(self.examples, order[start : start + size], self.columns)


class Batches(abc.ABC):
    """Base class of batches that can be read several times."""

    targets_have_length = False
    """Whether labels and weights have one value for each token."""

    rows_in_batch: int | None = None
    """The number of rows of every batch; `None` if it varies."""

    prefetches = True
    """Whether a thread makes batches in advance, perhaps more than are used."""

    has_one_shape = False
    """Whether the arrays of all batches have the same shapes."""

    def __init__(self) -> None:
        self.seconds_waited = 0.0
        """How long its consumers have waited for batches, in seconds."""

    @property
    @abc.abstractmethod
    def num_batches(self) -> int | None:
        """The number of batches of an epoch; `None` if it is unknown."""

    def end_epoch(self) -> None:  # noqa: B027
        """Tells a source that the batches of an epoch have been used."""

    def __len__(self) -> int:
        if self.num_batches is None:
            raise TypeError("The number of batches is unknown.")
        return self.num_batches

    def __iter__(self) -> Iterator[Any]:
        return self.epoch()

    def epoch(self, number: int = 0, first: int = 0) -> Generator[Any, None, None]:
        """Yields the batches of an epoch, which a thread makes in advance.

        Args:
            number: The number of the epoch, which determines the order of shuffled rows.
            first: The number of batches to skip.
        """
        batches = self._epoch(number, first)
        # (A thread for a single batch would take longer than the batch.)
        is_single = self.num_batches is not None and self.num_batches - first <= 1
        prefetches = self.prefetches and not is_single
        with contextlib.closing(prefetch(batches) if prefetches else batches) as batches:
            while True:
                start = time.perf_counter()
                batch = next(batches, None)
                self.seconds_waited += time.perf_counter() - start
                if batch is None:
                    return
                yield batch

    def example(self) -> Any:
        """Returns a batch of few rows, for its structure; `None` if there are no rows."""
        with contextlib.closing(self._epoch(0, 0)) as batches:
            return next(batches, None)

    def first_targets(self) -> tuple[Any, Any]:
        """Returns the labels and weights, or `None`, of rows that are in memory: if possible, all.

        Otherwise, they are of the first rows.
        """
        _, labels, weights = (*(self.example() or (None,)), None, None)[:3]
        return labels, weights

    @abc.abstractmethod
    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        """Yields the batches of an epoch."""


class Loader(Batches):
    """Batches of rows of similar lengths.

    A window of rows is packed in one call, sorted by length and cut into batches, and each batch is
    padded to the shortest bucket that holds it. Every batch but one is full, so that an epoch has
    `ceil(rows / batch_size)` steps. The order of shuffled rows, and of the batches of a window,
    depends on the seed and the epoch alone.

    `finish` converts a `Batch` to a batch for Keras, such as `(features, labels, weights)`.
    `targets` are the labels and weights of all rows, if they are not columns of the source.
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
        if options.fills_last_batch:
            self.rows_in_batch = options.rows_in_batch // options.shard[1]
        self._finish = finish or with_columns
        self._pad_token_id = preprocessor.tokenizer.pad_token_id
        is_coarse = options.has_few_lengths(self.num_batches)
        self._buckets = bucket_lengths(preprocessor.sequence_length, coarse=is_coarse)
        # (Processes exchange them here, before a thread makes batches.)
        self._sizes = source.sizes(options)

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch; `None` if it is unknown."""
        num_rows = self.source.num_rows
        return None if num_rows is None else -(-num_rows // self.options.rows_in_batch)

    def example(self) -> Any:
        """Returns a batch of the first row; `None` if there are no rows."""
        window = self.source.example()
        if window is None:
            return None
        sequences = window.examples.pack(window.rows)
        row = np.zeros(1, "int64")
        is_real = np.ones(1, "float32") if self.options.fills_last_batch else None
        return self._finish(self._pad(sequences, row, sizes(sequences)[0], row, is_real, window))

    def first_targets(self) -> tuple[Any, Any]:
        window = self.source.example()
        columns = {} if window is None else window.columns
        if "labels" not in columns:
            return self._targets
        return columns["labels"], columns.get("weights")

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        options = self.options
        size, seed = options.rows_in_batch, options.shuffle_seed
        window_batches = options.window(self.source.num_rows)
        skipped = 0 if window_batches is None else first // window_batches
        batches_before = skipped * (window_batches or 0)
        for index, window in enumerate(self.source.windows(number, options, skipped), skipped):
            sequences = None
            if self._sizes is None:
                sequences = window.examples.pack(window.rows)
                row_sizes = sizes(sequences)
            else:
                row_sizes = self._sizes[window.rows]
            order = None if seed is None else (seed, number, index)
            texts = window.columns.get("texts")
            texts = None if texts is None else texts[window.rows]
            batches = list(rows_of_batches(row_sizes[:, 0], size, order, texts))
            yield from self._batches_of_window(
                window, sequences, row_sizes, batches[max(0, first - batches_before) :]
            )
            batches_before += len(batches)

    def _batches_of_window(
        self,
        window: Window,
        sequences: Sequences | None,
        row_sizes: np.ndarray,
        batches: Sequence[np.ndarray],
    ) -> Iterator[Any]:
        """Yields the batches of a window; if `sequences` is `None`, packs the rows of the shard."""
        fills, shard = self.options.fills_last_batch, self.options.shard
        full_batches = [np.resize(x, self.options.rows_in_batch) if fills else x for x in batches]
        shards = [rows[rows_of_shard(shard, len(rows))] for rows in full_batches]
        place = np.arange(len(window.rows))
        if sequences is None:
            own = np.concatenate([np.zeros(0, "int64"), *shards])
            place[own] = np.arange(len(own))
            sequences = window.examples.pack(window.rows[own])
            _check_sizes(sizes(sequences), row_sizes[own], window.rows[own])
        for rows, full_batch, own_rows in zip(batches, full_batches, shards, strict=True):
            is_real = None
            if fills:
                is_real = np.arange(len(full_batch)) < len(rows)
                is_real = is_real[rows_of_shard(shard, len(full_batch))].astype("float32")
            size = row_sizes[rows].max(axis=0)
            yield self._finish(
                self._pad(sequences, place[own_rows], size, own_rows, is_real, window)
            )

    def _pad(
        self,
        sequences: Sequences,
        place: np.ndarray,
        size: np.ndarray,
        rows: np.ndarray,
        is_real: np.ndarray | None,
        window: Window,
    ) -> Batch:
        """Makes a batch of some rows of a window: `place` are their indices in `sequences`.

        `size` has the largest of the `sizes` of the batch, over all processes.
        """
        length, num_sequences = bucket_for(max(1, size[0]), self._buckets), size[1]
        index = window.rows[rows]
        return Batch(
            sequences.take(NUMPY, place).padded(NUMPY, length, self._pad_token_id, num_sequences),
            window.first + index,
            is_real,
            {name: column[index] for name, column in window.columns.items()},
        )


def sizes(sequences: Sequences) -> np.ndarray:
    """Returns the length of each row's longest sequence, and the number of its sequences.

    They determine the shape of a batch; int32 `(rows, 2)`.
    """
    longest, counts = sequences.longest(NUMPY), sequences.counts
    counts = np.ones_like(longest) if counts is None else counts
    return np.stack([longest, counts], axis=1).astype("int32")


def _check_sizes(received: np.ndarray, expected: np.ndarray, rows: np.ndarray) -> None:
    """Checks that another process, which sent the sizes of rows, has the same rows."""
    (differs,) = np.nonzero((received != expected).any(axis=1))
    if len(differs):
        at = differs[0]
        raise ValueError(
            f"Row {rows[at]} has {received[at][0]} tokens in this process, and {expected[at][0]} "
            "in another; expected the same rows in each process."
        )


class BatchesOfBatches(Batches):
    """Base class of batches that are each made of one other batch."""

    def __init__(self, batches: Batches) -> None:
        super().__init__()
        self._batches = batches
        self.rows_in_batch = batches.rows_in_batch
        self.prefetches = batches.prefetches
        self.has_one_shape = batches.has_one_shape

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch; `None` if it is unknown."""
        return self._batches.num_batches

    def example(self) -> Any:
        """Returns a batch of few rows, for its structure; `None` if there are no rows."""
        return self._batches.example()

    def end_epoch(self) -> None:
        """Tells a source that the batches of an epoch have been used."""
        self._batches.end_epoch()


class MappedBatches(BatchesOfBatches):
    """Batches to which a function is applied.

    The function takes a batch, and a number that no other batch of the training has: the epoch in
    the upper 32 bits, and the batch in the epoch in the lower.
    """

    def __init__(
        self,
        batches: Batches,
        function: Callable[[Any, int], Any],
        *,
        targets_have_length: bool = False,
    ) -> None:
        super().__init__(batches)
        self._function = function
        self.targets_have_length = targets_have_length

    def example(self) -> Any:
        """Returns a batch of few rows, for its structure; `None` if there are no rows."""
        batch = super().example()
        return None if batch is None else self._function(batch, 0)

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        for index, batch in enumerate(self._batches._epoch(number, first), first):
            yield self._function(batch, (number << 32) + index)


def with_columns(batch: Batch) -> tuple[Any, ...]:
    """Converts a batch to `(features, labels, weights)`; see `batch_of`.

    If batches are completed, sample weights are multiplied by weights of 0 for padding rows.
    """
    labels, weights = batch.columns.get("labels"), batch.columns.get("weights")
    if batch.is_real is not None:
        weights = batch.is_real if weights is None else weights * batch.is_real
    return batch_of(with_real_rows(batch.features, batch.is_real), labels, weights)


def with_real_rows(features: dict[str, Any], is_real: np.ndarray | None) -> dict[str, Any]:
    """Adds which rows are not padding rows, for losses: they count other rows of weight 0."""
    # The name is `keras_bert.models.inputs.REAL_ROWS`.
    return features if is_real is None else {**features, "real_rows": is_real}


def batch_of(features: Any, labels: Any = None, weights: Any = None) -> tuple[Any, ...]:
    """Returns a batch for Keras: a tuple without the last parts, if they are `None`.

    Example:

    >>> batch_of("features", "labels"), batch_of("features", weights="weights")
    (('features', 'labels'), ('features', None, 'weights'))
    """
    if weights is not None:
        return features, labels, weights
    return (features,) if labels is None else (features, labels)


def with_index(batch: Batch) -> tuple[Any, ...]:
    """Converts a batch to its features and the indices of its rows, for predictions."""
    return batch.features, batch.rows


def bucket_lengths(sequence_length: int, coarse: bool = False) -> tuple[int, ...]:
    """Returns the lengths that batches are padded to.

    Args:
        sequence_length: Maximum length of a row in tokens; always the last bucket.
        coarse: Whether to use powers of two from 16, for compilers that take seconds for each new
            shape, instead of steps between an eighth and a quarter of the length.

    Returns:
        A tuple of ascending lengths in tokens.

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
    """Returns the shortest of ascending lengths that holds a row of `length` tokens."""
    return buckets[bisect.bisect_left(buckets, length)]


def rows_of_batches(
    lengths: np.ndarray,
    batch_size: int,
    order: tuple[int, ...] | None,
    texts: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Sorts the rows of a window by length, and yields the indices of the rows of each batch.

    `order` has the numbers that the random order of the batches depends on; `None` yields them from
    the shortest rows to the longest. `texts` has numbers of the texts of each row: rows with a text
    in common are in different batches, as far as the rows of the window allow it.
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
    """Has each row wait for a batch that none of its texts is in, if there is one."""
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
    """Returns a random order of `size` rows, which depends on the numbers of the seed alone.

    It is computed from the bits of a counter-based generator, which no version of NumPy changes.
    """
    key = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    bits = np.random.Philox(key=key).random_raw(size)
    return np.argsort(bits, kind="stable")


class Readings:
    """Readings of a source, of which perhaps only the first has elements, as of an iterator.

    Looking at the first element begins a reading, which the next iteration continues.
    """

    def __init__(self, read: Callable[[], Iterable[Any]]) -> None:
        self._read = read
        self._begun: tuple[list[Any], Iterator[Any]] | None = None

    def first(self) -> Any:
        """Returns the first element; `None` if there is none."""
        if self._begun is None:
            elements = iter(self._read())
            self._begun = list(itertools.islice(elements, 1)), elements
        return self._begun[0][0] if self._begun[0] else None

    def __iter__(self) -> Iterator[Any]:
        begun, self._begun = self._begun, None
        return iter(self._read()) if begun is None else itertools.chain(*begun)


def map_ahead(
    function: Callable[[Any], Any], elements: Iterable[Any], ahead: int
) -> Generator[Any, None, None]:
    """Applies a function in a thread, to some elements ahead; the caller's thread reads them."""
    if not ahead:
        yield from map(function, elements)
        return
    results: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(1, "batches") as thread:
        for element in elements:
            results.append(thread.submit(function, element))
            if len(results) > ahead:
                yield results.popleft().result()
        while results:
            yield results.popleft().result()


class _Failure(NamedTuple):
    error: BaseException


def prefetch(batches: Iterable[Any], ahead: int = PREFETCHED_BATCHES) -> Generator[Any, None, None]:
    """Yields batches, which a thread makes in advance.

    The thread ends when the generator is closed or collected.
    """
    ready: queue.Queue[Any] = queue.Queue(ahead)
    is_closed = threading.Event()

    def put(item: Any) -> bool:
        while not is_closed.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return True
        return False

    def make() -> None:
        try:
            for batch in batches:
                if not put(batch):
                    return
            put(None)
        except BaseException as error:
            put(_Failure(error))

    thread = threading.Thread(target=make, name="batches", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, _Failure):
                raise item.error
            yield item
    finally:
        is_closed.set()
        with contextlib.suppress(queue.Empty):
            while True:  # so that the thread does not wait for space
                ready.get_nowait()

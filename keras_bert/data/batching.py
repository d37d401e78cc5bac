# SPDX-License-Identifier: Apache-2.0
"""Length-bucketed batches: rows of similar lengths, padded to the length of their bucket."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, Required, TypedDict, TypeVar, Unpack

import numpy as np
import tensorflow as tf

from keras_bert import checks
from keras_bert.text.graph.functions import traced_once
from keras_bert.text.tokenizer import Tokenizer

# The number of batches whose rows are sorted by length together: large enough that the rows of a
# batch differ by a token or two, small enough that the order of an epoch stays random. Gradients
# of batches of similar rows have a larger variance, so the window is smaller for small data sets.
WINDOW_BATCHES = 64
# The smallest number of windows in an epoch of shuffled rows: with fewer, long and short rows would
# never be in the same batch; with one, batches would hold the same rows in every epoch.
WINDOWS_IN_EPOCH = 16
# The number of rows, in batches, that are in memory to shuffle a dataset of unknown size
SHUFFLE_BATCHES = 1024
# Up to so many rows are featurized once and not in each epoch: starting a pipeline that tokenizes
# takes longer than a dozen steps of a small model.
MAX_ROWS_IN_MEMORY = 4096


P = ParamSpec("P")
R = TypeVar("R")


def without_autograph(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a function that creates datasets, so that AutoGraph leaves their functions alone.

    Otherwise, AutoGraph parses and rewrites the source of every function that a dataset applies
    before it is traced, which takes longer than tracing it. None of those in this package has
    Python's control flow over tensors.
    """
    decorated: Callable[P, R] = tf.autograph.experimental.do_not_convert(function)
    return decorated


class BatchOptions(TypedDict, total=False):
    """Options of batching.

    Attributes:
        batch_size: Number of rows in a batch.
        shuffle_seed: Seed for shuffling the rows and the batches; `None` does not shuffle. Of a
            dataset of unknown size, a row is at most 1,024 batches earlier than in the dataset.
        reshuffle: Whether each iteration has a different order. Defaults to `True`.
        coarse_buckets: Whether to pad to few different lengths, for compilers that take seconds
            for each new shape.
        pad_last_batch: Whether to complete the last batch with rows of weight 0, so that every
            batch of a bucket has one static shape.
        window_batches: Number of batches whose rows are sorted by length together. Defaults to 64,
            and if rows are shuffled, to at most a sixteenth of an epoch; of a dataset of unknown
            size, of the rows before.
    """

    batch_size: Required[int]
    shuffle_seed: int | None
    reshuffle: bool
    coarse_buckets: bool
    pad_last_batch: bool
    window_batches: int


class RowPreprocessor(Protocol):
    """The attributes of a preprocessor that batching needs."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def sequence_length(self) -> int: ...


def row_batches(
    rows: tf.data.Dataset | int,
    featurize: Callable[..., tuple[dict[str, tf.RaggedTensor], tuple[Any, ...]]],
    preprocessor: RowPreprocessor,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Groups rows into length-bucketed batches.

    Args:
        rows: A dataset of rows; or the number of rows, if `featurize` takes their indices.
        featurize: See `length_bucketed_batches`.
        preprocessor: The preprocessor of the rows: it has their maximum length and their padding
            token.
        **options: `BatchOptions`.

    Returns:
        A dataset of `(features, rest)`; see `length_bucketed_batches`.
    """
    if isinstance(rows, int):
        if 0 < rows <= MAX_ROWS_IN_MEMORY:
            featurize = _computed_once(featurize, rows)
        rows = tf.data.Dataset.range(rows)
    seed, reshuffle = options.get("shuffle_seed"), options.get("reshuffle", True)
    window: int | None = WINDOW_BATCHES
    if seed is not None and (num_rows := int(rows.cardinality())):
        is_known, batch_size = num_rows > 0, options["batch_size"]
        buffer = num_rows if is_known else SHUFFLE_BATCHES * batch_size
        rows = rows.shuffle(buffer, seed=seed, reshuffle_each_iteration=reshuffle)
        largest = num_rows // (WINDOWS_IN_EPOCH * batch_size)
        window = max(1, min(WINDOW_BATCHES, largest)) if is_known else None
    coarse = options.get("coarse_buckets", False)
    return length_bucketed_batches(
        rows,
        featurize,
        batch_size=options["batch_size"],
        buckets=bucket_lengths(preprocessor.sequence_length, coarse=coarse),
        shuffle_seed=seed,
        reshuffle=reshuffle,
        pad_last_batch=options.get("pad_last_batch", False),
        pad_token_id=preprocessor.tokenizer.pad_token_id,
        window_batches=options.get("window_batches", window),
    )


def _computed_once(featurize: Callable[..., Any], num_rows: int) -> Callable[..., Any]:
    """Applies a function of the indices of rows to all rows, and returns one that picks rows."""
    with tf.device("CPU:0"):
        columns = featurize(tf.range(num_rows, dtype=tf.int64))

    def picked(index: tf.Tensor) -> Any:
        return tf.nest.map_structure(lambda column: tf.gather(column, index), columns)

    return picked


def num_elements(dataset: tf.data.Dataset) -> int:
    """Returns the number of elements of a dataset, which is read if it does not know it.

    Raises:
        ValueError: If the dataset is infinite.
    """
    cardinality = int(dataset.cardinality())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        raise ValueError("The dataset is infinite; expected one that ends, such as by `take`.")
    if cardinality == tf.data.UNKNOWN_CARDINALITY:
        return int(dataset.reduce(np.int64(0), lambda count, _: count + 1))
    return cardinality


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


@without_autograph
def length_bucketed_batches(
    rows: tf.data.Dataset,
    featurize: Callable[..., tuple[dict[str, tf.RaggedTensor], tuple[Any, ...]]],
    *,
    batch_size: int,
    buckets: Sequence[int],
    shuffle_seed: int | None = None,
    reshuffle: bool = True,
    pad_last_batch: bool = False,
    pad_token_id: int = 0,
    window_batches: int | None = WINDOW_BATCHES,
) -> tf.data.Dataset:
    """Groups rows of similar lengths into batches.

    A window of rows is tokenized in one call, sorted by length and cut into batches, and each
    batch is padded to the shortest bucket that holds it. Every batch but the last is full, so an
    epoch has `ceil(rows / batch_size)` steps, which is the dataset's cardinality if that of the
    rows is known.

    Args:
        rows: A dataset of unbatched examples of any structure.
        featurize: A function that maps a batch of rows to a dict of ragged features
            `(rows, None)`, including `token_ids`, and a tuple of the other columns (labels,
            weights). Features may also be `(rows, None, None)`, with several sequences per row.
        batch_size: Number of rows in a batch.
        buckets: Ascending lengths to pad to; the last one is the maximum length of a row.
        shuffle_seed: Seed for shuffling the batches; `None` leaves them sorted by length within
            each window.
        reshuffle: Whether each iteration has a different order.
        pad_last_batch: Whether to complete the last batch with repeated rows, so that every batch
            of a bucket has one static shape. `is_real` (float32 `(batch,)`, 0 for such rows) is
            then appended to the other columns.
        pad_token_id: The padding of `token_ids`; other features are padded with 0.
        window_batches: Number of batches whose rows are sorted by length together; 1 does not
            regroup rows. `None` begins with 1, and increases up to 64 with the number of rows
            before.

    Returns:
        A dataset of `(features, rest)`. The features are dense, `(batch, bucket)` or `(batch,
        sequences, bucket)`, and include a `padding_mask` (bool).

    Raises:
        ValueError: If `window_batches` is below 1.
    """
    if window_batches is not None:
        checks.POSITIVE_INT.check(window_batches=window_batches)
    largest_window = WINDOW_BATCHES if window_batches is None else window_batches
    num_rows = int(rows.cardinality())
    batcher = _batcher(batch_size, tuple(buckets), pad_last_batch, pad_token_id)
    if shuffle_seed is None and 0 < num_rows <= batch_size * largest_window:
        # A single window is tokenized at once: setting up a pipeline for it takes ten times longer.
        with tf.device("CPU:0"):
            (window,) = rows.batch(num_rows)
            features, rest = featurize(*(window if isinstance(window, tuple) else (window,)))
            if num_rows <= batch_size:
                batch = batcher.batch(_by_length(features), features, rest)
                return _dataset_of_one(*batch, batch_size if pad_last_batch else None)
            batches = batcher.batches_of_window(features, rest)
    else:
        windows = (
            _growing_windows(rows, batch_size)
            if window_batches is None
            else rows.batch(batch_size * window_batches)
        )
        batches = windows.map(featurize, num_parallel_calls=tf.data.AUTOTUNE)
        batches = batches.prefetch(1).flat_map(batcher.batches_of_window)
    if num_rows >= 0:
        batches = batches.apply(tf.data.experimental.assert_cardinality(-(-num_rows // batch_size)))
    if shuffle_seed is not None:
        batches = batches.shuffle(
            largest_window, seed=shuffle_seed, reshuffle_each_iteration=reshuffle
        )
    return without_tuning(batches.prefetch(tf.data.AUTOTUNE))


def _growing_windows(rows: tf.data.Dataset, batch_size: int) -> tf.data.Dataset:
    """Groups the rows of a dataset of unknown size into windows, of which each epoch has many.

    After 16 windows of a batch there are 16 of two batches, 16 of four, and so on; from 64, they
    remain of this size. A window is thus about a sixteenth of the rows before it at most.
    """
    sizes = [1 << power for power in range(WINDOW_BATCHES.bit_length())]
    # The batches before the first window of each of the other sizes
    starts = tf.constant([WINDOWS_IN_EPOCH * (size - 1) for size in sizes[1:]], tf.int64)

    def power(number: tf.Tensor, batch: Any) -> tf.Tensor:
        return tf.math.count_nonzero(number >= starts)

    def joined(power: tf.Tensor, batches: tf.data.Dataset) -> tf.data.Dataset:
        batches = batches.map(lambda number, batch: batch)
        return batches.unbatch().batch(batch_size * WINDOW_BATCHES)

    return (
        rows.batch(batch_size)
        .enumerate()
        .group_by_window(
            power,
            joined,
            window_size_func=lambda power: tf.bitwise.left_shift(tf.ones_like(power), power),
        )
    )


class _Batcher:
    """Cuts windows of rows into batches.

    Args:
        batch_size: Number of rows in a batch.
        buckets: See `length_bucketed_batches`.
        pad_last_batch: See `length_bucketed_batches`.
        pad_token_id: See `length_bucketed_batches`.
    """

    def __init__(
        self, batch_size: int, buckets: tuple[int, ...], pad_last_batch: bool, pad_token_id: int
    ) -> None:
        self.batch_size = batch_size
        self.buckets = buckets
        self.pad_last_batch = pad_last_batch
        self.pad_token_id = pad_token_id
        self.batches_of_window = traced_once(self._batches_of_window)

    def batch(
        self, rows: tf.Tensor, features: dict[str, tf.RaggedTensor], rest: Any
    ) -> tuple[dict[str, tf.Tensor], Any]:
        """Returns the padded features and the other columns of some rows of a window."""
        if self.pad_last_batch:
            rows, is_real = _repeat_to(rows, self.batch_size)
        picked = {name: tf.gather(value, rows) for name, value in features.items()}
        rest = tf.nest.map_structure(lambda value: tf.gather(value, rows), rest)
        boundaries = tf.constant(self.buckets, tf.int64)
        dense = pad_to_bucket(picked, boundaries, self.pad_token_id)
        if self.pad_last_batch:
            dense, rest = tf.nest.map_structure(
                lambda x: _set_rows(x, self.batch_size), (dense, rest)
            )
            rest = (*rest, is_real)
        return dense, rest

    def _batches_of_window(
        self, features: dict[str, tf.RaggedTensor], rest: Any
    ) -> tf.data.Dataset:
        order = _by_length(features)
        size = self.batch_size
        num_batches = tf.cast(-(-tf.size(order) // size), tf.int64)
        return tf.data.Dataset.range(num_batches, output_type=tf.int32).map(
            lambda index: self.batch(order[index * size : (index + 1) * size], features, rest)
        )


# Tracing takes longer than batching: once for each kind of batches, not in each pipeline.
_batcher = functools.lru_cache(maxsize=64)(_Batcher)


def _by_length(features: dict[str, tf.RaggedTensor]) -> tf.Tensor:
    """Returns the indices of rows, sorted by length, int32 `(rows,)`."""
    return tf.argsort(longest_sequences(features["token_ids"]), stable=True)


def _dataset_of_one(features: dict[str, tf.Tensor], rest: Any, num_rows: int | None) -> Any:
    """Returns a dataset of one batch, with the static shapes of a dataset of many batches."""

    def dynamic(features: dict[str, tf.Tensor], rest: Any) -> Any:
        return (
            {
                name: _with_shape(value, [num_rows, *[None] * (value.shape.rank - 1)])
                for name, value in features.items()
            },
            tf.nest.map_structure(lambda x: _with_shape(x, [num_rows, *x.shape[1:]]), rest),
        )

    return without_tuning(tf.data.Dataset.from_tensors((features, rest)).map(dynamic))


def _with_shape(tensor: tf.Tensor, shape: Sequence[int | None]) -> tf.Tensor:
    """Replaces a static shape by a less specific one."""
    return tf.compat.v1.placeholder_with_default(tensor, shape)


def pad_to_bucket(
    features: dict[str, tf.RaggedTensor], boundaries: tf.Tensor, pad_token_id: int = 0
) -> dict[str, tf.Tensor]:
    """Pads ragged features to the shortest bucket that holds the longest row.

    Args:
        features: Ragged features `(batch, None)` or `(batch, None, None)`, including `token_ids`.
        boundaries: Ascending lengths, int64 `(buckets,)`; no row is longer than the last one.
        pad_token_id: The padding of `token_ids`; other features are padded with 0.

    Returns:
        A dict of dense features `(batch, bucket)` or `(batch, sequences, bucket)`, with a
        `padding_mask` (bool).
    """
    lengths = longest_sequences(features["token_ids"])
    longest = tf.reduce_max(tf.concat([lengths, [1]], axis=0))
    length = boundaries[tf.searchsorted(boundaries, longest[None])[0]]
    return pad_to_length(features, length, pad_token_id)


def pad_to_length(
    features: dict[str, tf.RaggedTensor], length: tf.Tensor | int, pad_token_id: int = 0
) -> dict[str, tf.Tensor]:
    """Pads ragged features to a given length, and adds the `padding_mask`.

    `token_ids` are padded with `pad_token_id`, other features with 0.
    """
    token_ids = features["token_ids"]
    outer = [tf.constant(-1, tf.int64)] * token_ids.ragged_rank
    shape = tf.stack([*outer, tf.cast(length, tf.int64)])
    fillers = {"token_ids": pad_token_id}
    dense = {
        name: value.to_tensor(default_value=fillers.get(name), shape=shape)
        for name, value in features.items()
    }
    if token_ids.ragged_rank == 1:
        dense["padding_mask"] = tf.sequence_mask(token_ids.row_lengths(), maxlen=length)
    else:
        dense["padding_mask"] = tf.ones_like(token_ids, tf.bool).to_tensor(shape=shape)
    return dense


def longest_sequences(token_ids: tf.RaggedTensor) -> tf.Tensor:
    """Returns the length of each row, or of its longest sequence if it has several; `(rows,)`."""
    if token_ids.ragged_rank == 1:
        return token_ids.row_lengths()
    return tf.reduce_max(token_ids.row_lengths(axis=2), axis=1)


def _repeat_to(indices: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Repeats indices until there are `size`, and returns weights that are 0 for repetitions."""
    count = tf.size(indices)
    positions = tf.range(size)
    return tf.gather(indices, positions % count), tf.cast(positions < count, tf.float32)


def _set_rows(tensor: tf.Tensor, batch_size: int) -> tf.Tensor:
    return tf.ensure_shape(tensor, [batch_size, *tensor.shape[1:]])


def without_tuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Disables the autotuning of a dataset, which keeps one parallel call for each core.

    `tf.data`'s autotuning runs in a thread that sleeps for 10 ms, then 20 ms, and so on up to a
    minute. The end of an iterator mostly fails to wake this thread, but waits for it
    (TensorFlow 2.21), so that `fit` and `evaluate` would return that much later, in every epoch.

    Args:
        dataset: Any dataset; datasets derived from the result keep the option.

    Returns:
        A dataset of the same elements in the same order.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)

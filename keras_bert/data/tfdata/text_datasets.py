# SPDX-License-Identifier: Apache-2.0
"""A `tf.data.Dataset` of text as the source of batches, and batches as a `tf.data.Dataset`."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert import checks
from keras_bert.data.batch_options import WINDOW_BATCHES, WINDOWS_IN_EPOCH, BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.bucketing import permutation
from keras_bert.data.loader import BucketWindow, ReadColumns
from keras_bert.data.prefetching import Readings
from keras_bert.data.texts import TextClassifierPreprocessor, TextExamples, split_pair

# The size of the shuffle buffer of a dataset, in batches
SHUFFLE_BATCHES = 1024
# The number of rows that are read from a dataset at a time
_ROWS_READ = 1024

# Columns of rows by name: `text`, perhaps `text_pair`, and those that are not text
_Rows = dict[str, Any]


def check_finite(dataset: tf.data.Dataset) -> None:
    """Raises a `ValueError` if a dataset is infinite."""
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("The dataset is infinite; expected one that ends, such as by `take`.")


def num_elements(dataset: tf.data.Dataset) -> int:
    """Returns the number of elements of a dataset, which is read if it is unknown."""
    check_finite(dataset)
    cardinality = int(dataset.cardinality())
    if cardinality == tf.data.UNKNOWN_CARDINALITY:
        return int(dataset.reduce(np.int64(0), lambda count, _: count + 1))
    return cardinality


def map_with_group_mean(
    dataset: tf.data.Dataset,
    *,
    measure: Callable[[Any], tf.Tensor],
    function: Callable[[Any, tf.Tensor], Any],
    size: int,
    period: int | None = None,
    first: int = 0,
) -> tf.data.Dataset:
    """Maps each element by a function of it and of the mean of a measure over its group.

    A group has `size` consecutive elements. A new one also begins after each `period` elements, so
    with `size=2` and `period=5`, the groups are:

    | element | 0 | 1 | 2 | 3 | 4 | 5 | 6 |
    |---|---|---|---|---|---|---|---|
    | place in its period | 0 | 1 | 2 | 3 | 4 | 0 | 1 |
    | group of its period | 0 | 0 | 1 | 1 | 2 | 0 | 0 |
    | elements in its group | 2 | 2 | 2 | 2 | 1 | 2 | 2 |

    The dataset begins at the place `first` of a period.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"x is a {type(dataset).__name__}; with gradient_accumulation_steps, fit reads the "
            "batches of an update together: pass the tf.data.Dataset that it was made of."
        )
    period = period or size

    @tf.autograph.experimental.do_not_convert
    def add_measure(*element: Any) -> Any:
        # As Keras' trainer reads items that are `None`
        element = tf.nest.map_structure(
            lambda value: None if isinstance(value, tf.experimental.Optional) else value, element
        )
        return element, measure(element)

    @tf.autograph.experimental.do_not_convert
    def map_group(_: tf.Tensor, group: tf.data.Dataset) -> tf.data.Dataset:
        measures = group.map(lambda _, element: element[1]).batch(size).get_single_element()
        mean = tf.reduce_mean(measures, axis=0)
        return group.map(lambda _, element: function(element[0], mean))

    return (
        dataset.map(add_measure)
        .enumerate(first)
        .group_by_window(
            key_func=lambda place, _: place % period // size,
            reduce_func=map_group,
            window_size_func=lambda group: tf.minimum(
                tf.cast(size, group.dtype), period - group * size
            ),
        )
        .prefetch(size)
    )


def is_batched(rows: tf.data.Dataset) -> bool:
    """Returns whether the elements of a dataset of text are batches rather than rows."""
    spec = rows.element_spec
    text, _ = split_pair(spec[0] if isinstance(spec, tuple) else spec)
    return bool(text.shape.rank)


class DatasetRows:
    """The rows of a `tf.data.Dataset` of text, as the source of a `Loader`.

    An epoch reads the dataset once, and shuffles its rows in a buffer of `SHUFFLE_BATCHES` batches.

    Args:
        dataset: A dataset of single `x`, `(x, labels)` or `(x, labels, weights)`, where `x` is a
            string, a pair of strings, or a dict of `text` and `text_pair`.
        read_columns: Checks and converts labels and weights.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        preprocessor: TextClassifierPreprocessor,
        read_columns: ReadColumns,
    ) -> None:
        self._chunks = Readings(lambda: dataset.batch(_ROWS_READ).as_numpy_iterator())
        self._preprocessor = preprocessor
        self._read_columns = read_columns
        cardinality = int(dataset.cardinality())
        self.num_rows = None if cardinality < 0 else cardinality

    def sizes(self, options: BatchOptions) -> None:
        """Returns `None`: each process reads all rows."""

    def example(self) -> BucketWindow | None:
        """Returns a window of the first row, which `windows` yields too; `None` without rows.

        Its columns are those of the first rows that are read together.
        """
        chunk = self._chunks.first()
        if chunk is None:
            return None
        return self._window(self._columns(chunk, 0), 0)._replace(rows=np.arange(1))

    def windows(
        self, epoch: int, options: BatchOptions, skipped: int = 0
    ) -> Iterator[BucketWindow]:
        """Yields the windows of an epoch, without the first `skipped` ones."""
        batch_size = options.rows_in_batch
        chunks = self._read()
        if options.shuffle_seed is not None:
            chunks = _shuffle(chunks, SHUFFLE_BATCHES * batch_size, (options.shuffle_seed, epoch))
        in_windows = _batches_of_windows(options.window(self.num_rows))
        first = 0
        for number, columns in enumerate(
            _regroup(chunks, (batch_size * count for count in in_windows))
        ):
            if number >= skipped:
                yield self._window(columns, first)
            first += _num_rows(columns)

    def _read(self) -> Iterator[_Rows]:
        """Yields the columns of some rows at a time; their errors name the row in the dataset."""
        first_row = 0
        for chunk in self._chunks:
            rows = self._columns(chunk, first_row)
            first_row += _num_rows(rows)
            yield rows

    def _columns(self, chunk: Any, first_row: int) -> _Rows:
        x, *targets = chunk if isinstance(chunk, tuple) else (chunk,)
        text, text_pair = split_pair(x)
        texts = {"text": text} if text_pair is None else {"text": text, "text_pair": text_pair}
        return {**texts, **self._read_columns(*targets, num_rows=len(text), first_row=first_row)}

    def _window(self, rows: _Rows, first: int) -> BucketWindow:
        names: tuple[str, ...] = ("text", "text_pair")
        texts = {name: rows[name] for name in names if name in rows}
        others = {name: column for name, column in rows.items() if name not in texts}
        index = np.arange(_num_rows(rows))
        return BucketWindow(TextExamples(texts, self._preprocessor), index, others, first)


def _num_rows(rows: _Rows) -> int:
    return len(rows["text"])


def _cut(rows: _Rows, start: int, stop: int | None) -> _Rows:
    return {name: column[start:stop] for name, column in rows.items()}


def _concatenate(chunks: Sequence[_Rows]) -> _Rows:
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def _batches_of_windows(in_window: int | None) -> Iterator[int]:
    """Yields the number of batches of each window.

    With `None`, there are 16 windows of a batch, 16 of two batches, 16 of four, and so on; from 64,
    they remain of this size. A window is thus about a sixteenth of the rows before it at most.
    """
    for number in itertools.count():
        yield in_window or min(WINDOW_BATCHES, 1 << number // WINDOWS_IN_EPOCH)


def _regroup(chunks: Iterable[_Rows], sizes: Iterator[int]) -> Iterator[_Rows]:
    """Regroups rows into chunks of the given sizes. The last chunk has the rest.

    Example:

    >>> chunks = [{"text": np.arange(2)}, {"text": np.arange(2, 9)}]
    >>> [chunk["text"].tolist() for chunk in _regroup(chunks, itertools.repeat(3))]
    [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    """
    waiting: list[_Rows] = []
    size = next(sizes)
    for chunk in chunks:
        waiting.append(chunk)
        if sum(map(_num_rows, waiting)) < size:
            continue
        rows, start = _concatenate(waiting), 0
        while start + size <= _num_rows(rows):
            yield _cut(rows, start, start + size)
            start, size = start + size, next(sizes)
        waiting = [_cut(rows, start, None)]
    if any(map(_num_rows, waiting)):
        yield _concatenate(waiting)


def _shuffle(chunks: Iterable[_Rows], capacity: int, seed: tuple[int, int]) -> Iterator[_Rows]:
    """Shuffles rows, `capacity` of them in memory; each new one replaces a random one."""
    unread = iter(chunks)
    filling, num_rows = [], 0
    while num_rows < capacity and (chunk := next(unread, None)) is not None:
        filling.append(chunk)
        num_rows += _num_rows(chunk)
    if not filling:
        return
    buffer = _concatenate(filling)
    order, drawn = permutation(num_rows, *seed), itertools.count(1)
    for chunk in unread:
        if len(order) < _num_rows(chunk):
            order = permutation(num_rows, *seed, next(drawn))
        replaced, order = np.split(order, [_num_rows(chunk)])
        yield {name: column[replaced] for name, column in buffer.items()}
        for name, column in buffer.items():
            column[replaced] = chunk[name]
    order = permutation(num_rows, *seed, next(drawn))
    yield {name: column[order] for name, column in buffer.items()}


# === Features ===


def validate_dataset_weights(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Checks the sample weights of a dataset of `(x, y, weights)`; others are returned unchanged.

    Iterating over it raises `tf.errors.InvalidArgumentError` at a weight that is not a finite
    number of at least 0; the message gives its element's index.
    """
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) != 3 or spec[2] is None:
        return dataset

    rule = f"; each must be {checks.NON_NEGATIVE}"

    @tf.autograph.experimental.do_not_convert
    def check(index: tf.Tensor, element: Any) -> Any:
        checked_weights = []
        for weights in tf.nest.flatten(element[2], expand_composites=True):
            numbers = tf.cast(weights, tf.float32)
            is_weight = tf.math.is_finite(numbers) & (numbers >= 0)
            message = ["The sample weights of element", index, "are", weights, rule]
            with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_weight), message)]):
                checked_weights.append(tf.identity(weights))
        weights = tf.nest.pack_sequence_as(element[2], checked_weights, expand_composites=True)
        return (*element[:2], weights)

    return dataset.enumerate().map(check)


# === Batches as a dataset ===

# TensorFlow keeps the functions that datasets call until the process ends, and with them all that
# they refer to, such as a model and its graphs. They find their batches here, by number, as long as
# the dataset exists.
_BATCHES: weakref.WeakValueDictionary[int, Sequence[Any]] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()


def _read(number: np.integer[Any], index: np.integer[Any]) -> list[np.ndarray]:
    return _arrays(_BATCHES[int(number)][int(index)])


def _iterate(number: np.integer[Any]) -> Iterator[Any]:
    return map(tuple, map(_arrays, _BATCHES[int(number)]))


def _arrays(batch: Any) -> list[np.ndarray]:
    """Returns the arrays of a batch, which may have weights without labels."""
    return [np.asarray(x) for x in tf.nest.flatten(batch) if x is not None]


def as_dataset(reader: Any, example: Any, batches: Batches) -> tf.data.Dataset:
    """Returns batches as a `tf.data.Dataset`, as a strategy or Keras' TensorFlow trainer need it.

    Args:
        reader: A `PyDataset` of the batches, which are read one after another in each iteration.
        example: A batch with the structure and the dtypes of all batches.
        batches: The batches, with what is known about their shapes.
    """

    def spec(x: Any, for_targets: bool) -> tf.TensorSpec | None:
        if x is None:
            return None
        x = np.asarray(x)
        is_fixed = batches.has_one_shape or (for_targets and not batches.targets_have_length)
        dims = x.shape[1:] if is_fixed else (None,) * (x.ndim - 1)
        # (Several rows of features may come from one row of the input.)
        rows = batches.rows_in_batch and batches.rows_in_batch * x.shape[0]
        return tf.TensorSpec((rows, *dims), x.dtype)

    features, *targets = example
    signature = (
        tf.nest.map_structure(lambda x: spec(x, False), features),
        *tf.nest.map_structure(lambda x: spec(x, True), tuple(targets)),
    )
    specs = [spec for spec in tf.nest.flatten(signature) if spec is not None]

    number = next(_NUMBERS)
    _BATCHES[number] = reader

    @tf.autograph.experimental.do_not_convert
    def batch(*values: tf.Tensor) -> Any:
        values_and_specs = zip(values, specs, strict=True)
        given = iter([tf.ensure_shape(x, spec.shape) for x, spec in values_and_specs])
        return tf.nest.map_structure(lambda spec: spec and next(given), signature)

    @tf.autograph.experimental.do_not_convert
    def read(index: tf.Tensor) -> Any:
        return batch(*tf.numpy_function(_read, [number, index], [spec.dtype for spec in specs]))

    if reader.num_batches is None:
        dataset = tf.data.Dataset.from_generator(
            _iterate, output_signature=tuple(specs), args=(number,)
        ).map(batch)
    else:
        # Setting up a generator takes five times longer.
        dataset = tf.data.Dataset.range(reader.num_batches).map(read)
    # tf.data's autotuning runs in a thread that sleeps for 10 ms, then 20 ms, and so on up to a
    # minute. The end of an iterator mostly fails to wake this thread, but waits for it (TensorFlow
    # 2.21), so that `fit` and `evaluate` would return that much later, in every epoch.
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    dataset.reader = reader  # An iterator refers to its dataset.
    return dataset

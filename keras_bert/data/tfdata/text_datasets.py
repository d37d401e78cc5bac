# SPDX-License-Identifier: Apache-2.0
"""Reads text from a `tf.data.Dataset`, and converts batches to a `tf.data.Dataset`."""

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

# The shuffle buffer size for datasets in batches
SHUFFLE_BATCHES = 1024
# The number of examples to read from a dataset at a time
_ROWS_READ = 1024

# Columns by name: `text`, `text_pair` for pairs, and columns such as `labels`
_Rows = dict[str, Any]


def check_finite(dataset: tf.data.Dataset) -> None:
    """Raises an error if a dataset is infinite."""
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise ValueError("The dataset must be finite. Received: an infinite dataset. Use `take`.")


def num_elements(dataset: tf.data.Dataset) -> int:
    """Returns the number of elements in a dataset. If unknown, the dataset is read."""
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
    """Maps elements with a function of the element and the mean measure in its group.

    A group consists of `size` consecutive elements. A new group also starts after `period`
    elements. For example, with `size=2` and `period=5`, the groups are:

    | element | 0 | 1 | 2 | 3 | 4 | 5 | 6 |
    |---|---|---|---|---|---|---|---|
    | place in its period | 0 | 1 | 2 | 3 | 4 | 0 | 1 |
    | group of its period | 0 | 0 | 1 | 1 | 2 | 0 | 0 |
    | elements in its group | 2 | 2 | 2 | 2 | 1 | 2 | 2 |

    The dataset starts at the place `first` in a period.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"x must be a tf.data.Dataset, because fit reads all batches in an optimizer step "
            f"together with gradient_accumulation_steps. Received: {type(dataset).__name__}"
        )
    period = period or size

    @tf.autograph.experimental.do_not_convert
    def add_measure(*element: Any) -> Any:
        # Keras' trainer also reads such items as `None`.
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
    """Returns whether a text dataset's elements are batches rather than single examples."""
    spec = rows.element_spec
    text, _ = split_pair(spec[0] if isinstance(spec, tuple) else spec)
    return bool(text.shape.rank)


class DatasetRows:
    """The examples of a `tf.data.Dataset` of text, as the source of a `Loader`.

    An epoch reads the dataset once, and shuffles it in a buffer of `SHUFFLE_BATCHES` batches.

    Args:
        dataset: A dataset of `x`, `(x, labels)` or `(x, labels, weights)` without batches, where
            `x` is a string, a pair of strings, or a dict of `text` and `text_pair`.
        read_columns: Validates and converts labels and weights.
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

    def shared_sizes(self, options: BatchOptions) -> None:
        """Returns `None`, because each process reads all examples."""

    def example(self) -> BucketWindow | None:
        """Returns a window with the first example without consuming it, or `None` without examples.

        Its columns belong to the first chunk of examples.
        """
        columns = self.first_columns()
        return None if columns is None else self._window(columns, 0)._replace(rows=np.arange(1))

    def windows(
        self, epoch: int, options: BatchOptions, skipped: int = 0
    ) -> Iterator[BucketWindow]:
        """Yields the windows in an epoch, except for the first `skipped` windows."""
        batch_size, chunks = options.rows_in_batch, self._chunks_of_epoch(epoch, options)
        in_windows = _batches_of_windows(options.window(self.num_rows))
        first = 0
        for number, columns in enumerate(
            _regroup(chunks, (batch_size * count for count in in_windows))
        ):
            if number >= skipped:
                yield self._window(columns, first)
            first += _num_rows(columns)

    def batches(self, epoch: int, options: BatchOptions) -> Iterator[_Rows]:
        """Yields the columns of an epoch's batches, in the order of the examples."""
        chunks = self._chunks_of_epoch(epoch, options)
        return _regroup(chunks, itertools.repeat(options.rows_in_batch))

    def first_columns(self) -> _Rows | None:
        """Returns the columns of the first examples without consuming them, or `None`."""
        chunk = self._chunks.first()
        return None if chunk is None else self._columns(chunk, 0)

    def _chunks_of_epoch(self, epoch: int, options: BatchOptions) -> Iterator[_Rows]:
        chunks = self._read()
        if options.shuffle_seed is None:
            return chunks
        seed = options.shuffle_seed, epoch
        return _shuffle(chunks, SHUFFLE_BATCHES * options.rows_in_batch, seed)

    def read_all(self) -> _Rows:
        """Returns all examples in memory."""
        chunks = list(self._read())
        return _concatenate(chunks) if chunks else {"text": np.zeros(0, object)}

    def _read(self) -> Iterator[_Rows]:
        """Yields chunks of columns. Error messages contain the index in the dataset."""
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


def _slice(rows: _Rows, start: int, stop: int | None) -> _Rows:
    return {name: column[start:stop] for name, column in rows.items()}


def _concatenate(chunks: Sequence[_Rows]) -> _Rows:
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def _batches_of_windows(batches_per_window: int | None) -> Iterator[int]:
    """Yields the number of batches in each window.

    With `None`, there are 16 windows of one batch, 16 windows of two batches, 16 windows of four
    batches and so on, up to 64 batches. After the first 16, a window therefore has at most an
    eighth as many examples as all windows before it.
    """
    for number in itertools.count():
        yield batches_per_window or min(WINDOW_BATCHES, 1 << number // WINDOWS_IN_EPOCH)


def _regroup(chunks: Iterable[_Rows], sizes: Iterator[int]) -> Iterator[_Rows]:
    """Regroups examples into chunks of the given sizes. The last chunk contains the rest.

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
            yield _slice(rows, start, start + size)
            start, size = start + size, next(sizes)
        waiting = [_slice(rows, start, None)]
    if any(map(_num_rows, waiting)):
        yield _concatenate(waiting)


def _shuffle(chunks: Iterable[_Rows], capacity: int, seed: tuple[int, int]) -> Iterator[_Rows]:
    """Shuffles examples in a buffer. Each new example replaces a random example in the buffer."""
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
    """Validates sample weights in a dataset of `(x, y, weights)`.

    During iteration, a negative or non-finite weight raises `tf.errors.InvalidArgumentError`. The
    message contains the element's index. Other datasets are returned unchanged.
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

# TensorFlow keeps a dataset's functions until the process stops. It also keeps all objects that
# they refer to, such as a model and its graphs. Functions therefore look up batches here, by
# number, while the dataset exists.
_BATCHES: weakref.WeakValueDictionary[int, Sequence[Any]] = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()


def _read(number: np.integer[Any], index: np.integer[Any]) -> list[np.ndarray]:
    return _arrays(_BATCHES[int(number)][int(index)])


def _iterate(number: np.integer[Any]) -> Iterator[Any]:
    return map(tuple, map(_arrays, _BATCHES[int(number)]))


def _arrays(batch: Any) -> list[np.ndarray]:
    """Returns a batch's arrays. A batch may have weights but no labels."""
    return [np.asarray(x) for x in tf.nest.flatten(batch) if x is not None]


def as_dataset(reader: Any, example: Any, batches: Batches) -> tf.data.Dataset:
    """Converts batches to a `tf.data.Dataset` for a strategy or Keras' TensorFlow trainer.

    Args:
        reader: A `PyDataset` with the batches. Each iteration reads them in order.
        example: A batch with the structure and dtypes of all batches.
        batches: The batches. Their attributes determine the known dimensions.
    """

    def spec(x: Any, for_targets: bool) -> tf.TensorSpec | None:
        if x is None:
            return None
        x = np.asarray(x)
        is_fixed = batches.has_one_shape or (for_targets and not batches.targets_have_length)
        dims = x.shape[1:] if is_fixed else (None,) * (x.ndim - 1)
        # An example may have multiple rows of features.
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
    # The autotuning of tf.data runs in a thread that sleeps for 10 ms, then 20 ms, and so on, up to
    # a minute. When an iterator ends, TensorFlow 2.21 usually fails to wake this thread, but waits
    # for it. This would delay the return of `fit` and `evaluate` by the same time in every epoch.
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    dataset.reader = reader  # An iterator refers to its dataset.
    return dataset

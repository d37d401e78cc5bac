# SPDX-License-Identifier: Apache-2.0
"""A `tf.data.Dataset` of text as the source of batches, and batches as a `tf.data.Dataset`."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert import checks
from keras_bert.data.loader import (
    SHUFFLE_BATCHES,
    WINDOW_BATCHES,
    WINDOWS_IN_EPOCH,
    BatchOptions,
    Window,
    permutation,
)
from keras_bert.data.texts import TextClassifierPreprocessor, TextExamples, split_pair

# The number of rows that are read from a dataset at a time
_ROWS_READ = 1024

_Columns = list[np.ndarray]


def num_elements(dataset: tf.data.Dataset) -> int:
    """Returns the number of elements of a dataset, which is read if it is unknown."""
    cardinality = int(dataset.cardinality())
    if cardinality == tf.data.INFINITE_CARDINALITY:
        raise ValueError("The dataset is infinite; expected one that ends, such as by `take`.")
    if cardinality == tf.data.UNKNOWN_CARDINALITY:
        return int(dataset.reduce(np.int64(0), lambda count, _: count + 1))
    return cardinality


def mapped_by_group(
    dataset: tf.data.Dataset,
    *,
    measure: Callable[[Any], tf.Tensor],
    function: Callable[[Any, tf.Tensor], Any],
    size: int,
    period: int | None = None,
) -> tf.data.Dataset:
    """Maps elements by a function of an element and of the mean of a measure over its group.

    A group has `size` consecutive elements; after `period` elements, a new one begins in any case.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            f"x is a {type(dataset).__name__}; with gradient_accumulation_steps, fit reads the "
            "batches of an update together: pass the tf.data.Dataset that it was made of."
        )
    period = period or size
    in_last = period % size

    @tf.autograph.experimental.do_not_convert
    def measured(*element: Any) -> Any:
        # As Keras' trainer reads items that are `None`
        element = tf.nest.map_structure(
            lambda value: None if isinstance(value, tf.experimental.Optional) else value, element
        )
        return element, measure(element)

    def is_in_last(index: tf.Tensor, _: Any) -> tf.Tensor:
        return tf.cast(index % period >= period - in_last, "int64")

    def size_of_group(is_in_last: tf.Tensor) -> tf.Tensor:
        return tf.where(is_in_last > 0, tf.constant(in_last, "int64"), size)

    @tf.autograph.experimental.do_not_convert
    def mapped(_: tf.Tensor, group: tf.data.Dataset) -> tf.data.Dataset:
        group = group.map(lambda _, element: element)
        shape, dtype = group.element_spec[1].shape, group.element_spec[1].dtype
        total, count = group.reduce(
            (tf.zeros(shape, dtype), tf.zeros((), dtype)),
            lambda sums, element: (sums[0] + element[1], sums[1] + 1),
        )
        return group.map(lambda element, _: function(element, total / count))

    return (
        dataset.map(measured)
        .enumerate()
        .group_by_window(is_in_last, mapped, window_size_func=size_of_group)
        .prefetch(size)
    )


def is_batched(rows: tf.data.Dataset) -> bool:
    """Returns whether the elements of a dataset of text are batches rather than rows."""
    spec = rows.element_spec
    text, _ = split_pair(spec[0] if isinstance(spec, tuple) else spec)
    return bool(text.shape.rank)


class DatasetRows:
    """The rows of a `tf.data.Dataset` of text, as the source of a `Loader`.

    Args:
        dataset: A dataset of single `x`, `(x, labels)` or `(x, labels, weights)`, where `x` is a
            string, a pair of strings, or a dict of `text` and `text_pair`.
        read_columns: Checks and converts labels and weights.
        num_rows: The number of rows, if it is known though the dataset's is not.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        preprocessor: TextClassifierPreprocessor,
        read_columns: Callable[..., tuple[np.ndarray, ...]],
        num_rows: int | None = None,
    ) -> None:
        self._dataset = dataset
        self._preprocessor = preprocessor
        self._read_columns = read_columns
        cardinality = int(dataset.cardinality())
        self.num_rows = num_rows if cardinality < 0 else cardinality

    def sizes(self, options: BatchOptions) -> None:
        """Returns `None`: each process reads all rows."""

    def windows(self, epoch: int, options: BatchOptions, skipped: int = 0) -> Iterator[Window]:
        """Yields the windows of an epoch."""
        batch_size, in_window = options.rows_in_batch, options.window(self.num_rows)
        dataset, first = self._dataset, 0
        if options.shuffle_seed is None and skipped:
            first, skipped = skipped * batch_size * (in_window or 1), 0
            dataset = dataset.skip(first)
        elements = dataset.batch(_ROWS_READ).as_numpy_iterator()
        chunks: Iterator[_Columns] = map(_columns, elements)
        if options.shuffle_seed is not None:
            capacity = SHUFFLE_BATCHES * batch_size if self.num_rows is None else self.num_rows
            chunks = _shuffle(chunks, capacity, (options.shuffle_seed, epoch))
        structure = _structure(self._dataset.element_spec)
        sizes = (batch_size * batches for batches in _window_sizes(in_window))
        for number, columns in enumerate(_regroup(chunks, sizes)):
            count = len(columns[0])
            if number >= skipped:
                texts, rest = structure(columns)
                others = self._read_columns(*rest, num_rows=count, first_row=first)
                yield Window(
                    TextExamples(texts, self._preprocessor), np.arange(count), others, first
                )
            first += count


def _columns(element: Any) -> _Columns:
    """Returns the arrays of an element of a dataset in one list."""
    return [np.asarray(x) for x in tf.nest.flatten(element)]


def _structure(spec: Any) -> Callable[[_Columns], tuple[dict[str, Any], _Columns]]:
    """Returns a function of the arrays of rows to their texts by name, and to the others."""

    def split(columns: _Columns) -> tuple[dict[str, Any], _Columns]:
        element = tf.nest.pack_sequence_as(spec, columns)
        x, *rest = element if isinstance(element, tuple) else (element,)
        text, text_pair = split_pair(x)
        texts = {"text": text} if text_pair is None else {"text": text, "text_pair": text_pair}
        return texts, rest

    return split


def _window_sizes(in_window: int | None) -> Iterator[int]:
    """Yields the number of batches of each window.

    With `None`, there are 16 windows of a batch, 16 of two batches, 16 of four, and so on; from 64,
    they remain of this size. A window is thus about a sixteenth of the rows before it at most.
    """
    number = 0
    while True:
        yield in_window or min(WINDOW_BATCHES, 1 << number // WINDOWS_IN_EPOCH)
        number += 1


def _regroup(chunks: Iterator[_Columns], sizes: Iterator[int]) -> Iterator[_Columns]:
    """Groups rows anew, into chunks of the given sizes; the last one has the rest."""
    buffer: list[_Columns] = []
    size = next(sizes)
    for chunk in chunks:
        buffer.append(chunk)
        while sum(len(columns[0]) for columns in buffer) >= size:
            rows = _concatenate(buffer)
            yield [column[:size] for column in rows]
            buffer = [[column[size:] for column in rows]]
            size = next(sizes)
    if buffer and len(buffer[0][0]):
        yield _concatenate(buffer)


def _shuffle(
    chunks: Iterator[_Columns], capacity: int, seed: tuple[int, int]
) -> Iterator[_Columns]:
    """Shuffles rows, `capacity` of them in memory; each new one replaces a random one."""
    filling: list[_Columns] = []
    reservoir: _Columns | None = None
    for number, chunk in enumerate(chunks):
        if reservoir is None:
            filling.append(chunk)
            if sum(len(columns[0]) for columns in filling) >= capacity:
                reservoir = _concatenate(filling)
            continue
        positions = permutation(len(reservoir[0]), *seed, number)[: len(chunk[0])]
        yield [column[positions] for column in reservoir]
        for column, values in zip(reservoir, chunk, strict=True):
            column[positions] = values[: len(positions)]
    if reservoir is None and filling:
        reservoir = _concatenate(filling)
    if reservoir is not None:
        order = permutation(len(reservoir[0]), *seed)
        yield [column[order] for column in reservoir]


def _concatenate(chunks: list[_Columns]) -> _Columns:
    return [np.concatenate(columns) for columns in zip(*chunks, strict=True)]


# === Features ===


def with_checked_weights(dataset: tf.data.Dataset) -> tf.data.Dataset:
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
    return [np.asarray(x) for x in tf.nest.flatten(_BATCHES[int(number)][int(index)])]


def _iterate(number: np.integer[Any]) -> Iterator[Any]:
    return iter(_BATCHES[int(number)])


def as_dataset(
    batches: Sequence[Any],
    example: Any,
    *,
    num_batches: int | None,
    rows_in_batch: int | None,
    targets_have_length: bool,
    has_one_shape: bool = False,
) -> tf.data.Dataset:
    """Returns batches as a `tf.data.Dataset`, as a strategy or Keras' TensorFlow trainer need it.

    They are read one after another in each iteration. Structure and dtypes are those of
    `example`, a batch; for the others see `Batches`.
    """

    def spec(x: Any, of_targets: bool) -> tf.TensorSpec:
        x = np.asarray(x)
        is_fixed = has_one_shape or (of_targets and not targets_have_length)
        dims = x.shape[1:] if is_fixed else (None,) * (x.ndim - 1)
        # (Several rows of features may come from one row of the input.)
        rows = None if rows_in_batch is None else rows_in_batch * x.shape[0]
        return tf.TensorSpec((rows, *dims), x.dtype)

    features, *targets = example
    signature = (
        tf.nest.map_structure(lambda x: spec(x, False), features),
        *tf.nest.map_structure(lambda x: spec(x, True), tuple(targets)),
    )
    specs = tf.nest.flatten(signature)

    number = next(_NUMBERS)
    _BATCHES[number] = batches

    @tf.autograph.experimental.do_not_convert
    def batch(index: tf.Tensor) -> Any:
        values = tf.numpy_function(_read, [number, index], [spec.dtype for spec in specs])
        values = [tf.ensure_shape(x, spec.shape) for x, spec in zip(values, specs, strict=True)]
        return tf.nest.pack_sequence_as(signature, values)

    if num_batches is None:
        dataset = tf.data.Dataset.from_generator(
            _iterate, output_signature=signature, args=(number,)
        )
    else:
        # Setting up a generator takes five times longer.
        dataset = tf.data.Dataset.range(num_batches).map(batch)
    # tf.data's autotuning runs in a thread that sleeps for 10 ms, then 20 ms, and so on up to a
    # minute. The end of an iterator mostly fails to wake this thread, but waits for it (TensorFlow
    # 2.21), so that `fit` and `evaluate` would return that much later, in every epoch.
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.with_options(options)
    dataset.batches = batches  # An iterator refers to its dataset.
    return dataset

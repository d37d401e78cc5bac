# SPDX-License-Identifier: Apache-2.0
"""Adapters for text in a `tf.data.Dataset`, `PyDataset`, generator or `DataLoader`."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from keras_bert.data.adapters.base import InputAdapter, Restore, in_order
from keras_bert.data.adapters.texts import TEXT_FORMS, TextAdapter, is_a, is_text, text_columns
from keras_bert.data.arrays import NUMPY, Ragged
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches, batch_of
from keras_bert.data.bucketing import bucket_for, bucket_lengths, permutation
from keras_bert.data.columns import (
    dataset_has_labels,
    given_columns,
    is_dataset,
    label_column,
    one_for_each,
    validate_weights,
)
from keras_bert.data.labels import LabelRules
from keras_bert.data.loader import Columns, Loader, ReadColumns, to_indexed_batch
from keras_bert.data.packing import Sequences
from keras_bert.data.prefetching import Readings, map_ahead


class BatchedText(abc.ABC):
    """Text in batches from the user. The first batch determines whether labels exist."""

    num_batches: int | None = None
    """The number of batches, or `None` if it is unknown or infinite."""
    is_infinite = False
    """Whether the batches never end."""
    can_be_read_ahead = True
    """Whether batches can be read in advance without losing unused batches."""

    def __init__(self, example: Any) -> None:
        self._example = example
        self.has_labels = split_batch(example).labels is not None

    def example(self) -> Any:
        """Returns a batch with some examples, or `None` without batches."""
        return self._example

    @abc.abstractmethod
    def read(self, epoch: int, seed: int | None) -> Iterable[tuple[int, Any]]:
        """Yields `(number, batch)` for each batch in an epoch. Without a seed, in their order."""

    def end_epoch(self) -> None:  # noqa: B027
        """Called after the last batch in an epoch."""

    def keep(self) -> None:  # noqa: B027
        """Makes every later reading yield the same batches."""


class _PyDatasetText(BatchedText):
    """The batches of a `keras.utils.PyDataset`, reshuffled in each epoch as in Keras."""

    def __init__(self, example: Any, dataset: Any) -> None:
        super().__init__(example)
        self._dataset = dataset
        self._is_in_epoch = False
        self.num_batches = dataset.num_batches
        self.is_infinite = self.num_batches is None

    def read(self, epoch: int, seed: int | None) -> Iterator[tuple[int, Any]]:
        order: Iterable[int] = itertools.count()
        if self.num_batches is not None:
            order = range(self.num_batches)
            if seed is not None:
                order = permutation(self.num_batches, seed, epoch).tolist()
        self.end_epoch()
        self._is_in_epoch = True
        self._dataset.on_epoch_begin()
        for index in order:
            yield index, self._dataset[index]

    def end_epoch(self) -> None:
        if self._is_in_epoch:
            self._is_in_epoch = False
            self._dataset.on_epoch_end()


class _StreamedText(BatchedText):
    """Batches from a stream. For example, a generator can only be read once."""

    def __init__(self, example: Any, readings: Readings) -> None:
        super().__init__(example)
        self._readings = readings

    def read(self, epoch: int, seed: int | None) -> Iterator[tuple[int, Any]]:
        return enumerate(self._readings)

    def keep(self) -> None:
        if self.can_be_read_ahead:  # Then it can also be read again.
            return
        kept: list[Any] = []
        unread = iter(self._readings)

        def read() -> Iterator[Any]:
            for index in itertools.count():
                kept.extend(itertools.islice(unread, int(index == len(kept))))
                if index == len(kept):
                    return
                yield kept[index]

        self._readings = Readings(read)


class _GeneratorText(_StreamedText):
    """Batches from a generator."""

    can_be_read_ahead = False


class _DataLoaderText(_StreamedText):
    """Batches from a PyTorch `DataLoader`."""

    def __init__(self, example: Any, readings: Readings, loader: Any) -> None:
        super().__init__(example, readings)
        # A data set without a length may be an iterator that can only be read once.
        self.can_be_read_ahead = hasattr(loader.dataset, "__len__")
        x = split_batch(example).x
        if isinstance(x, list) and not isinstance(x[0], (str, bytes)):
            raise ValueError(
                "A DataLoader collates pairs into two columns that may also be two examples. For "
                'pairs, use dicts: {"text": ..., "text_pair": ...}.'
            )
        try:
            self.num_batches = len(loader)
        except TypeError:  # A data set of unknown size
            self.num_batches = None


class _DatasetText(_StreamedText):
    """A `tf.data.Dataset` with batches of text, with or without labels and weights."""

    def __init__(self, dataset: Any) -> None:
        self.has_labels = dataset_has_labels(dataset)
        self._readings = Readings(dataset.as_numpy_iterator)
        cardinality = int(dataset.cardinality())
        self.num_batches = None if cardinality < 0 else cardinality

    def example(self) -> Any:
        return self._readings.first()


def open_batched_text(x: Any) -> Any:
    """Wraps a generator, `PyDataset` or `DataLoader` in `BatchedText` if it yields text.

    Any other `x` is returned unchanged, except for a generator. Its first batch was already read,
    so a new generator that starts with this batch is returned.
    """
    if isinstance(x, Generator):
        readings = Readings(lambda: x)
        first = readings.first()
        if first is not None and _is_text(first, "generator"):
            return _GeneratorText(first, readings)
        return (batch for batch in readings)
    if is_a(x, "PyDataset", "keras."):
        if x.num_batches != 0 and _is_text(first := x[0], type(x).__name__):
            return _PyDatasetText(first, x)
    elif is_a(x, "DataLoader", "torch.utils.data"):
        readings = Readings(lambda: map(_as_columns, x) if _collates_columns(x) else x)
        first = _example(x) if hasattr(x.dataset, "__len__") else readings.first()
        if first is not None and _is_text(first, "DataLoader"):
            return _DataLoaderText(first, readings, x)
    return x


def _example(loader: Any) -> Any:
    """Returns a batch of one example without starting the workers, or `None` without examples."""
    rows = loader.dataset
    if not len(rows):
        return None
    batch = loader.collate_fn(rows[0] if loader.batch_sampler is None else [rows[0]])
    return _as_columns(batch) if _collates_columns(loader) else batch


def _collates_columns(loader: Any) -> bool:
    """Returns whether a `DataLoader` collates examples to a list of columns, as it does by default.

    A list of columns of texts looks like a list of examples.
    """
    return getattr(loader.collate_fn, "__name__", "") == "default_collate"


def _as_columns(batch: Any) -> Any:
    return tuple(batch) if isinstance(batch, list) and isinstance(batch[0], tuple) else batch


def _is_text(batch: Any, source: str) -> bool:
    x = split_batch(batch).x
    if isinstance(x, (str, bytes)):
        raise ValueError(
            f'A {source} must yield batches: a list of texts or a dict with "text" and '
            '"text_pair", optionally in a tuple with labels and weights. Received: the single text '
            f"{str(x)[:80]!r}"
        )
    return is_text(x)


class BatchParts(NamedTuple):
    x: Any
    labels: Any = None
    weights: Any = None


def split_batch(batch: Any, *, labels_may_be_texts: bool = True) -> BatchParts:
    """Splits a batch into `x`, labels and weights. Missing labels or weights are `None`.

    A list is `[x, labels, weights]`, as in Keras, unless it can only contain examples: if it has
    more than three items or, without `labels_may_be_texts`, if each item is a list of texts.
    """
    is_list = isinstance(batch, list) and 0 < len(batch) <= 3
    is_list_of_parts = is_list and not isinstance(batch[0], (str, bytes))
    if is_list_of_parts and (labels_may_be_texts or not all(map(_is_row_of_texts, batch))):
        batch = tuple(batch)
    if isinstance(batch, tuple) and 0 < len(batch) <= 3:
        return BatchParts(*batch)
    return BatchParts(batch, label_column(batch))


def _is_row_of_texts(item: Any) -> bool:
    is_row = isinstance(item, (list, tuple)) and len(item) > 0
    return is_row and all(isinstance(text, (str, bytes)) for text in item)


class PrebatchedText(Batches):
    """Features of batched text, padded to the longest example or its bucket.

    If multiple processes have different batches, all are padded to the maximum length, because no
    process knows the lengths in other processes.

    Args:
        read_columns: Validates and converts labels and weights. `None` yields example indices
            instead.
        steps: Maximum number of batches to read.
    """

    prefetches = False

    def __init__(
        self,
        text: BatchedText,
        preprocessor: Any,
        options: BatchOptions,
        read_columns: ReadColumns | None,
        steps: int | None = None,
    ) -> None:
        super().__init__()
        self._text = text
        self._preprocessor = preprocessor
        self._read_columns = read_columns
        self._options = options
        self._steps = steps

    @property
    def num_batches(self) -> int | None:
        """The number of batches, or `None` if it is unknown or infinite."""
        count = self._text.num_batches
        if self._text.is_infinite or count is None or self._steps is None:
            return self._steps if self._text.is_infinite else count
        return min(count, self._steps)

    def example(self) -> Any:
        """Returns a batch with some examples to show its structure, or `None` without batches."""
        example = self._text.example()
        return None if example is None else self._converted(0, example)

    def end_epoch(self) -> None:
        """Notifies the source that an epoch has ended."""
        self._text.end_epoch()

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        num_rows = 0

        def converted(numbered: tuple[int, Any]) -> Any:
            nonlocal num_rows
            batch = self._converted(*numbered, num_rows)
            num_rows += len(batch[0]["token_ids"])
            return batch

        batches = itertools.islice(
            self._text.read(number, self._options.shuffle_seed), first, self._steps
        )
        # Reading a batch may call the model in training, so batches are read in the caller's
        # thread.
        yield from map_ahead(converted, batches, ahead=int(self._text.can_be_read_ahead))

    def _converted(self, number: int, batch: Any, first_row: int = 0) -> Any:
        """Converts a batch to features, labels and weights, or to features and example indices."""
        with naming_batch(number):
            texts, targets = _split_columns(batch, self._read_columns)
            features = self._features([list(column) for column in texts.values()])
        if self._read_columns is None:
            return features, np.arange(first_row, first_row + len(texts["text"]))
        return batch_of(features, **targets)

    def _features(self, texts: list[list[Any]]) -> dict[str, np.ndarray]:
        features: dict[str, np.ndarray]
        if not self._options.compiles:
            features = self._preprocessor(*texts)
            return features
        return _pad_to_bucket(self._preprocessor.pack(*texts), self._preprocessor, self._options)


def _split_columns(batch: Any, read_columns: ReadColumns | None) -> tuple[Columns, Columns]:
    """Returns a batch's columns of texts, and its labels and weights, empty without a function."""
    parts = split_batch(batch)
    if read_columns is None:
        drop_labels(tuple(part for part in parts if part is not None))
    texts = text_columns(parts.x)
    if read_columns is None:
        return texts, {}
    return texts, read_columns(*parts[1:], num_rows=len(texts["text"]), first_row=0)


def _pad_to_bucket(
    sequences: Sequences, preprocessor: Any, options: BatchOptions
) -> dict[str, np.ndarray]:
    """Pads sequences to the longest one, or if each shape is compiled, to its bucket."""
    length = sequences.longest(NUMPY).max(initial=1)
    if options.compiles:
        longest = preprocessor.sequence_length
        is_shared = options.shard[1] > 1
        buckets = (longest,) if is_shared else bucket_lengths(longest, coarse=True)
        length = bucket_for(length, buckets)
    features: dict[str, np.ndarray] = sequences.pad(
        NUMPY, length, preprocessor.tokenizer.pad_token_id
    )
    return features


@contextlib.contextmanager
def naming_batch(number: int) -> Iterator[None]:
    """Adds the number of a batch to errors in it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"Batch {number} is invalid. {error}") from error


class WindowBatches(Batches):
    """The windows of texts from a stream, each with the label and the weight of its text.

    All batches except the last have as many windows as the first batch has texts, because a text
    may have hundreds of windows.

    Args:
        read: Yields the columns of an epoch's batches of texts: `text`, for pairs `text_pair`, and
            optionally `labels` and `weights`. The argument is the epoch.
        first_columns: Returns the columns of the first texts without losing any, or `None`.
        preprocessor: The preprocessor, which splits long texts.
        options: The batch options.
        end_epoch: Notifies the source that an epoch has ended.
    """

    # Reading a batch may call the model in training.
    prefetches = False
    num_batches = None

    def __init__(
        self,
        read: Callable[[int], Iterator[Columns]],
        first_columns: Callable[[], Columns | None],
        preprocessor: Any,
        options: BatchOptions,
        end_epoch: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        if options.shard[1] > 1:
            raise ValueError(
                f"x must be texts in memory to train with long_texts={preprocessor.long_texts!r} "
                f"in {options.shard[1]} processes, because each process would have a different "
                "number of windows. Received: a dataset or batches of text."
            )
        self._read = read
        self._first_columns = first_columns
        self._preprocessor = preprocessor
        self._options = options
        self._end_epoch = end_epoch

    def end_epoch(self) -> None:
        """Notifies the source that an epoch has ended."""
        self._end_epoch()

    def example(self) -> Any:
        """Returns a batch with the first text's first window, or `None` without texts."""
        columns = self._first_columns()
        if columns is None:
            return None
        return self._batch(*self._windows({name: x[:1] for name, x in columns.items()}), 0, 1)

    def first_targets(self) -> tuple[Any, Any]:
        columns = self._first_columns() or {}
        return columns.get("labels"), columns.get("weights")

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        yield from itertools.islice(self._regrouped(self._read(number)), first, None)

    def _windows(self, columns: Columns) -> tuple[Sequences, Columns]:
        """Returns the windows of texts, with their labels and weights."""
        texts = [list(columns[name]) for name in ("text", "text_pair") if name in columns]
        sequences, counts = self._preprocessor.pack_windows(*texts)
        others = {name: x for name, x in columns.items() if name not in ("text", "text_pair")}
        return sequences, {name: np.repeat(x, counts, axis=0) for name, x in others.items()}

    def _regrouped(self, batches_of_texts: Iterator[Columns]) -> Iterator[Any]:
        """Yields batches of equal size, and at the end the remaining windows."""
        size = 0
        waiting: tuple[Sequences, Columns] | None = None
        for texts in batches_of_texts:
            size = size or len(texts["text"])
            part = self._windows(texts)
            waiting = part if waiting is None else _join(waiting, part)
            start, count = 0, len(waiting[0].lengths)
            while start + size <= count:
                yield self._batch(*waiting, start, start + size)
                start += size
            waiting = _slice(*waiting, start, count) if start < count else None
        if waiting is not None:
            yield self._batch(*waiting, 0, len(waiting[0].lengths))

    def _batch(self, sequences: Sequences, columns: Columns, start: int, end: int) -> Any:
        sequences, columns = _slice(sequences, columns, start, end)
        return batch_of(_pad_to_bucket(sequences, self._preprocessor, self._options), **columns)


def _slice(
    sequences: Sequences, columns: Columns, start: int, end: int
) -> tuple[Sequences, Columns]:
    """Returns some of the sequences, with their labels and weights."""
    index = np.arange(start, end)
    return sequences.take(NUMPY, index), {name: x[start:end] for name, x in columns.items()}


def _join(
    first: tuple[Sequences, Columns], second: tuple[Sequences, Columns]
) -> tuple[Sequences, Columns]:
    """Joins sequences, and their labels and weights."""
    features = {
        name: Ragged(*map(np.concatenate, zip(rows, second[0].features[name], strict=True)))
        for name, rows in first[0].features.items()
    }
    columns = {name: np.concatenate([x, second[1][name]]) for name, x in first[1].items()}
    return Sequences(features), columns


def _same_columns(batches: Iterable[Columns]) -> Iterator[Columns]:
    """Checks that batches have the same columns, because they will be joined."""
    first: Columns | None = None
    for number, columns in enumerate(batches):
        first = columns if first is None else first
        if {*columns} != {*first}:
            raise ValueError(
                f"Batch {number} must have the columns of batch 0, {', '.join(first)}. Received: "
                f"{', '.join(columns)}"
            )
        yield columns


def drop_labels(row: Any) -> Any:
    """Returns the `x` in a dataset element. Two strings are ambiguous and raise an error."""
    if not isinstance(row, tuple):
        return row
    is_pair = isinstance(row[0], (Mapping, tuple))
    if len(row) == 2 and not is_pair and all(map(is_text, row)):
        raise ValueError(
            "An element must not be two strings: they may be a pair of texts, or a text and its "
            'label. For pairs, use dicts: {"text": ..., "text_pair": ...}.'
        )
    return row[0]


@dataclasses.dataclass(frozen=True, eq=False)
class TextDatasetAdapter(InputAdapter):
    """A `tf.data.Dataset` of text, batched or not, with or without labels.

    Its elements are `x`, `(x, labels)` or `(x, labels, weights)`. Without `rules`, only `x` is
    read.
    """

    forms = TEXT_FORMS
    in_memory = False
    outputs_are_joined = True

    dataset: Any
    rules: LabelRules | None = None

    @classmethod
    def matches(cls, x: object) -> bool:
        return is_text(x) and is_dataset(x)

    @classmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        if y is not None or sample_weight is not None:
            raise ValueError(
                "y and sample_weight must be None: a dataset of text contains its labels and "
                "weights, as (text, label, weight)."
            )
        return cls(x, None if rules is None else dataclasses.replace(rules, are_parts=True))

    @property
    def has_labels(self) -> bool:
        """Whether the elements have labels, or do not need any."""
        needs_none = self.rules is not None and self.rules.allows_unlabeled
        return needs_none or self._elements_have_labels()

    def _elements_have_labels(self) -> bool:
        return dataset_has_labels(self.dataset)

    def batched_text(self) -> BatchedText:
        """Returns the batches as `BatchedText`.

        Raises:
            ValueError: If the dataset has no batches.
        """
        from keras_bert.data.tfdata import text_datasets

        if not text_datasets.is_batched(self.dataset):
            raise ValueError(
                "A tf.data.Dataset of tuples of texts must have batches. Received: a dataset of "
                "single elements. Call its batch method, for example `dataset.batch(32)`."
            )
        return _DatasetText(self.dataset)

    def _columns(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Callable[[int], Iterator[Columns]], Callable[[], Columns | None]]:
        """Returns the arguments `read` and `first_columns` of `WindowBatches`."""
        from keras_bert.data.tfdata import text_datasets

        if not text_datasets.is_batched(self.dataset):
            rows = text_datasets.DatasetRows(self.dataset, preprocessor, self._read_columns)
            return functools.partial(rows.batches, options=options), rows.first_columns
        return self._columns_of_batches(self.batched_text(), options)

    def _columns_of_batches(
        self, text: BatchedText, options: BatchOptions
    ) -> tuple[Callable[[int], Iterator[Columns]], Callable[[], Columns | None]]:
        read_columns = None if self.rules is None else self._read_columns

        def columns(numbered: tuple[int, Any]) -> Columns:
            with naming_batch(numbered[0]):
                texts, targets = _split_columns(numbered[1], read_columns)
            return {**texts, **targets}

        def first_columns() -> Columns | None:
            example = text.example()
            return None if example is None else columns((0, example))

        def read(epoch: int) -> Iterator[Columns]:
            return _same_columns(map(columns, text.read(epoch, options.shuffle_seed)))

        return read, first_columns

    def to_memory(
        self, preprocessor: Any, options: BatchOptions, steps: int | None = None
    ) -> TextAdapter:
        """Reads all texts, or the texts in `steps` batches, with their labels and weights."""
        self.check_is_finite(steps)
        read, _ = self._columns(preprocessor, options)
        batches = list(itertools.islice(read(0), steps))
        columns = {
            name: np.concatenate([batch[name] for batch in batches])
            for name in next(iter(batches), ())
        }
        labels, weights = columns.pop("labels", None), columns.pop("weights", None)
        return TextAdapter(columns or {"text": np.zeros(0, object)}, labels, weights)

    def check_is_finite(self, steps: int | None = None) -> None:
        """Raises an error if the number of batches is infinite, unless there are `steps`."""
        from keras_bert.data.tfdata import text_datasets

        if steps is None:
            text_datasets.check_finite(self.dataset)

    def count_batches(self, batch_size: int) -> int:
        from keras_bert.data.tfdata import text_datasets

        count = text_datasets.num_elements(self.dataset)
        return count if text_datasets.is_batched(self.dataset) else -(-count // batch_size)

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        from keras_bert.data.tfdata import text_datasets

        if preprocessor.splits_texts:
            return WindowBatches(*self._columns(preprocessor, options), preprocessor, options)
        if text_datasets.is_batched(self.dataset):
            # Each batch is padded to its longest example on all backends.
            options = dataclasses.replace(options, compiles=False)
            return PrebatchedText(self.batched_text(), preprocessor, options, self._read_columns)
        source = text_datasets.DatasetRows(self.dataset, preprocessor, self._read_columns)
        return Loader(source, preprocessor, options)

    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        from keras_bert.data.tfdata import text_datasets

        rows = self.dataset
        text_datasets.check_finite(rows)
        if text_datasets.is_batched(rows):
            rows = rows.unbatch()
        # `map` would pass the items in a tuple as separate arguments, and `enumerate` prevents
        # this. Each text is in a tuple, because a bare pair would be read as a text with its label.
        rows = rows.enumerate().map(lambda _, row: (drop_labels(row),))
        source = text_datasets.DatasetRows(rows, preprocessor, lambda **_: {})
        if preprocessor.splits_texts:
            # The number of windows is only known after all texts are tokenized.
            return TextAdapter(source.read_all()).prediction_batches(preprocessor, options)
        return Loader(source, preprocessor, options, to_indexed_batch), in_order

    def _read_columns(
        self, labels: Any = None, weights: Any = None, *, num_rows: int, first_row: int
    ) -> Columns:
        """Validates and converts the labels and weights of some examples."""
        if self.rules is None:
            return {}
        rules, texts = self.rules, range(num_rows)
        if labels is not None:
            labels = one_for_each(rules.read(labels, first_row), texts, to_keras_batch=True)
        elif rules.allows_unlabeled:
            labels = rules.no_labels(num_rows)
        if weights is not None:
            weights = one_for_each(validate_weights(weights, first_row), texts)
        return given_columns(labels=labels, weights=weights)


@dataclasses.dataclass(frozen=True, eq=False)
class TextBatchesAdapter(TextDatasetAdapter):
    """Text batches from a `PyDataset`, a generator or a `DataLoader`. They are not regrouped.

    `steps` is the maximum number of batches in prediction.
    """

    forms = (
        "batches of these from a keras.utils.PyDataset, a generator or a PyTorch DataLoader, with "
        "labels and weights in a tuple"
    )

    dataset: BatchedText
    steps: int | None = None

    @classmethod
    def matches(cls, x: object) -> bool:
        return isinstance(x, BatchedText)

    def _elements_have_labels(self) -> bool:
        return self.dataset.has_labels

    def batched_text(self) -> BatchedText:
        """Returns the batches."""
        return self.dataset

    def _columns(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Callable[[int], Iterator[Columns]], Callable[[], Columns | None]]:
        return self._columns_of_batches(self.dataset, options)

    def check_is_finite(self, steps: int | None = None) -> None:
        """Raises an error if the number of batches is infinite, unless there are `steps`."""
        if self.dataset.is_infinite and steps is None:
            raise ValueError("Pass steps, the number of batches: the PyDataset is infinite.")

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        if preprocessor.splits_texts:
            columns = self._columns(preprocessor, options)
            return WindowBatches(*columns, preprocessor, options, self.dataset.end_epoch)
        return PrebatchedText(self.dataset, preprocessor, options, self._read_columns)

    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        if preprocessor.splits_texts:
            rows = self.to_memory(preprocessor, options, self.steps)
            return rows.prediction_batches(preprocessor, options)
        self.check_is_finite(self.steps)
        return PrebatchedText(self.dataset, preprocessor, options, None, self.steps), in_order

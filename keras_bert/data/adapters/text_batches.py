# SPDX-License-Identifier: Apache-2.0
"""Text in a `tf.data.Dataset`, and batches of a `PyDataset`, a generator or a `DataLoader`."""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from keras_bert.data.adapters.base import InputAdapter, Restore, in_order
from keras_bert.data.adapters.texts import TEXT_FORMS, is_text, text_columns
from keras_bert.data.arrays import NUMPY
from keras_bert.data.columns import checked_weights, dataset_has_labels, is_dataset, label_column
from keras_bert.data.labels import LabelRules
from keras_bert.data.loader import (
    Batches,
    BatchOptions,
    Loader,
    bucket_for,
    bucket_lengths,
    permutation,
    with_index,
)

# Converts labels and weights to columns; it also takes `num_rows`, and `first_row`, the index of
# the first.
ReadColumns = Callable[..., tuple[np.ndarray, ...]]
# Keras reads a batch or two to build the model, and then starts over. So the first batches of a
# generator are stored, until more than these have been read.
_NUM_FIRST_BATCHES = 4


class BatchedText(abc.ABC):
    """Batches of text that the user makes; the first one tells whether they have labels."""

    num_batches: int | None = None
    """The number of batches; `None` if it is unknown, or infinite."""
    is_infinite = False
    """Whether there is no last batch."""
    can_be_read_ahead = True
    """Whether reading more batches than are used loses none."""

    def __init__(self, first: Any) -> None:
        self.has_labels = len(_parts(first)) > 1

    @abc.abstractmethod
    def read(self, epoch: int, first: int, seed: int | None) -> Iterator[Any]:
        """Yields the batches of an epoch after `first` ones; without a seed, in their own order."""


class _PyDatasetText(BatchedText):
    """The batches of a `keras.utils.PyDataset`, in another order in each epoch, as in Keras."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset[0])
        self._dataset = dataset
        self.num_batches = dataset.num_batches
        self.is_infinite = self.num_batches is None

    def read(self, epoch: int, first: int, seed: int | None) -> Iterator[Any]:
        order: Iterable[int] = itertools.count()
        if self.num_batches is not None:
            order = range(self.num_batches)
            if seed is not None:
                order = permutation(self.num_batches, seed, epoch).tolist()
        self._dataset.on_epoch_begin()
        for index in itertools.islice(order, first, None):
            yield self._dataset[index]
        self._dataset.on_epoch_end()


class _GeneratorText(BatchedText):
    """The batches of a generator, which can be read once."""

    can_be_read_ahead = False

    def __init__(self, first: Any, generator: Generator[Any, None, None]) -> None:
        super().__init__(first)
        self._generator = generator
        self._first_batches = [first]
        self._has_ended = False

    def read(self, epoch: int, first: int, seed: int | None) -> Iterator[Any]:
        if self._has_ended:
            raise ValueError(
                "The generator has ended. For several epochs, pass one with enough batches, and "
                "steps_per_epoch; or a keras.utils.PyDataset."
            )
        yield from itertools.islice(
            itertools.chain(list(self._first_batches), self._read_generator()), first, None
        )

    def _read_generator(self) -> Iterator[Any]:
        for batch in self._generator:
            is_building = 0 < len(self._first_batches) < _NUM_FIRST_BATCHES
            self._first_batches = [*self._first_batches, batch] if is_building else []
            yield batch
        self._has_ended = True


class _DataLoaderText(BatchedText):
    """The batches of a `DataLoader` of PyTorch."""

    def __init__(self, first: Any, loader: Any) -> None:
        super().__init__(first)
        self._loader = loader
        try:
            self.num_batches = len(loader)
        except TypeError:  # a dataset of unknown size
            self.num_batches = None

    def read(self, epoch: int, first: int, seed: int | None) -> Iterator[Any]:
        for batch in itertools.islice(self._loader, first, None):
            x = _parts(batch)[0]
            if isinstance(x, list) and not isinstance(x[0], (str, bytes)):
                raise ValueError(
                    "A DataLoader makes two columns of pairs, which may be rows too. For pairs, "
                    'use dicts: {"text": ..., "text_pair": ...}.'
                )
            yield batch


class _DatasetText(BatchedText):
    """The batches of a `tf.data.Dataset` of batches of text, with or without labels and weights."""

    def __init__(self, dataset: Any) -> None:
        self.has_labels = dataset_has_labels(dataset)
        self._dataset = dataset
        cardinality = int(dataset.cardinality())
        self.num_batches = None if cardinality < 0 else cardinality

    def read(self, epoch: int, first: int, seed: int | None) -> Iterator[Any]:
        return iter(self._dataset.skip(first).as_numpy_iterator())


def opened(x: Any) -> Any:
    """Returns `BatchedText` if a generator, `PyDataset` or `DataLoader` has batches of text.

    Otherwise it returns `x`; for a generator, one that also yields the batch that was read.
    """
    if isinstance(x, Generator):
        for first in x:
            if _is_text(first, "generator"):
                return _GeneratorText(first, x)
            return (batch for batch in itertools.chain([first], x))
    elif _is_a(x, "PyDataset", "keras."):
        if x.num_batches != 0 and _is_text(x[0], type(x).__name__):
            return _PyDatasetText(x)
    elif _is_a(x, "DataLoader", "torch.utils.data"):
        first = _example(x)
        if _is_text(first, "DataLoader"):
            return _DataLoaderText(first, x)
    return x


def _is_a(x: Any, name: str, module: str) -> bool:
    """Returns whether an object has a class of a library, without importing the library."""
    return any(cls.__name__ == name and cls.__module__.startswith(module) for cls in type(x).mro())


def _example(loader: Any) -> Any:
    """Returns a batch of a single row, where that is possible without starting the loader."""
    dataset = loader.dataset
    if not hasattr(dataset, "__len__"):
        return next(iter(loader), None)
    if not len(dataset):
        return None
    return loader.collate_fn(dataset[0] if loader.batch_sampler is None else [dataset[0]])


def _is_text(batch: Any, source: str) -> bool:
    x = _parts(batch)[0]
    if isinstance(x, (str, bytes)):
        raise ValueError(
            f"A {source} has single texts, such as {str(x)[:80]!r}; expected batches: a list of "
            'texts or a dict of "text" and "text_pair", alone or in a tuple with labels and '
            "weights."
        )
    return is_text(x)


def _parts(batch: Any) -> tuple[Any, ...]:
    """Returns the `x` of a batch, and its labels and weights if there are any."""
    if isinstance(batch, list) and batch and not isinstance(batch[0], (str, bytes)):
        batch = tuple(batch)  # as Keras reads it
    if isinstance(batch, tuple) and batch:
        return batch
    labels = label_column(batch)
    return (batch,) if labels is None else (batch, labels)


class GivenBatches(Batches):
    """Features of batches of text; each is padded to its longest row, or to a bucket that holds it.

    If several processes have batches of their own, all of them are padded to the maximum length,
    since no process knows the rows of the others.

    Args:
        read_columns: Checks and converts labels and weights; `None` yields the indices of rows
            instead.
        steps: The number of batches to read at most.
    """

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
        self.prefetches = text.can_be_read_ahead

    @property
    def num_batches(self) -> int | None:
        """The number of batches; `None` if it is unknown, or infinite."""
        count = self._text.num_batches
        if self._text.is_infinite or count is None or self._steps is None:
            return self._steps if self._text.is_infinite else count
        return min(count, self._steps)

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        first_row = 0
        batches = self._text.read(number, first, self._options.shuffle_seed)
        for batch in itertools.islice(batches, self._steps):
            x, *rest = items = _parts(batch)
            x = without_labels(items) if self._read_columns is None else x
            texts = text_columns(x, first_row)
            num_rows = len(texts["text"])
            if self._read_columns is None:
                columns: tuple[np.ndarray, ...] = (np.arange(first_row, first_row + num_rows),)
            else:
                columns = self._read_columns(*rest, num_rows=num_rows, first_row=first_row)
            first_row += num_rows
            yield (self._features([list(column) for column in texts.values()]), *columns)

    def _features(self, texts: list[list[Any]]) -> dict[str, np.ndarray]:
        features: dict[str, np.ndarray]
        if not self._options.compiles:
            features = self._preprocessor(*texts)
            return features
        sequences = self._preprocessor.pack(*texts)
        length = self._preprocessor.sequence_length
        is_shared = self._options.shard[1] > 1
        buckets = (length,) if is_shared else bucket_lengths(length, coarse=True)
        length = bucket_for(sequences.longest(NUMPY).max(initial=1), buckets)
        features = sequences.padded(NUMPY, length, self._preprocessor.tokenizer.pad_token_id)
        return features


def without_labels(row: Any) -> Any:
    """Returns the `x` of an element of a dataset; two strings are ambiguous, and an error."""
    if not isinstance(row, tuple):
        return row
    is_pair = isinstance(row[0], (Mapping, tuple))
    if len(row) == 2 and not is_pair and all(map(is_text, row)):
        raise ValueError(
            "An element of two strings is either a pair of texts or a text and its label. "
            'For pairs, use dicts: {"text": ..., "text_pair": ...}.'
        )
    return row[0]


@dataclasses.dataclass(frozen=True, eq=False)
class TextDatasetAdapter(InputAdapter):
    """A `tf.data.Dataset` of text, with or without labels, of single rows or batches.

    Its elements are `x`, `(x, labels)` or `(x, labels, weights)`; without `rules`,
    only `x` is read.
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
                "`y` and sample_weight must be None: a dataset of text contains its labels and "
                "weights, as (text, label, weight)."
            )
        return cls(x, rules)

    @property
    def has_labels(self) -> bool:
        """Whether its elements have labels, or need none."""
        needs_none = self.rules is not None and self.rules.allows_unlabeled
        return needs_none or self._elements_have_labels()

    def _elements_have_labels(self) -> bool:
        return dataset_has_labels(self.dataset)

    def num_batches(self, preprocessor: Any, batch_size: int) -> int:
        from keras_bert.data.tfdata import text_datasets

        count = text_datasets.num_elements(self.dataset)
        return count if text_datasets.is_batched(self.dataset) else -(-count // batch_size)

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        from keras_bert.data.tfdata import text_datasets

        if text_datasets.is_batched(self.dataset):
            text = _DatasetText(self.dataset)
            # Each is padded to its longest row on all backends.
            options = dataclasses.replace(options, compiles=False)
            return GivenBatches(text, preprocessor, options, self._read_columns)
        source = text_datasets.DatasetRows(self.dataset, preprocessor, self._read_columns)
        return Loader(source, preprocessor, options)

    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        from keras_bert.data.tfdata import text_datasets

        rows = self.dataset
        if text_datasets.is_batched(rows):
            rows = rows.unbatch()
        # Keras warns at the end of predictions if it does not know their number.
        num_rows = text_datasets.num_elements(rows)
        # (`enumerate`, since `map` would pass the items of a tuple as arguments. The tuple, since a
        # pair of texts alone would be read as a text with its label.)
        rows = rows.enumerate().map(lambda _, row: (without_labels(row),))
        source = text_datasets.DatasetRows(rows, preprocessor, lambda **_: (), num_rows)
        return Loader(source, preprocessor, options, with_index), in_order

    def _read_columns(
        self, labels: Any = None, weights: Any = None, *, num_rows: int, first_row: int
    ) -> tuple[np.ndarray[Any, Any], ...]:
        """Checks and converts the labels and weights of some rows."""
        rules = self.rules or LabelRules()
        columns = []
        if labels is not None:
            columns.append(rules.read(labels, first_row))
        elif rules.allows_unlabeled:
            columns.append(rules.no_labels(num_rows))
        if weights is not None:
            columns.append(checked_weights(weights, first_row))
        for column in columns:
            if len(column) != num_rows:
                raise ValueError(
                    f"The batch that begins with row {first_row} has {num_rows} texts, and labels "
                    f"or weights of shape {column.shape}; expected one for each text."
                )
        return tuple(columns)


@dataclasses.dataclass(frozen=True, eq=False)
class TextBatchesAdapter(TextDatasetAdapter):
    """Batches of text of a `PyDataset`, a generator or a `DataLoader`, which are left as they are.

    At most `steps` of them are predicted.
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

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        return GivenBatches(self.dataset, preprocessor, options, self._read_columns)

    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        if self.dataset.is_infinite and self.steps is None:
            raise ValueError("The PyDataset is infinite; expected `steps`, a number of batches.")
        return GivenBatches(self.dataset, preprocessor, options, None, self.steps), in_order

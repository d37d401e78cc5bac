# SPDX-License-Identifier: Apache-2.0
"""The text input of `fit`, `evaluate` and `predict`: reading, checking and batching.

`InputAdapter` is the interface between a `Task` and its input. The subclasses for texts and pairs
of texts are in this file; tasks with another kind of input (words, questions, choices) have a
subclass in their own file.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import numpy as np

from keras_bert.data.given_batches import BatchedText, GivenBatches
from keras_bert.data.input_forms import (
    TEXT_FORMS,
    checked_weights,
    dataset_has_labels,
    is_dataset,
    is_text,
    one_for_each,
    split_index,
    text_columns,
    without_labels,
)
from keras_bert.data.loader import Batches, BatchOptions, Loader, RowsInMemory, with_index
from keras_bert.data.texts import TextExamples
from keras_bert.tasks.class_labels import LabelRules

# The features of a batch, the indices of its rows, and the outputs of the model
BatchOutputs = tuple[Any, Any, Any]
# Restores the order and nesting of the input from the outputs of batches; the second argument is
# the output shape of the model, for an input without rows
Restore = Callable[[Iterable[BatchOutputs], Any], Any]


class InputAdapter(abc.ABC):
    """Base class of the kinds of text input: the interface between a `Task` and its data."""

    # The accepted forms, for error messages
    forms: ClassVar[str]
    # Whether the rows are in memory, so that `validation_split` is possible
    in_memory: ClassVar[bool] = True
    # Whether the labels are part of `x`
    has_own_labels: ClassVar[bool] = False
    # Whether the outputs of all rows have the same shape, so that Keras can concatenate them
    outputs_are_joined: ClassVar[bool] = False

    @property
    def has_labels(self) -> bool:
        """Whether there are labels."""
        return getattr(self, "labels", None) is not None or self.has_own_labels

    @classmethod
    @abc.abstractmethod
    def matches(cls, x: object) -> bool:
        """Returns whether `x` is of this kind, and not features."""

    @classmethod
    @abc.abstractmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        """Reads and checks input.

        Args:
            x: Input that `matches`.
            y: Labels, one for each row, or in the nesting of the input; `None` without labels.
            sample_weight: Sample weights, likewise.
            rules: The rules for labels; `None` to read only `x`.

        Raises:
            ValueError: If a row, a label or a weight is malformed; the message names the row.
        """

    def __len__(self) -> int:
        """Returns the number of rows in memory."""
        raise NotImplementedError

    def __getitem__(self, rows: slice) -> Self:
        """Returns some of the rows in memory."""
        raise NotImplementedError

    def split(self, share: float) -> tuple[Self, Self]:
        """Splits off the last rows for validation, as Keras does.

        Args:
            share: The fraction of the rows to split off.

        Returns:
            A tuple of the other rows and of the last rows.

        Raises:
            ValueError: If there are no rows in one of them.
        """
        start = split_index(len(self), share)
        return self[:start], self[start:]

    def num_batches(self, preprocessor: Any, batch_size: int) -> int:
        """Returns the number of batches of an epoch, with or without labels.

        Args:
            preprocessor: The preprocessor that converts rows to features.
            batch_size: Number of rows in a batch.

        Raises:
            ValueError: If it is infinite.
        """
        return -(-len(self) // batch_size)

    @abc.abstractmethod
    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        """Returns the batches of training or evaluation.

        Args:
            preprocessor: The preprocessor that converts rows to features.
            options: The options of batching.

        Returns:
            Batches of `(features, labels, weights)`, without labels or weights if there are none.
        """

    @abc.abstractmethod
    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        """Returns the batches of prediction.

        Args:
            preprocessor: The preprocessor that converts rows to features.
            options: The options of batching.

        Returns:
            A tuple of batches of `(features, index)`, where `index` holds the indices of the rows
            in a batch, and of a function that restores the order of the input. Its arguments are
            the features, index and outputs of each batch, as NumPy arrays, and the output shape of
            the model.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class TextAdapter(InputAdapter):
    """Texts or pairs of texts in memory.

    Args:
        columns: `text` and, for pairs, `text_pair`: strings `(rows,)`.
        labels: The targets of the loss, `(rows, ...)`.
        weights: The sample weights, float32 `(rows,)`.
    """

    forms = TEXT_FORMS
    outputs_are_joined = True

    columns: dict[str, Any]
    labels: np.ndarray[Any, Any] | None = None
    weights: np.ndarray[Any, Any] | None = None

    @classmethod
    def matches(cls, x: object) -> bool:
        return is_text(x) and not is_dataset(x)

    @classmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        columns = text_columns(x)
        texts = columns["text"]
        labels = None if y is None else (rules or LabelRules()).read(y)
        if labels is None and rules is not None and rules.allows_unlabeled:
            labels = rules.no_labels(len(texts))
        weights = None if sample_weight is None else checked_weights(sample_weight)
        if labels is not None:
            one_for_each(labels, texts, with_columns=True)
        if weights is not None:
            one_for_each(weights, texts)
        return cls(columns, labels, weights)

    def __len__(self) -> int:
        return len(self.columns["text"])

    def __getitem__(self, rows: slice) -> Self:
        return dataclasses.replace(
            self,
            columns={name: column[rows] for name, column in self.columns.items()},
            labels=sliced(self.labels, rows),
            weights=sliced(self.weights, rows),
        )

    @property
    def targets(self) -> list[np.ndarray[Any, Any]]:
        """The labels and the weights, if there are any."""
        return [values for values in (self.labels, self.weights) if values is not None]

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        source = RowsInMemory(TextExamples(self.columns, preprocessor), self.targets)
        return Loader(source, preprocessor, options)

    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        source = RowsInMemory(TextExamples(self.columns, preprocessor))
        return Loader(source, preprocessor, options, with_index), _in_order


@dataclasses.dataclass(frozen=True, eq=False)
class TextDatasetAdapter(InputAdapter):
    """A `tf.data.Dataset` of text, with or without labels, of single rows or batches.

    Args:
        dataset: A dataset of `x`, `(x, labels)` or `(x, labels, weights)`.
        rules: The rules for labels; `None` to read only `x`.
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
        return self.may_lack_labels or dataset_has_labels(self.dataset)

    @property
    def may_lack_labels(self) -> bool:
        """Whether its elements may have no labels."""
        return self.rules is not None and self.rules.allows_unlabeled

    def num_batches(self, preprocessor: Any, batch_size: int) -> int:
        from keras_bert.data.tfdata import text_datasets

        count = text_datasets.num_elements(self.dataset)
        return count if text_datasets.is_batched(self.dataset) else -(-count // batch_size)

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        from keras_bert.data.tfdata import text_datasets

        if text_datasets.is_batched(self.dataset):
            batched = text_datasets.BatchedDataset(self.dataset)
            # Each is padded to its longest row on all backends.
            options = dataclasses.replace(options, compiles=False)
            return GivenBatches(batched, preprocessor, options, self._read_columns)
        source = text_datasets.DatasetRows(self.dataset, preprocessor, self._read_columns)
        return Loader(source, preprocessor, options)

    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        from keras_bert.data.tfdata import text_datasets

        rows = self.dataset
        if text_datasets.is_batched(rows):
            rows = rows.unbatch()
        # Keras warns at the end of predictions whose number it was not told.
        num_rows = text_datasets.num_elements(rows)
        # (`map` would pass the parts of a tuple as arguments. A pair of texts that is an element by
        # itself would be read as a text with its label.)
        rows = rows.enumerate().map(lambda _, row: (without_labels(row),))
        source = text_datasets.DatasetRows(rows, preprocessor, _no_columns, num_rows)
        return Loader(source, preprocessor, options, with_index), _in_order

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

    Args:
        dataset: The batches.
        rules: The rules for labels; `None` to read only `x`.
        steps: The number of batches to predict at most.
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

    @property
    def has_labels(self) -> bool:
        """Whether the batches have labels, or need none."""
        return self.may_lack_labels or self.dataset.has_labels

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        return GivenBatches(self.dataset, preprocessor, options, self._read_columns)

    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        if self.dataset.is_infinite and self.steps is None:
            raise ValueError("The PyDataset is infinite; expected `steps`, a number of batches.")
        return GivenBatches(self.dataset, preprocessor, options, None, self.steps), _in_order


def _no_columns(*, num_rows: int, first_row: int) -> tuple[()]:
    return ()


def _in_order(outputs_of_batches: Iterable[BatchOutputs], shape: Any) -> np.ndarray[Any, Any]:
    """Restores the order of outputs `(rows, ...)` by the indices of the rows."""
    batches = [(index, outputs) for _, index, outputs in outputs_of_batches]
    if not batches:
        return np.zeros((0, *shape[1:]), "float32")
    index, joined = (np.concatenate(part) for part in zip(*batches, strict=True))
    # Filler rows repeat the index of a row.
    restored = np.empty((index.max() + 1, *joined.shape[1:]), joined.dtype)
    restored[index] = joined
    return restored


def sliced(values: Any, rows: slice) -> Any:
    """Slices values, unless they are `None`."""
    return None if values is None else values[rows]

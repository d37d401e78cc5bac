# SPDX-License-Identifier: Apache-2.0
"""The text input of `fit`, `evaluate` and `predict`: reading, checking and batching.

`Rows` is the interface between a `Task` and its input. The subclasses for texts and pairs of texts
are in this file; tasks with another kind of input (words, questions, choices) have a subclass in
their own file. TensorFlow is imported only to create batches.
"""

from __future__ import annotations

import abc
import dataclasses
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from keras_bert import checks
from keras_bert.data.input_forms import (
    TEXT_FORMS,
    checked_weights,
    dataset_has_labels,
    is_dataset,
    is_text,
    one_for_each,
    split_index,
    text_columns,
)
from keras_bert.tasks.class_labels import LabelRules

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_bert.data.batching import BatchOptions

DEFAULT_BATCH_SIZE = 32


# The features of a batch, the rest of it (the indices of its rows), and the outputs of the model
BatchOutputs = tuple[Any, Any, Any]
# Restores the order and nesting of the input from the outputs of batches; the second argument is
# the output shape of the model, for an input without rows
Restore = Callable[[Iterable[BatchOutputs], Any], Any]


@dataclasses.dataclass(frozen=True)
class Batching:
    """The options of batching for a call of `fit`, `evaluate` or `predict`.

    Args:
        batch_size: Number of rows in a batch; `None` for the default.
        compiles: Whether each new batch shape is compiled, which takes seconds.
        shuffle: Whether to shuffle the rows.
        reshuffle: Whether each iteration has a different order.
        training: Whether the rows are training data. If shapes are compiled, their last batch is
            then completed with filler rows.
        length_window: Number of batches whose rows are sorted by length together; `None` for the
            default.
        num_replicas: Number of devices that share each batch, under `tf.distribute`. The last batch
            is then completed with filler rows too, so that each device has as many.
        allow_unlabelled: Whether a label may be -1 (for regression NaN), which means that the row
            has none.
    """

    batch_size: int | None = None
    compiles: bool = False
    shuffle: bool = False
    reshuffle: bool = True
    training: bool = False
    length_window: int | None = None
    num_replicas: int = 1
    allow_unlabelled: bool = False

    def __post_init__(self) -> None:
        checks.POSITIVE_INT.check_given(
            batch_size=self.batch_size, length_window=self.length_window
        )

    def options(self) -> BatchOptions:
        """Returns the `BatchOptions` of `keras_bert.data`.

        Raises:
            ValueError: If the replicas cannot have equal shares of a batch.
        """
        batch_size = self.batch_size or DEFAULT_BATCH_SIZE
        if batch_size % self.num_replicas:
            raise ValueError(
                f"batch_size is {batch_size}, in a strategy of {self.num_replicas} replicas, which "
                "share each batch; expected a multiple of their number."
            )
        options: BatchOptions = {
            "batch_size": batch_size,
            # Python's generator is seeded by keras.utils.set_random_seed
            "shuffle_seed": random.getrandbits(31) if self.shuffle else None,
            "reshuffle": self.reshuffle,
            "coarse_buckets": self.compiles,
            "pad_last_batch": (self.compiles and self.training) or self.num_replicas > 1,
        }
        if self.length_window is not None:
            options["window_batches"] = self.length_window
        return options


class Rows(abc.ABC):
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
    def batches(self, preprocessor: Any, batching: Batching) -> tf.data.Dataset:
        """Creates batches for training or evaluation.

        Args:
            preprocessor: The preprocessor that converts rows to features.
            batching: The options of batching.

        Returns:
            A dataset of `(features, labels, weights)`, without labels or weights if there are none.
        """

    @abc.abstractmethod
    def numbered_batches(
        self, preprocessor: Any, batching: Batching
    ) -> tuple[tf.data.Dataset, Restore]:
        """Creates batches for prediction.

        Args:
            preprocessor: The preprocessor that converts rows to features.
            batching: The options of batching.

        Returns:
            A tuple of a dataset of `(features, index)`, where `index` holds the indices of the rows
            in a batch, and of a function that restores the order of the input. Its arguments are
            the features, index and outputs of each batch, as NumPy arrays, and the output shape of
            the model.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class TextRows(Rows):
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
        """The labels and the weights, those of them that there are."""
        return [values for values in (self.labels, self.weights) if values is not None]

    def batches(self, preprocessor: Any, batching: Batching) -> tf.data.Dataset:
        from keras_bert.data import text_batches

        return text_batches.batches_from_columns(
            self.columns, self.targets, preprocessor, **batching.options()
        )

    def numbered_batches(
        self, preprocessor: Any, batching: Batching
    ) -> tuple[tf.data.Dataset, Restore]:
        from keras_bert.data import text_batches

        dataset = text_batches.rows_from_columns(self.columns)
        return TextDataset(dataset).numbered_batches(preprocessor, batching)


@dataclasses.dataclass(frozen=True, eq=False)
class TextDataset(Rows):
    """A `tf.data.Dataset` of text, with or without labels, of single rows or batches.

    Args:
        dataset: A dataset of `x`, `(x, labels)` or `(x, labels, weights)`.
    """

    forms = TEXT_FORMS
    in_memory = False
    outputs_are_joined = True

    dataset: tf.data.Dataset

    @classmethod
    def matches(cls, x: object) -> bool:
        return is_text(x) and is_dataset(x)

    @classmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        from keras_bert.data import text_batches

        if y is not None or sample_weight is not None:
            raise ValueError(
                "`y` and sample_weight must be None: a dataset of text contains its labels and "
                "weights, as (text, label, weight)."
            )
        if rules is None:
            return cls(x)
        return cls(
            text_batches.with_checked_labels(
                text_batches.with_checked_weights(x),
                rules.num_ids,
                allow_unlabelled=rules.lowest == -1,
            )
        )

    @property
    def has_labels(self) -> bool:
        """Whether its elements have labels."""
        return dataset_has_labels(self.dataset)

    def num_batches(self, preprocessor: Any, batch_size: int) -> int:
        from keras_bert.data import text_batches
        from keras_bert.data.batching import num_elements

        count = num_elements(self.dataset)
        return count if text_batches.is_batched(self.dataset) else -(-count // batch_size)

    def batches(self, preprocessor: Any, batching: Batching) -> tf.data.Dataset:
        from keras_bert.data import text_batches

        if text_batches.is_batched(self.dataset):
            return text_batches.batches_from_batched_rows(self.dataset, preprocessor)
        return text_batches.batches_from_rows(self.dataset, preprocessor, **batching.options())

    def numbered_batches(
        self, preprocessor: Any, batching: Batching
    ) -> tuple[tf.data.Dataset, Restore]:
        from keras_bert.data import text_batches

        batches = text_batches.numbered_batches(self.dataset, preprocessor, **batching.options())
        return batches, _in_order


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

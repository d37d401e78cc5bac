# SPDX-License-Identifier: Apache-2.0
"""`InputAdapter`, the interface between a task and its input."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import numpy as np

from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.columns import split_index
from keras_bert.data.labels import LabelRules

# A batch's features, the indices of its examples, and the model outputs
BatchOutputs = tuple[Any, Any, Any]
# Restores the input's order and nesting from the outputs of all batches. The second argument is the
# model's output shape, for an empty input.
Restore = Callable[[Iterable[BatchOutputs], Any], Any]


class InputAdapter(abc.ABC):
    """Base class of input adapters. An adapter reads text of one type for a `Task`."""

    # Describes the accepted forms in error messages
    forms: ClassVar[str]
    # Whether the examples are in memory. Otherwise, `validation_split` is not supported.
    in_memory: ClassVar[bool] = True
    # Whether `x` contains the labels
    has_own_labels: ClassVar[bool] = False
    # Whether the outputs of all examples have the same shape, so that Keras can concatenate them
    outputs_are_joined: ClassVar[bool] = False

    @property
    def has_labels(self) -> bool:
        """Whether the input contains labels."""
        return getattr(self, "labels", None) is not None or self.has_own_labels

    @classmethod
    @abc.abstractmethod
    def matches(cls, x: object) -> bool:
        """Returns whether `x` is text of this type rather than features."""

    @classmethod
    @abc.abstractmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        """Reads and validates an input that `matches`. Without `rules`, it only reads `x`.

        Raises:
            ValueError: If an example, label or weight is invalid. The message contains the index of
                the example.
        """

    def __len__(self) -> int:
        """Returns the number of examples in memory."""
        raise NotImplementedError

    def __getitem__(self, rows: slice) -> Self:
        """Returns a slice of the examples in memory."""
        raise NotImplementedError

    def split(self, share: float) -> tuple[Self, Self]:
        """Splits off a fraction of examples at the end. Returns both parts in order."""
        start = split_index(len(self), share)
        return self[:start], self[start:]

    def count_batches(self, batch_size: int) -> int:
        """Counts the batches if `batches` has no length. Raises an error if they are infinite."""
        raise NotImplementedError

    @abc.abstractmethod
    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        """Returns the batches for training or evaluation: `(features, labels, weights)`.

        See `batch_of` for batches without labels or weights.
        """

    @abc.abstractmethod
    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        """Returns batches of `(features, index)`, and a function that restores the input order.

        `index` contains the example indices in a batch. The function accepts the features, index
        and outputs of each batch as NumPy arrays, and the model's output shape.
        """


def in_order(outputs_of_batches: Iterable[BatchOutputs], shape: Any) -> np.ndarray[Any, Any]:
    """Restores the input order of outputs `(rows, ...)` from the example indices."""
    batches = [(index, outputs) for _, index, outputs in outputs_of_batches]
    if not batches:
        return np.zeros((0, *shape[1:]), "float32")
    index, values = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    # Padding examples repeat a real example's index.
    in_order_of_input = np.empty((index.max() + 1, *values.shape[1:]), values.dtype)
    in_order_of_input[index] = values
    return in_order_of_input


def slice_rows(values: Any, rows: slice) -> Any:
    """Slices values. Returns `None` for `None`."""
    return None if values is None else values[rows]

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
        """Reads and checks input that `matches`; without `rules`, `x` alone.

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
        """Splits off a share of the rows, the last ones, for validation: the others, and these."""
        start = split_index(len(self), share)
        return self[:start], self[start:]

    def count_batches(self, batch_size: int) -> int:
        """Returns the number of batches if `batches` does not know it; an error if infinite."""
        raise NotImplementedError

    @abc.abstractmethod
    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        """Returns the batches of training or evaluation: `(features, labels, weights)`.

        Labels or weights are missing if there are none.
        """

    @abc.abstractmethod
    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        """Returns batches of `(features, index)`, and a function that restores the input's order.

        `index` has the indices of the rows in a batch. The function takes the features, index and
        outputs of each batch, as NumPy arrays, and the output shape of the model.
        """


def in_order(outputs_of_batches: Iterable[BatchOutputs], shape: Any) -> np.ndarray[Any, Any]:
    """Restores the order of outputs `(rows, ...)` by the indices of the rows."""
    batches = [(index, outputs) for _, index, outputs in outputs_of_batches]
    if not batches:
        return np.zeros((0, *shape[1:]), "float32")
    index, values = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    # Padding rows repeat the index of a row.
    in_order_of_input = np.empty((index.max() + 1, *values.shape[1:]), values.dtype)
    in_order_of_input[index] = values
    return in_order_of_input


def slice_rows(values: Any, rows: slice) -> Any:
    """Slices values, unless they are `None`."""
    return None if values is None else values[rows]

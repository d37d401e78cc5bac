# SPDX-License-Identifier: Apache-2.0
"""Reads task inputs. Text is read with the matching adapter, anything else as features."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from typing import Any, Self

import numpy as np

from keras_bert.data.adapters.base import InputAdapter
from keras_bert.data.adapters.text_batches import BatchedText, open_batched_text
from keras_bert.data.adapters.texts import is_text, is_text_spec
from keras_bert.data.columns import (
    column_names,
    dataset_has_labels,
    first_of_element,
    is_dataset,
    label_column,
    named_labels,
    validate_weights,
)
from keras_bert.data.labels import LabelRules

Kinds = Sequence[type[InputAdapter]]


def read_input(
    kinds: Kinds,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    rules: LabelRules | None = None,
    *,
    needs_labels: bool = False,
) -> InputAdapter | Features:
    """Reads an input with its labels and weights. Without `rules`, it only reads `x`.

    With `needs_labels`, a table's `label` column is read if `y` is `None`.

    Raises:
        ValueError: If the input is invalid, or empty in training or evaluation.
    """
    x = open_batched_text(x)
    kind = adapter_class(kinds, x)
    if kind is None:
        return Features.read(x, y, sample_weight, input_forms(kinds))
    if rules is None:
        return kind.read(x)
    if y is not None:
        y = named_labels(y, rules.class_names)
    elif needs_labels:
        y = label_column(x, rules.class_names)
    rows = kind.read(x, y, sample_weight, rules)
    if rows.in_memory and not len(rows):
        raise no_rows()
    return rows


def adapter_class(kinds: Kinds, x: object) -> type[InputAdapter] | None:
    """Returns the adapter class that matches `x`, or `None` for features."""
    return next((kind for kind in kinds if kind.matches(x)), None)


def input_forms(kinds: Kinds) -> str:
    """Describes the accepted forms of text in error messages."""
    return ", or ".join(dict.fromkeys(kind.forms for kind in kinds))


def no_rows() -> ValueError:
    """Creates the error for data without examples."""
    return ValueError("Training and evaluation need at least one text. Received: 0 texts")


def has_ended() -> ValueError:
    """Creates the error for a generator without batches for the next epoch."""
    return ValueError(
        "x or validation_data has no more batches, because it is a generator or can only be read "
        "once. For multiple epochs, pass data that can be read again, such as a "
        "keras.utils.PyDataset. Or pass steps_per_epoch and enough batches for all epochs."
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """Features with or without labels and weights. Keras splits them into batches.

    `x` contains arrays, or is a dataset, a generator or another object that yields batches.
    """

    x: Any
    y: Any = None
    sample_weight: Any = None

    @classmethod
    def read(cls, x: Any, y: Any, sample_weight: Any, forms: str) -> Self:
        """Checks that the input is not text in an unsupported form."""
        check_input_form(x, forms)
        if is_text(x) or isinstance(x, BatchedText):
            kind = "batches" if isinstance(x, BatchedText) else type(x).__name__
            raise ValueError(
                f"x must be {forms}, or features. Received: {kind} of text in an unsupported form"
            )
        return cls(x, y, sample_weight)

    @property
    def inputs(self) -> dict[str, Any]:
        """The model inputs by name, if they are arrays."""
        return self.x if isinstance(self.x, dict) else {"token_ids": self.x}

    @property
    def are_arrays(self) -> bool:
        """Whether the features are arrays in memory, not a dataset or an object with batches."""
        is_array = hasattr(self.x, "shape") and hasattr(self.x, "dtype")
        return is_array or isinstance(self.x, (Mapping, list, tuple))

    @property
    def has_labels(self) -> bool:
        """Whether there are labels. Without labels, Keras would still train on JAX."""
        if is_dataset(self.x):
            return dataset_has_labels(self.x)
        # Other objects, such as generators, only reveal their labels when they are read.
        return self.y is not None or not self.are_arrays

    def validate_weights(self) -> Self:
        """Validates the sample weights. Datasets and generators are validated during reading."""
        check_weights(self.sample_weight)
        if is_dataset(self.x):
            from keras_bert.data.tfdata.text_datasets import validate_dataset_weights

            return dataclasses.replace(self, x=validate_dataset_weights(self.x))
        is_generator = isinstance(self.x, Generator)
        return dataclasses.replace(self, x=_validate_batches(self.x)) if is_generator else self

    def count_batches(self, batch_size: int) -> int:
        """Counts the batches that Keras' `fit` makes. Raises an error if the number is unknown."""
        if is_dataset(self.x):
            from keras_bert.data.tfdata.text_datasets import num_elements

            return num_elements(self.x)
        if not self.are_arrays:
            try:
                # A `PyDataset` may have no length. An infinite one has neither attribute.
                count = self.x.num_batches if hasattr(self.x, "num_batches") else len(self.x)
            except TypeError:
                count = None
            if count is None:
                raise ValueError(
                    f"x must be arrays in memory, or a dataset of known size. Received: "
                    f"{type(self.x).__name__}, whose batches cannot be counted"
                )
            return int(count)
        rows = self.x
        while isinstance(rows, (Mapping, list, tuple)):
            rows = next(iter(rows.values() if isinstance(rows, Mapping) else rows))
        return -(-len(rows) // batch_size)


# Any task input after reading
Rows = InputAdapter | Features


def check_input_form(x: Any, forms: str) -> None:
    """Raises an error if an input looks like text in an invalid form.

    Invalid forms are `None`, a set, an iterator other than a generator, a lazy or streamed table, a
    list of plain numbers, text columns with unknown names, and a list or series with items other
    than texts or numbers.
    """
    if x is None:
        raise ValueError(f"x must be {forms}, or features. Received: None")
    columns = first_of_element(x.element_spec) if is_dataset(x) else x
    names = column_names(columns)
    has_text = names is not None and (
        not isinstance(columns, Mapping)
        or any(is_text(column) or is_text_spec(column) for column in columns.values())
    )
    if names is not None and has_text and not is_text(x):
        labels_hint = f" with y=x[{names[-1]!r}]" if len(names) > 1 else ""
        raise ValueError(
            f"x must have a column that this task reads. Received: {', '.join(map(str, names))}. "
            f"Pass the columns separately, such as x[{names[0]!r}]{labels_hint}, or rename them. x "
            f"can be {forms}, or features."
        )
    is_iterator = isinstance(x, (Iterator, Set)) and not isinstance(x, Generator)
    is_lazy = names is None and any(hasattr(x, name) for name in ("collect", "column_names"))
    if is_iterator or is_lazy or hasattr(x, "to_pylist"):
        raise ValueError(f"x must be {forms}, or features. Received: {type(x).__name__}")
    is_objects = getattr(getattr(x, "dtype", None), "kind", "") == "O"
    if not (isinstance(x, (list, tuple)) or is_objects):
        return
    rows = list(x)
    if rows and all(isinstance(leaf, numbers.Number) for row in rows for leaf in _leaves(row)):
        raise ValueError(
            f"x must be {forms}, or token ids as an array (batch, length). Received: a list of "
            "numbers"
        )
    has_text = any(isinstance(leaf, (str, bytes)) for row in rows for leaf in _leaves(row))
    for index, row in enumerate(rows):
        for leaf in _leaves(row):
            is_number = isinstance(leaf, numbers.Number) or hasattr(leaf, "shape")
            if not (isinstance(leaf, (str, bytes)) if has_text else is_number):
                where = "" if leaf is row else "an item "
                raise ValueError(
                    f"x must be {forms}, or features. Received: {where}{leaf!r} of type "
                    f"{type(leaf).__name__} (row {index})"
                )


def _leaves(row: object) -> Iterator[Any]:
    if not isinstance(row, (list, tuple)):
        yield row
        return
    for item in row:
        yield from _leaves(item)


def _validate_batches(batches: Generator[Any, Any, Any]) -> Generator[Any, None, None]:
    for batch in batches:
        if isinstance(batch, tuple) and len(batch) == 3:
            check_weights(batch[2])
        yield batch


def check_weights(sample_weight: Any) -> None:
    """Validates the sample weights of features by the same rules as for text.

    The weights may be nested like the labels. Tensors are not checked, because that would wait for
    the device.
    """
    if isinstance(sample_weight, Mapping):
        sample_weight = list(sample_weight.values())
    if isinstance(sample_weight, (list, tuple)) and isinstance(sample_weight[0], np.ndarray):
        for weights in sample_weight:
            check_weights(weights)
    elif isinstance(sample_weight, (np.ndarray, list, tuple)) or hasattr(sample_weight, "iloc"):
        validate_weights(sample_weight)


def second_axis(x: Any) -> int | None:
    """Returns the size of axis 1 (sequence length or number of choices), or `None` if unknown."""
    shape: Any = getattr(x.get("token_ids") if isinstance(x, dict) else x, "shape", ())
    return int(shape[1]) if len(shape) > 1 else None

# SPDX-License-Identifier: Apache-2.0
"""Reading any input of a task: text by the adapter of its kind; all else is features."""

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
    """Reads input with its labels and weights; without `rules`, `x` alone.

    If labels are needed and there is no `y`, a table's column `label` is read. Without a row to
    train on, or to evaluate, it is an error.
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
    """Returns the kind of text that `x` is; `None` for features."""
    return next((kind for kind in kinds if kind.matches(x)), None)


def input_forms(kinds: Kinds) -> str:
    """Returns the forms of text of some kinds, for error messages."""
    return ", or ".join(dict.fromkeys(kind.forms for kind in kinds))


def no_rows() -> ValueError:
    """Returns the error for data without a row."""
    return ValueError("There are no texts to train on, or to evaluate.")


def has_ended() -> ValueError:
    """Returns the error for data that can be read once, and have no batch for a further epoch."""
    return ValueError(
        "x or validation_data has no more batches: it can be read only once, such as a generator. "
        "For multiple epochs, pass data that can be read again, such as a keras.utils.PyDataset; "
        "or enough batches of x, and steps_per_epoch."
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Features:
    """Features, with labels and weights or without, which Keras makes batches of.

    `x` are arrays, a dataset, or a generator or another object that has batches.
    """

    x: Any
    y: Any = None
    sample_weight: Any = None

    @classmethod
    def read(cls, x: Any, y: Any, sample_weight: Any, forms: str) -> Self:
        """Checks that input is not text in a form that the task does not take."""
        check_input_form(x, forms)
        if is_text(x) or isinstance(x, BatchedText):
            raise ValueError(
                f"The task takes {forms}, or features; received {type(x).__name__} of text in "
                "another form."
            )
        return cls(x, y, sample_weight)

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of a model by name, if they are given as arrays."""
        return self.x if isinstance(self.x, dict) else {"token_ids": self.x}

    @property
    def are_arrays(self) -> bool:
        """Whether they are in memory, and not a dataset or an object that has batches."""
        is_array = hasattr(self.x, "shape") and hasattr(self.x, "dtype")
        return is_array or isinstance(self.x, (Mapping, list, tuple))

    @property
    def has_labels(self) -> bool:
        """Whether there are labels; on JAX, Keras would train without them all the same."""
        if is_dataset(self.x):
            return dataset_has_labels(self.x)
        # Other objects, such as generators, show their labels only when they are read
        return self.y is not None or not self.are_arrays

    def validate_weights(self) -> Self:
        """Checks the sample weights; in datasets and generators when they are read."""
        check_weights(self.sample_weight)
        if is_dataset(self.x):
            from keras_bert.data.tfdata.text_datasets import validate_dataset_weights

            return dataclasses.replace(self, x=validate_dataset_weights(self.x))
        is_generator = isinstance(self.x, Generator)
        return dataclasses.replace(self, x=_validate_batches(self.x)) if is_generator else self

    def count_batches(self, batch_size: int) -> int:
        """Returns the number of batches that Keras' `fit` makes; an error if it is unknown."""
        if is_dataset(self.x):
            from keras_bert.data.tfdata.text_datasets import num_elements

            return num_elements(self.x)
        if not self.are_arrays:
            try:
                # A `PyDataset` may have no length; an infinite one has neither.
                count = self.x.num_batches if hasattr(self.x, "num_batches") else len(self.x)
            except TypeError:
                count = None
            if count is None:
                raise ValueError(
                    f"The batches of x, a {type(self.x).__name__}, cannot be counted; expected "
                    "rows in memory, or a dataset."
                )
            return int(count)
        rows = self.x
        while isinstance(rows, (Mapping, list, tuple)):
            rows = next(iter(rows.values() if isinstance(rows, Mapping) else rows))
        return -(-len(rows) // batch_size)


# Any input of a task, read
Rows = InputAdapter | Features


def check_input_form(x: Any, forms: str) -> None:
    """Checks that input that is not recognized as text is not malformed text.

    That is `None`, an iterator, a lazy or streamed table, a list of plain numbers, columns of text
    with other names, or a list or series with a row that is neither text nor numbers.
    """
    if x is None:
        raise ValueError(f"Received None; expected {forms}, or features.")
    columns = first_of_element(x.element_spec) if is_dataset(x) else x
    names = column_names(columns)
    has_text = names is not None and (
        not isinstance(columns, Mapping)
        or any(is_text(column) or is_text_spec(column) for column in columns.values())
    )
    if names is not None and has_text and not is_text(x):
        labels_hint = f" with y=x[{names[-1]!r}]" if len(names) > 1 else ""
        raise ValueError(
            f"x has no column that this task reads. Received: {', '.join(map(str, names))}. Pass "
            f"columns by themselves, such as x[{names[0]!r}]{labels_hint}, or rename them. The "
            f"forms of x are {forms}, or features."
        )
    is_iterator = isinstance(x, (Iterator, Set)) and not isinstance(x, Generator)
    is_lazy = names is None and any(hasattr(x, name) for name in ("collect", "column_names"))
    if is_iterator or is_lazy or hasattr(x, "to_pylist"):
        raise ValueError(f"Received {type(x).__name__}; expected {forms}, or features.")
    is_objects = getattr(getattr(x, "dtype", None), "kind", "") == "O"
    if not (isinstance(x, (list, tuple)) or is_objects):
        return
    rows = list(x)
    if rows and all(isinstance(leaf, numbers.Number) for row in rows for leaf in _leaves(row)):
        raise ValueError(
            f"Received a list of numbers; expected {forms}, or ids as an array (batch, length)."
        )
    has_text = any(isinstance(leaf, (str, bytes)) for row in rows for leaf in _leaves(row))
    for index, row in enumerate(rows):
        for leaf in _leaves(row):
            is_number = isinstance(leaf, numbers.Number) or hasattr(leaf, "shape")
            if not (isinstance(leaf, (str, bytes)) if has_text else is_number):
                where = "is" if leaf is row else "holds"
                raise ValueError(
                    f"Row {index} {where} {leaf!r} of type {type(leaf).__name__}; expected "
                    f"{forms}, or features."
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
    """Checks the sample weights of features, nested like their labels, as `validate_weights` does.

    Tensors are not checked, since this would wait for the device.
    """
    if isinstance(sample_weight, Mapping):
        sample_weight = list(sample_weight.values())
    if isinstance(sample_weight, (list, tuple)) and isinstance(sample_weight[0], np.ndarray):
        for weights in sample_weight:
            check_weights(weights)
    elif isinstance(sample_weight, (np.ndarray, list, tuple)) or hasattr(sample_weight, "iloc"):
        validate_weights(sample_weight)


def second_axis(x: Any) -> int | None:
    """Returns the size of axis 1 of features (length, or number of choices); `None` if unknown."""
    shape: Any = getattr(x.get("token_ids") if isinstance(x, dict) else x, "shape", ())
    return int(shape[1]) if len(shape) > 1 else None

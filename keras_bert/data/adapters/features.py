# SPDX-License-Identifier: Apache-2.0
"""Features, which Keras reads itself: the checks of ids, and of text in none of the forms."""

from __future__ import annotations

import numbers
from collections.abc import Generator, Iterator, Mapping, Set
from typing import Any

import numpy as np

from keras_bert.data.adapters.texts import is_text, is_text_spec
from keras_bert.data.columns import (
    checked_weights,
    column_names,
    dataset_has_labels,
    first_of_element,
    is_dataset,
    split_index,
)
from keras_bert.data.loader import Batches


def check_input_form(x: Any, forms: str) -> None:
    """Checks that input that is not recognized as text is not malformed text.

    Args:
        x: The input.
        forms: The forms of text that the task takes, for the error message.

    Raises:
        ValueError: If `x` is `None`, an iterator, a lazy or streamed table, a list of plain
            numbers, or has columns of text with other names; or a row of a list or series is
            neither text nor numbers, or has numbers while other rows have text; the message names
            the row.
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
        raise ValueError(
            f"Received columns of text named {', '.join(map(str, names))}; expected {forms}, "
            f"or features. Rename the columns, or pass them by themselves: x[{names[0]!r}]"
            + (f", with y=x[{names[-1]!r}]." if len(names) > 1 else ".")
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
            if not (isinstance(leaf, (str, bytes)) if has_text else _is_number(leaf)):
                where = "is" if leaf is row else "holds"
                raise ValueError(
                    f"Row {index} {where} {leaf!r} of type {type(leaf).__name__}; expected "
                    f"{forms}, or features."
                )


def _leaves(row: object) -> Iterator[Any]:
    if not isinstance(row, (list, tuple)):
        yield row
        return
    for part in row:
        yield from _leaves(part)


def _is_number(x: object) -> bool:
    return isinstance(x, numbers.Number) or hasattr(x, "shape")


def checked_generator(x: Any) -> Any:
    """Wraps a generator of batches of features so that it raises an error for wrong weights."""
    return _checked_batches(x) if isinstance(x, Generator) else x


def _checked_batches(batches: Generator[Any, Any, Any]) -> Generator[Any, None, None]:
    for batch in batches:
        if isinstance(batch, tuple) and len(batch) == 3:
            check_weights(batch[2])
        yield batch


def check_weights(sample_weight: Any) -> None:
    """Checks the sample weights of features, nested like their labels, as `checked_weights` does.

    Tensors are not checked, since this would wait for the device.
    """
    if isinstance(sample_weight, Mapping):
        sample_weight = list(sample_weight.values())
    if isinstance(sample_weight, (list, tuple)) and isinstance(sample_weight[0], np.ndarray):
        for weights in sample_weight:
            check_weights(weights)
    elif isinstance(sample_weight, (np.ndarray, list, tuple)) or hasattr(sample_weight, "iloc"):
        checked_weights(sample_weight)


def lacks_labels(x: Any, y: Any) -> bool:
    """Returns whether data for Keras has no labels; on JAX, it would be trained on all the same."""
    if is_dataset(x):
        return not dataset_has_labels(x)
    # Of other objects, such as generators, the labels are seen only when they are read
    return y is None and are_arrays(x)


def are_arrays(x: Any) -> bool:
    """Returns whether features are in memory, and not a dataset or a generator of batches."""
    is_array = hasattr(x, "shape") and hasattr(x, "dtype")
    return is_array or isinstance(x, (Mapping, list, tuple))


def num_batches_of_features(x: Any, batch_size: int, validation_split: float) -> int:
    """Returns the number of batches that Keras' `fit` makes of features."""
    if is_dataset(x):
        from keras_bert.data.tfdata.text_datasets import num_elements

        return num_elements(x)
    if not are_arrays(x):
        try:
            # A `PyDataset` may have no length; an infinite one has neither.
            count = x.num_batches if hasattr(x, "num_batches") else len(x)
        except TypeError:
            count = None
        if count is None:
            raise ValueError(
                f"x is a {type(x).__name__}, whose batches cannot be counted; expected rows in "
                "memory, or a dataset."
            )
        return int(count)
    while isinstance(x, (Mapping, list, tuple)):
        x = next(iter(x.values() if isinstance(x, Mapping) else x))
    num_rows = len(x)
    if validation_split:
        num_rows = split_index(num_rows, validation_split)
    return -(-num_rows // batch_size)


def second_axis(x: Any) -> int | None:
    """Returns the size of axis 1 of features (length, or number of choices); `None` if unknown."""
    shape: Any = getattr(x.get("token_ids") if isinstance(x, dict) else x, "shape", ())
    return int(shape[1]) if len(shape) > 1 else None


def without_first(batches: Any, count: int, epochs: int, read: int = 0) -> Any:
    """Checks that a single epoch can begin with a given batch, and skips those of a dataset.

    The last of these, if any must be `read`, are not skipped.
    """
    num_batches = batches.num_batches if isinstance(batches, Batches) else None
    if is_dataset(batches) and int(batches.cardinality()) >= 0:
        num_batches = int(batches.cardinality())
    takes_first = isinstance(batches, Batches) or is_dataset(batches)
    if not takes_first or epochs != 1 or (num_batches is not None and num_batches < count):
        raise ValueError(
            f"initial_batch is {count}, with {epochs} epochs of {type(batches).__name__}; expected "
            "from 0 to the number of batches, with a single epoch of text or of a tf.data.Dataset."
        )
    return batches.skip(count - read) if is_dataset(batches) else batches

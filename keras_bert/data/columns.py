# SPDX-License-Identifier: Apache-2.0
"""Columns and rows of any input: lists, arrays, dicts, and tables of other libraries.

Nothing here imports TensorFlow or those libraries: ids are recognized where they are missing, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from keras_bert import checks


def is_dataset(x: object) -> bool:
    """Returns whether `x` is a `tf.data.Dataset`."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(x, tensorflow.data.Dataset)


def dataset_has_labels(dataset: Any) -> bool:
    """Returns whether the elements of a dataset are `(x, labels)` or `(x, labels, weights)`."""
    spec = dataset.element_spec
    # `None` has a spec of its own.
    return isinstance(spec, tuple) and len(spec) > 1 and type(spec[1]).__name__ != "NoneTensorSpec"


def first_of_element(spec: Any) -> Any:
    """Returns the spec of `x` from a dataset's element spec, with labels or without."""
    return spec[0] if isinstance(spec, tuple) else spec


def column_names(x: Any) -> tuple[Any, ...] | None:
    """Returns the names of the columns of a dict or table, which index it; `None` for all else.

    A table is a data frame of pandas or polars, an Arrow table, or a data set of Hugging Face's
    `datasets` that is not streamed. Its library is not imported.
    """
    if isinstance(x, Mapping):
        return tuple(x)
    if hasattr(x, "column_names") and hasattr(x, "__len__"):  # Arrow and `datasets`
        return tuple(x.column_names)
    return tuple(x.columns) if hasattr(x, "to_dict") and hasattr(x, "columns") else None


def label_column(x: Any, class_names: Sequence[str] | None = None) -> Any:
    """Returns the `named_labels` of the column `label` of a dict or table; `None` without it."""
    if "label" not in (column_names(x) or ()):
        return None
    features = getattr(x, "features", None)
    feature = features["label"] if isinstance(features, Mapping) else None
    return named_labels(as_list(x["label"]), class_names, feature)


def named_labels(labels: Any, class_names: Sequence[str] | None, feature: Any = None) -> Any:
    """Returns the names of ids in a column of Hugging Face's `datasets`, if it has names for them.

    The task's classes need names too: their order may be another. All else is returned as it is.
    `feature` is that of the column, if it does not know it itself.
    """
    feature = getattr(labels, "features", None) if feature is None else feature
    while hasattr(feature, "feature"):  # of the items of a list
        feature = feature.feature
    names = getattr(feature, "names", None)
    if class_names is None or not isinstance(names, Sequence):
        return labels

    def named(label: Any) -> Any:
        if isinstance(label, list):
            return list(map(named, label))
        return names[label] if label is not None and label >= 0 else label

    return named(as_list(labels))


def as_list(values: Any) -> list[Any]:
    """Converts a column to a list of Python's values.

    A column is an iterable, such as a tensor of any backend, a series of pandas or polars, or a
    column of an Arrow table or of a data set of Hugging Face's. A string is an error: its
    characters would become rows.
    """
    if isinstance(values, (str, bytes)):
        raise ValueError(f"Received {values!r} as a column; expected a list of texts.")
    # The methods of Arrow; of pandas, polars and ragged tensors; of NumPy, JAX and PyTorch
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(values, method):
            return list(getattr(values, method)())
    return list(values.numpy().tolist() if hasattr(values, "numpy") else values)


def as_array(values: Any) -> np.ndarray[Any, Any]:
    """Converts a column of numbers or names, in any form that `as_list` takes, to an array."""
    if hasattr(values, "detach"):  # a tensor of PyTorch, perhaps on a GPU or with gradients
        values = values.detach().cpu()
    return np.asarray(values)


def as_string(text: str | bytes) -> str:
    """Converts UTF-8 to a string, without invalid bytes."""
    return text.decode("utf-8", "ignore") if isinstance(text, bytes) else str(text)


def columns_of_rows(
    rows: Sequence[Mapping[str, Any]], fields: Sequence[str], optional_fields: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """Converts rows, dicts of fields, to a list of values for each field.

    Optional fields are in all rows or in none. Other entries are ignored.
    """
    present = [name for name in optional_fields if any(name in row for row in rows)]
    columns: dict[str, list[Any]] = {name: [] for name in (*fields, *present)}
    for index, row in enumerate(rows):
        for name, column in columns.items():
            if name not in row:
                raise ValueError(f"Row {index} has no {name}; it has {', '.join(row)}.")
            column.append(row[name])
    return columns


def given_columns(**columns: Any) -> dict[str, Any]:
    """Returns the columns that are not `None`."""
    return {name: column for name, column in columns.items() if column is not None}


def check_lengths(columns: Mapping[str, Sized]) -> None:
    """Checks that columns have the same number of rows."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The columns differ in length: {lengths}.")


def one_for_each(
    values: np.ndarray[Any, Any], rows: Sized, *, to_keras_batch: bool = False
) -> np.ndarray[Any, Any]:
    """Checks that labels or weights have the shape `(rows,)`, or with columns `(rows, ...)`."""
    if (values.shape[:1] if to_keras_batch else values.shape) != (len(rows),):
        raise ValueError(
            f"There are {len(rows)} texts and labels or weights of shape {values.shape}; expected "
            "one for each text."
        )
    return values


def validate_weights(sample_weight: Any, first_row: int = 0) -> np.ndarray[Any, Any]:
    """Converts sample weights to a float32 array; they must be finite and at least 0.

    One weight for each row may also have the shape `(rows, 1)`.
    """
    try:
        weights = np.atleast_1d(as_array(sample_weight)).astype("float32")
    except (TypeError, ValueError) as error:
        raise ValueError(f"The sample weights are not numbers: {error}.") from error
    wrong = np.argwhere(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise ValueError(
            f"The sample weight in row {first_row + wrong[0][0]} must be {checks.NON_NEGATIVE}. "
            f"Received: {weights[tuple(wrong[0])]}"
        )
    return weights[:, 0] if weights.shape[1:] == (1,) else weights


def split_index(num_rows: int, share: float) -> int:
    """Returns the number of rows to train on, if a fraction of them is for validation.

    No rows for one of the two are a `ValueError`.
    """
    start = int(num_rows * (1 - share))
    if not 0 < start < num_rows:
        raise ValueError(
            f"validation_split is {share}, and there are {num_rows} rows; expected a fraction that "
            "leaves rows to train on and holds out others."
        )
    return start


def materialize(x: Any) -> Any:
    """Converts an iterator to a list; returns anything else unchanged."""
    return list(x) if isinstance(x, Iterator) else x


def match_input_type(x: Any, answers: list[Any]) -> Any:
    """Converts predictions, a dict or a list of dicts for each row, to the form of the input.

    A string has a single prediction; a pandas object has a data frame of the same index, or a
    series if predictions are lists.
    """
    if isinstance(x, str):
        return answers[0]
    if hasattr(x, "index") and hasattr(x, "iloc"):
        import pandas  # installed, since `x` is a pandas object

        form = pandas.Series if answers and isinstance(answers[0], list) else pandas.DataFrame
        return form(answers, index=x.index)
    return answers

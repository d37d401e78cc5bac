# SPDX-License-Identifier: Apache-2.0
"""Reads columns and rows from lists, arrays, dicts and tables of other libraries.

It recognizes these types without importing TensorFlow or the other libraries.
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
    """Returns whether the dataset's elements are `(x, labels)` or `(x, labels, weights)`."""
    spec = dataset.element_spec
    # An element with labels of `None` has a `NoneTensorSpec`.
    return isinstance(spec, tuple) and len(spec) > 1 and type(spec[1]).__name__ != "NoneTensorSpec"


def first_of_element(spec: Any) -> Any:
    """Returns the spec of `x` from a dataset's element spec."""
    return spec[0] if isinstance(spec, tuple) else spec


def column_names(x: Any) -> tuple[Any, ...] | None:
    """Returns the column names in a dict or table, or `None` for other types.

    A table is a data frame (pandas or polars), an Arrow table, or a Hugging Face data set, except
    for streamed data sets. The library is not imported.
    """
    if isinstance(x, Mapping):
        return tuple(x)
    if hasattr(x, "column_names") and hasattr(x, "__len__"):  # Arrow and `datasets`
        return tuple(x.column_names)
    return tuple(x.columns) if hasattr(x, "to_dict") and hasattr(x, "columns") else None


def label_column(x: Any, class_names: Sequence[str] | None = None) -> Any:
    """Returns the `named_labels` of the `label` column, or `None` without such a column."""
    if "label" not in (column_names(x) or ()):
        return None
    features = getattr(x, "features", None)
    feature = features["label"] if isinstance(features, Mapping) else None
    return named_labels(as_list(x["label"]), class_names, feature)


def named_labels(labels: Any, class_names: Sequence[str] | None, feature: Any = None) -> Any:
    """Converts ids in a Hugging Face data set to class names, if the column has them.

    Otherwise, or if the task has no class names, labels are returned unchanged. Ids cannot be used
    directly, because the task's classes may be in a different order. `feature` describes the column
    if `labels` does not.
    """
    feature = getattr(labels, "features", None) if feature is None else feature
    while hasattr(feature, "feature"):  # The column contains lists.
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
    """Converts a column to a list of Python values.

    A column is any iterable, such as a tensor of any backend, a pandas or polars series, an Arrow
    column, or a Hugging Face data set column. A string raises an error, because each character
    would become a row.
    """
    if isinstance(values, (str, bytes)):
        raise ValueError(f"A column must be a list of texts. Received: {values!r}")
    # Arrow has `to_pylist`. Pandas, polars and ragged tensors have `to_list`. NumPy, JAX and
    # PyTorch have `tolist`.
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(values, method):
            return list(getattr(values, method)())
    return list(values.numpy().tolist() if hasattr(values, "numpy") else values)


def as_array(values: Any) -> np.ndarray[Any, Any]:
    """Converts a column of numbers or names to an array. See `as_list` for the accepted types."""
    if hasattr(values, "detach"):  # A PyTorch tensor may be on a GPU or require gradients.
        values = values.detach().cpu()
    return np.asarray(values)


def is_missing(value: Any) -> bool:
    """Returns whether a value is `None`, NaN or pandas' NA."""
    is_nan = isinstance(value, float | np.floating) and bool(np.isnan(value))
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def as_string(text: str | bytes) -> str:
    """Decodes UTF-8 and drops invalid bytes."""
    return text.decode("utf-8", "ignore") if isinstance(text, bytes) else str(text)


def columns_of_rows(
    rows: Sequence[Mapping[str, Any]], fields: Sequence[str], optional_fields: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """Converts rows (dicts of fields) to a list of values for each field.

    If a row has an optional field, all rows must have it. Other entries are ignored.
    """
    present = [name for name in optional_fields if any(name in row for row in rows)]
    columns: dict[str, list[Any]] = {name: [] for name in (*fields, *present)}
    for index, row in enumerate(rows):
        for name, column in columns.items():
            if name not in row:
                raise ValueError(f"Row {index} must have {name}. Received: {', '.join(row)}")
            column.append(row[name])
    return columns


def given_columns(**columns: Any) -> dict[str, Any]:
    """Drops columns that are `None`."""
    return {name: column for name, column in columns.items() if column is not None}


def check_lengths(columns: Mapping[str, Sized]) -> None:
    """Checks that all columns have the same number of rows."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"All columns must have the same length. Received: {lengths}")


def one_for_each(
    values: np.ndarray[Any, Any], rows: Sized, *, to_keras_batch: bool = False
) -> np.ndarray[Any, Any]:
    """Checks that labels or weights are `(rows,)`, or `(rows, ...)` with `to_keras_batch`."""
    if (values.shape[:1] if to_keras_batch else values.shape) != (len(rows),):
        raise ValueError(
            f"There must be one label or weight for each of the {len(rows)} texts. Received: "
            f"shape {values.shape}"
        )
    return values


def validate_weights(sample_weight: Any, first_row: int = 0) -> np.ndarray[Any, Any]:
    """Converts sample weights to a float32 array, and checks that they are finite and at least 0.

    The shape `(rows, 1)` is converted to `(rows,)`.
    """
    try:
        weights = np.atleast_1d(as_array(sample_weight)).astype("float32")
    except (TypeError, ValueError) as error:
        raise ValueError(f"The sample weights must be numbers: {error}.") from error
    wrong = np.argwhere(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise ValueError(
            f"The sample weight in row {first_row + wrong[0][0]} must be {checks.NON_NEGATIVE}. "
            f"Received: {weights[tuple(wrong[0])]}"
        )
    return weights[:, 0] if weights.shape[1:] == (1,) else weights


def split_index(num_rows: int, share: float) -> int:
    """Returns the number of training examples for a validation fraction.

    Raises:
        ValueError: If no examples remain for training or validation.
    """
    start = int(num_rows * (1 - share))
    if not 0 < start < num_rows:
        raise ValueError(
            "validation_split must leave at least one row for training and one for validation. "
            f"Received: {share} for {num_rows} rows"
        )
    return start


def materialize(x: Any) -> Any:
    """Converts an iterator to a list. Returns other values unchanged."""
    return list(x) if isinstance(x, Iterator) else x


def match_input_type(x: Any, answers: list[Any]) -> Any:
    """Converts predictions (a dict or a list of dicts per example) to the input's type.

    A string has a single prediction. A pandas object gets a data frame with the same index, or a
    series if the predictions are lists.
    """
    if isinstance(x, str):
        return answers[0]
    if hasattr(x, "index") and hasattr(x, "iloc"):
        import pandas  # It is installed, because `x` is a pandas object.

        form = pandas.Series if answers and isinstance(answers[0], list) else pandas.DataFrame
        return form(answers, index=x.index)
    return answers

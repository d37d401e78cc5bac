# SPDX-License-Identifier: Apache-2.0
"""Tells text from ids among what users hand to `fit`, without importing TensorFlow."""

from __future__ import annotations

import numbers
import sys
from collections.abc import Collection, Generator, Iterator, Mapping
from typing import Any

import numpy as np

TEXT_FORMS = (
    "a string, a list of strings, a list of (a, b) pairs, a tuple of two lists, a dict of "
    '"text" and "text_pair", a pandas data frame of these columns or a series of texts, or a '
    "tf.data.Dataset of these"
)


def is_dataset(x: Any) -> bool:
    """Whether `x` is a `tf.data.Dataset`."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(x, tensorflow.data.Dataset)


def is_text(x: Any) -> bool:
    """Whether `x` holds text in one of `TEXT_FORMS`, rather than ids."""
    if is_dataset(x):
        return _is_text_spec(_first_of_element(x.element_spec))
    if isinstance(x, Mapping) or is_data_frame(x):
        return "text" in x
    if isinstance(x, str):
        return True
    dtype = getattr(x, "dtype", None)
    if dtype is not None and not isinstance(x, np.ndarray) and not hasattr(x, "to_numpy"):
        return getattr(dtype, "name", "") == "string"
    # An iterator would lose the element that is looked at, and a loader begin to load.
    if not isinstance(x, Collection) or getattr(x, "ndim", 1) == 0:
        return False
    if not len(x):
        return isinstance(x, (list, tuple))
    first = next(iter(x))
    while isinstance(first, (list, tuple, np.ndarray)) and len(first):
        first = first[0]
    return isinstance(first, (str, bytes))


def listed(x: Any) -> Any:
    """An iterator's elements as a list; everything else as it is."""
    return list(x) if isinstance(x, Iterator) else x


def checked_generator(x: Any) -> Any:
    """A generator of batches for Keras, which raises where one of them holds text.

    Everything else is as it is.

    Raises:
        ValueError: As the generator is read, if it gives text: Keras takes features from it.
    """
    return _checked_batches(x) if isinstance(x, Generator) else x


def _checked_batches(batches: Generator[Any, Any, Any]) -> Generator[Any, None, None]:
    for batch in batches:
        if is_text(batch[0] if isinstance(batch, tuple) and batch else batch):
            raise ValueError(
                f"A generator gave text, {str(batch)[:80]!r}; from a generator Keras takes batches "
                f"of features. Expected text as {TEXT_FORMS}."
            )
        yield batch


def refuse_other_rows(x: Any, forms: str) -> None:
    """Raises where rows that hold something else were taken for features or text.

    Args:
        x: What was given instead of text, or of text in another form.
        forms: What the task takes, for the message.

    Raises:
        ValueError: If `x` is `None`, or a row in a list or series holds neither text nor numbers,
            or numbers where other rows hold text; the message names the row.
    """
    if x is None:
        raise ValueError(f"Received None; expected {forms}, or features.")
    is_objects = getattr(getattr(x, "dtype", None), "kind", "") == "O"
    if not (isinstance(x, (list, tuple)) or is_objects):
        return
    rows = list(x)
    has_text = any(isinstance(leaf, (str, bytes)) for row in rows for leaf in _leaves(row))
    for index, row in enumerate(rows):
        for leaf in _leaves(row):
            if not (isinstance(leaf, (str, bytes)) if has_text else _is_number(leaf)):
                where = "is" if leaf is row else "holds"
                raise ValueError(
                    f"Row {index} {where} {leaf!r} of type {type(leaf).__name__}; expected "
                    f"{forms}, or features."
                )


def _leaves(row: Any) -> Iterator[Any]:
    if not isinstance(row, (list, tuple)):
        yield row
        return
    for part in row:
        yield from _leaves(part)


def _is_number(x: Any) -> bool:
    return isinstance(x, numbers.Number) or hasattr(x, "shape")


def is_data_frame(x: Any) -> bool:
    """Whether `x` is a data frame of pandas, which need not be installed."""
    return hasattr(x, "columns") and hasattr(x, "to_dict")


def text_columns(x: Any) -> dict[str, np.ndarray]:
    """The columns `text` and, for pairs, `text_pair` of any form but a dataset.

    A tuple of two sequences is two columns; a list of pairs is rows.

    Raises:
        ValueError: If the columns differ in length, or the form is none of `TEXT_FORMS`.
    """
    if isinstance(x, str):
        return {"text": _column([x])}
    if isinstance(x, Mapping) or is_data_frame(x):
        columns = {name: _column(x[name]) for name in ("text", "text_pair") if name in x}
    elif isinstance(x, tuple) and len(x) == 2 and not isinstance(x[0], (str, bytes)):
        columns = {"text": _column(x[0]), "text_pair": _column(x[1])}
    else:
        columns = _columns_of_rows(x)
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The texts of a pair differ in number: {lengths}.")
    return columns


def single_texts(x: Any) -> list[str]:
    """The texts of any form but a dataset, one for each row.

    Raises:
        ValueError: If a row is no text, or there are pairs.
    """
    columns = text_columns(x)
    if "text" not in columns or "text_pair" in columns:
        raise ValueError(f"Received the columns {list(columns)}; expected single texts.")
    return [
        text.decode("utf-8", "ignore") if isinstance(text, bytes) else str(text)
        for text in columns["text"]
    ]


def _columns_of_rows(x: Any) -> dict[str, np.ndarray]:
    if not hasattr(x, "__iter__"):
        raise ValueError(f"Received {x!r} of type {type(x).__name__}; expected {TEXT_FORMS}.")
    rows = list(x)
    if rows and isinstance(rows[0], (list, tuple, np.ndarray)):
        wrong = [index for index, row in enumerate(rows) if len(row) != 2]
        if wrong:
            raise ValueError(
                f"Row {wrong[0]} has {len(rows[wrong[0]])} texts; every row of pairs has 2."
            )
        return {
            "text": _column([row[0] for row in rows]),
            "text_pair": _column([row[1] for row in rows]),
        }
    return {"text": _column(rows)}


def _column(values: Any) -> np.ndarray:
    if hasattr(values, "numpy"):
        values = values.numpy()
    values = list(values)
    for index, value in enumerate(values):
        if not isinstance(value, (str, bytes)):
            raise ValueError(
                f"Row {index} is {value!r} of type {type(value).__name__}; expected text as "
                f"{TEXT_FORMS}."
            )
    return np.array(values, dtype=object)


def _first_of_element(spec: Any) -> Any:
    return spec[0] if isinstance(spec, tuple) else spec


def _is_text_spec(spec: Any) -> bool:
    if isinstance(spec, Mapping):
        return "text" in spec
    if isinstance(spec, tuple):
        return _is_text_spec(spec[0])
    return getattr(getattr(spec, "dtype", None), "name", "") == "string"

# SPDX-License-Identifier: Apache-2.0
"""Reads texts and text pairs in memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sized
from typing import Any, Self

import numpy as np

from keras_bert.data.adapters.base import BatchOutputs, InputAdapter, Restore, in_order, slice_rows
from keras_bert.data.batch_options import BatchOptions
from keras_bert.data.batches import Batches
from keras_bert.data.columns import (
    as_list,
    as_string,
    check_lengths,
    column_names,
    first_of_element,
    given_columns,
    is_dataset,
    one_for_each,
    validate_weights,
)
from keras_bert.data.labels import LabelRules
from keras_bert.data.loader import Examples, Loader, RowsInMemory, to_indexed_batch
from keras_bert.data.texts import TextExamples, WindowExamples
from keras_bert.text.characters import check_characters

TEXT_FORMS = (
    "a string, a list of strings, a list of (a, b) pairs, a tuple of two lists, a dict with "
    '"text" and "text_pair", a table with these columns or a text column (pandas, polars, Arrow, '
    "Hugging Face datasets), or a tf.data.Dataset of these"
)
_DTYPES_OF_TEXT = ("str", "string", "large_string", "object")


@dataclasses.dataclass(frozen=True, eq=False)
class TextAdapter(InputAdapter):
    """Texts or text pairs in memory.

    Args:
        columns: `text` and, for pairs, `text_pair`: strings of shape `(rows,)`.
        labels: Targets of the loss, `(rows, ...)`.
        weights: Sample weights, float32 `(rows,)`.
        num_prompt_tokens: The number of tokens up to the end of the prompt at the start of each
            sequence, see `keras_bert.data.prompts.num_prompt_tokens`. Each window contains them.
        pools_prompt: Whether these tokens are pooled.
    """

    forms = TEXT_FORMS
    outputs_are_joined = True

    columns: dict[str, Any]
    labels: np.ndarray[Any, Any] | None = None
    weights: np.ndarray[Any, Any] | None = None
    num_prompt_tokens: int = 0
    pools_prompt: bool = True

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
        weights = None if sample_weight is None else validate_weights(sample_weight)
        if labels is not None:
            one_for_each(labels, texts, to_keras_batch=True)
        if weights is not None:
            one_for_each(weights, texts)
        return cls(columns, labels, weights)

    def __len__(self) -> int:
        return len(self.columns["text"])

    def __getitem__(self, rows: slice) -> Self:
        return dataclasses.replace(
            self,
            columns={name: column[rows] for name, column in self.columns.items()},
            labels=slice_rows(self.labels, rows),
            weights=slice_rows(self.weights, rows),
        )

    def batches(self, preprocessor: Any, options: BatchOptions) -> Batches:
        examples = self.examples(preprocessor)
        columns = given_columns(labels=self.labels, weights=self.weights)
        if isinstance(examples, WindowExamples):
            row = examples.windows.row
            columns = {name: column[row] for name, column in columns.items()}
        return Loader(RowsInMemory(examples, columns), preprocessor, options)

    def prediction_batches(
        self, preprocessor: Any, options: BatchOptions
    ) -> tuple[Batches, Restore]:
        examples = self.examples(preprocessor)
        restore = self.restore
        if isinstance(examples, WindowExamples):
            counts = examples.windows.counts
            merge = options.merge_windows or preprocessor.merge_windows

            def restore(outputs_of_batches: Iterable[BatchOutputs], shape: Any) -> Any:
                return merge(in_order(outputs_of_batches, shape), counts)

        return Loader(RowsInMemory(examples), preprocessor, options, to_indexed_batch), restore

    def to_memory(self, preprocessor: Any, options: BatchOptions, steps: int | None = None) -> Self:
        """Returns all texts, or the texts in the first `steps` batches."""
        return self if steps is None else self[slice(steps * options.rows_in_batch)]

    def examples(self, preprocessor: Any) -> Examples:
        """Returns the examples in the form for packing. Windows of long texts are examples."""
        if preprocessor.splits_texts:
            # Without [CLS]
            length = self.num_prompt_tokens - 1 if self.num_prompt_tokens else None
            return WindowExamples(self.columns, preprocessor, length, self.pools_prompt)
        num_unpooled = 0 if self.pools_prompt else self.num_prompt_tokens
        return TextExamples(self.columns, preprocessor, num_unpooled)

    def restore(self, outputs_of_batches: Iterable[BatchOutputs], shape: Any) -> Any:
        """Restores the order of the examples."""
        return in_order(outputs_of_batches, shape)


def is_text(x: Any) -> bool:
    """Returns whether `x` contains text rather than token ids."""
    if is_dataset(x):
        return is_text_spec(first_of_element(x.element_spec))
    columns = column_names(x)
    if columns is not None:
        return "text" in columns
    if isinstance(x, (str, bytes)):
        return True
    dtype = getattr(x, "dtype", getattr(x, "type", None))
    if hasattr(x, "dtype") and not isinstance(x, np.ndarray) and not hasattr(x, "to_numpy"):
        return getattr(dtype, "name", "") == "string"  # a tensor
    # Iterators are not read, because an element would be lost, and data loaders would start
    # loading.
    is_column = isinstance(x, Sized) and isinstance(x, Iterable) and hasattr(x, "__getitem__")
    is_column &= not is_a(x, "PyDataset", "keras.")  # It has batches instead of examples.
    if not is_column or getattr(x, "ndim", 1) == 0:
        return False
    if not len(x):
        # The dtype determines whether an empty series contains text. An empty NumPy array contains
        # ids.
        return isinstance(x, (list, tuple)) or str(dtype).lower() in _DTYPES_OF_TEXT
    first = next(iter(x))
    first = first.as_py() if hasattr(first, "as_py") else first  # an Arrow scalar
    if isinstance(first, Mapping) or (isinstance(first, (list, tuple)) and not first):
        return False
    return is_text(first)


def is_a(x: Any, name: str, module: str) -> bool:
    """Returns whether an object's class is from a library, without importing the library."""
    return any(cls.__name__ == name and cls.__module__.startswith(module) for cls in type(x).mro())


def is_text_spec(spec: object) -> bool:
    if isinstance(spec, Mapping):
        return "text" in spec
    if isinstance(spec, tuple):
        return is_text_spec(spec[0])
    return getattr(getattr(spec, "dtype", None), "name", "") == "string"


def text_columns(x: Any, first_row: int = 0) -> dict[str, np.ndarray]:
    """Converts text in any form except a dataset to the columns `text` and, for pairs, `text_pair`.

    A tuple of two sequences contains two columns, and a list of pairs contains examples. A column
    is an object array `(rows,)`. Error messages contain the index of the example, counted from
    `first_row`.
    """
    names = column_names(x)
    columns: dict[str, Any]
    if isinstance(x, (str, bytes)):
        columns = {"text": [x]}
    elif names is not None:
        columns = {name: as_list(x[name]) for name in ("text", "text_pair") if name in names}
    elif isinstance(x, tuple) and len(x) == 2 and not isinstance(x[0], (str, bytes)):
        columns = {"text": as_list(x[0]), "text_pair": as_list(x[1])}
    else:
        columns = _columns_of_rows(x, first_row)
    columns = {name: _texts(column, first_row) for name, column in columns.items()}
    check_lengths(columns)
    return columns


def _columns_of_rows(x: Any, first_row: int) -> dict[str, list[Any]]:
    if not hasattr(x, "__iter__"):
        raise ValueError(f"x must be {TEXT_FORMS}. Received: {x!r} of type {type(x).__name__}")
    rows = [np.asarray(x).item()] if getattr(x, "shape", None) == () else as_list(x)
    if not rows or not isinstance(rows[0], (list, tuple, np.ndarray)):
        return {"text": rows}
    for index, row in enumerate(rows, first_row):
        if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
            raise ValueError(f"Row {index} must be a pair of texts. Received: {row!r}")
        if len(row) != 2:
            raise ValueError(f"Row {index} must be a pair of texts. Received: {len(row)} texts")
    return {"text": [row[0] for row in rows], "text_pair": [row[1] for row in rows]}


def _texts(values: list[Any], first_row: int) -> np.ndarray:
    for index, value in enumerate(values, first_row):
        if not isinstance(value, (str, bytes)):
            raise ValueError(
                f"Row {index} must be text as {TEXT_FORMS}. Received: {value!r} of type "
                f"{type(value).__name__}"
            )
        check_characters(value, f"Row {index}")
    return np.array(values, dtype=object)


def single_texts(x: Any) -> list[str]:
    """Converts single texts in any form except a dataset to strings. Pairs raise an error."""
    columns = text_columns(x)
    if "text" not in columns or "text_pair" in columns:
        raise ValueError(f"x must be single texts. Received: the columns {list(columns)}")
    return [as_string(text) for text in columns["text"]]


def any_characters(columns: Mapping[str, np.ndarray]) -> bool:
    """Returns whether any text contains more than whitespace."""
    return any(text.strip() for column in columns.values() for text in column)

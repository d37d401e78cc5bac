# SPDX-License-Identifier: Apache-2.0
"""The text input of `fit`, `evaluate` and `predict`: reading, checking and batching.

`Rows` is the interface between a `Task` and its input. The subclasses for texts and pairs of texts
are in this file; tasks with another kind of input (words, questions, choices) have a subclass in
their own file. TensorFlow is imported only to create batches.
"""

from __future__ import annotations

import abc
import dataclasses
import numbers
import random
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from keras_bert.tasks.class_labels import LabelRules, checked_weights

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_bert.data.batching import BatchOptions

DEFAULT_BATCH_SIZE = 32
TEXT_FORMS = (
    "a string, a list of strings, a list of (a, b) pairs, a tuple of two lists, a dict of "
    '"text" and "text_pair", a pandas data frame of these columns or a series of texts, or a '
    "tf.data.Dataset of these"
)


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
        class_weight: The weight of each class id; `None` for 1.
        allow_unlabelled: Whether a label may be -1 (for regression NaN), which means that the row
            has none.
    """

    batch_size: int | None = None
    compiles: bool = False
    shuffle: bool = False
    reshuffle: bool = True
    training: bool = False
    length_window: int | None = None
    class_weight: Mapping[int, float] | None = None
    allow_unlabelled: bool = False

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}; it must be at least 1.")

    def options(self) -> BatchOptions:
        """Returns the `BatchOptions` of `keras_bert.data`."""
        options: BatchOptions = {
            "batch_size": self.batch_size or DEFAULT_BATCH_SIZE,
            # Python's generator is seeded by keras.utils.set_random_seed
            "shuffle_seed": random.getrandbits(31) if self.shuffle else None,
            "reshuffle": self.reshuffle,
            "coarse_buckets": self.compiles,
            "pad_last_batch": self.compiles and self.training,
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
        """
        start = int(len(self) * (1 - share))
        return self[:start], self[start:]

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
        if rules is not None and not len(columns["text"]):
            raise ValueError("There are no texts to train on, or to evaluate.")
        rules = rules or LabelRules()
        labels = None if y is None else rules.read(y)
        weights = None if sample_weight is None else checked_weights(sample_weight)
        for values in (labels, weights):
            if values is not None and len(values) != len(columns["text"]):
                raise ValueError(
                    f"There are {len(columns['text'])} texts and {len(values)} labels or weights; "
                    "expected one for each text."
                )
        if labels is not None:
            weights = rules.weigh(labels, weights)
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
                x, rules.num_ids, rules.class_weight, allow_unlabelled=rules.lowest == -1
            )
        )

    @property
    def has_labels(self) -> bool:
        """Whether its elements have labels."""
        return dataset_has_labels(self.dataset)

    def batches(self, preprocessor: Any, batching: Batching) -> tf.data.Dataset:
        from keras_bert.data import text_batches

        if text_batches.is_batched(self.dataset):
            return text_batches.batches_from_batched_rows(self.dataset, preprocessor)
        return text_batches.batches_from_rows(self.dataset, preprocessor, **batching.options())

    def numbered_batches(
        self, preprocessor: Any, batching: Batching
    ) -> tuple[tf.data.Dataset, Restore]:
        from keras_bert.data import text_batches

        rows = self.dataset.unbatch() if text_batches.is_batched(self.dataset) else self.dataset
        batches = text_batches.batches_from_rows(
            # (index, row), where the row is a tuple only if the dataset's elements are
            rows.enumerate().map(lambda index, row: (_without_labels(row), index)),
            preprocessor,
            **batching.options(),
        )
        return batches, _in_order


def _in_order(outputs_of_batches: Iterable[BatchOutputs], shape: Any) -> np.ndarray[Any, Any]:
    """Restores the order of outputs `(rows, ...)` by the indices of the rows."""
    batches = [(index, outputs) for _, index, outputs in outputs_of_batches]
    if not batches:
        return np.zeros((0, *shape[1:]), "float32")
    index, joined = (np.concatenate(part) for part in zip(*batches, strict=True))
    restored = np.empty_like(joined)
    restored[index] = joined
    return restored


def sliced(values: Any, rows: slice) -> Any:
    """Slices values, unless they are `None`."""
    return None if values is None else values[rows]


def is_dataset(x: object) -> bool:
    """Returns whether `x` is a `tf.data.Dataset`."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(x, tensorflow.data.Dataset)


def dataset_has_labels(dataset: tf.data.Dataset) -> bool:
    """Returns whether the elements of a dataset are `(x, labels)` or `(x, labels, weights)`."""
    spec = dataset.element_spec
    return isinstance(spec, tuple) and len(spec) > 1


def is_text(x: Any) -> bool:
    """Returns whether `x` is text in one of `TEXT_FORMS`, and not ids."""
    if is_dataset(x):
        return _is_text_spec(_first_of_element(x.element_spec))
    if has_columns(x):
        return "text" in x
    if isinstance(x, str):
        return True
    dtype = getattr(x, "dtype", None)
    if dtype is not None and not isinstance(x, np.ndarray) and not hasattr(x, "to_numpy"):
        return getattr(dtype, "name", "") == "string"
    # Iterators are not read: they would lose an element, and data loaders would start loading.
    if not isinstance(x, Collection) or getattr(x, "ndim", 1) == 0:
        return False
    if not len(x):
        # Of an empty series, the dtype tells; NumPy's are ids
        name = getattr(dtype, "name", "")
        return isinstance(x, (list, tuple)) or name in ("str", "string", "object")
    first = next(iter(x))
    while (isinstance(first, (list, tuple, np.ndarray)) or hasattr(first, "to_numpy")) and len(
        first
    ):
        first = next(iter(first))
    return isinstance(first, (str, bytes))


def listed(x: Any) -> Any:
    """Converts an iterator to a list; returns anything else unchanged."""
    return list(x) if isinstance(x, Iterator) else x


def checked_generator(x: Any) -> Any:
    """Wraps a generator of batches so that it raises an error for text; returns others unchanged.

    Raises:
        ValueError: When the generator yields text, since Keras takes only features from generators.
    """
    return _checked_batches(x) if isinstance(x, Generator) else x


def _checked_batches(batches: Generator[Any, Any, Any]) -> Generator[Any, None, None]:
    for batch in batches:
        if is_text(batch[0] if isinstance(batch, tuple) and batch else batch):
            raise ValueError(
                f"A generator yields text, {str(batch)[:80]!r}; expected batches of features from "
                f"a generator, or text as {TEXT_FORMS}."
            )
        yield batch


def refuse_other_rows(x: Any, forms: str) -> None:
    """Checks that input that is not recognized as text is not malformed text.

    Args:
        x: The input.
        forms: The forms of text that the task takes, for the error message.

    Raises:
        ValueError: If `x` is `None`, a list of plain numbers, or has columns of text with other
            names; or a row of a list or series is neither text nor numbers, or has numbers while
            other rows have text; the message names the row.
    """
    if x is None:
        raise ValueError(f"Received None; expected {forms}, or features.")
    columns = _first_of_element(x.element_spec) if is_dataset(x) else x
    has_text = is_data_frame(columns) or (
        isinstance(columns, Mapping)
        and any(is_text(column) or _is_text_spec(column) for column in columns.values())
    )
    if has_text and not is_text(x):
        raise ValueError(
            f"Received columns of text named {', '.join(map(str, columns))}; expected {forms}, "
            "or features."
        )
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


def is_data_frame(x: object) -> bool:
    """Returns whether `x` is a pandas data frame, without importing pandas."""
    return hasattr(x, "columns") and hasattr(x, "to_dict")


def has_columns(x: object) -> bool:
    """Returns whether `x` is a dict or data frame of columns."""
    return isinstance(x, Mapping) or is_data_frame(x)


def text_columns(x: Any) -> dict[str, np.ndarray]:
    """Converts text in any form but a dataset to the columns `text` and, for pairs, `text_pair`.

    A tuple of two sequences is two columns; a list of pairs is rows.

    Args:
        x: Text in one of `TEXT_FORMS`.

    Returns:
        A dict of the columns, each an array of objects `(rows,)`.

    Raises:
        ValueError: If the columns differ in length, or the form is not one of `TEXT_FORMS`.
    """
    if isinstance(x, str):
        return {"text": _column([x])}
    if has_columns(x):
        columns = {name: _column(x[name]) for name in ("text", "text_pair") if name in x}
    elif isinstance(x, tuple) and len(x) == 2 and not isinstance(x[0], (str, bytes)):
        columns = {"text": _column(x[0]), "text_pair": _column(x[1])}
    else:
        columns = _columns_of_rows(x)
    check_lengths(columns)
    return columns


def check_lengths(columns: Mapping[str, Sized]) -> None:
    """Checks that columns have the same number of rows.

    Raises:
        ValueError: If they do not; the message has the number of each.
    """
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The columns differ in length: {lengths}.")


def single_texts(x: Any) -> list[str]:
    """Converts single texts in any form but a dataset to a list of strings.

    Raises:
        ValueError: If a row is not text, or there are pairs.
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
                f"Row {wrong[0]} has {len(rows[wrong[0]])} texts; expected 2 in every row of pairs."
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


def _without_labels(row: Any) -> Any:
    """Returns the `x` of an element of a dataset.

    Raises:
        ValueError: If the element may be either a pair, or a text with its label.
    """
    if not isinstance(row, tuple):
        return row
    if len(row) == 2 and all(getattr(part, "dtype", None) == "string" for part in row):
        raise ValueError(
            "An element of two strings is either a pair of texts or a text and its label. "
            'For pairs, use dicts: {"text": ..., "text_pair": ...}.'
        )
    return row[0]


def _first_of_element(spec: Any) -> Any:
    return spec[0] if isinstance(spec, tuple) else spec


def _is_text_spec(spec: object) -> bool:
    if isinstance(spec, Mapping):
        return "text" in spec
    if isinstance(spec, tuple):
        return _is_text_spec(spec[0])
    return getattr(getattr(spec, "dtype", None), "name", "") == "string"


def as_given(x: Any, answers: list[dict[str, Any]]) -> Any:
    """Converts predictions to the form of the input.

    Args:
        x: A string; a pandas series or data frame; or any other batch.
        answers: A prediction for each row.

    Returns:
        A dict for a string; a data frame with the same index for a series or data frame; otherwise
        the list.
    """
    if isinstance(x, str):
        return answers[0]
    if hasattr(x, "index") and hasattr(x, "iloc"):
        import pandas  # installed, since `x` is a pandas object

        return pandas.DataFrame(answers, index=x.index)
    return answers

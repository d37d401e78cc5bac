# SPDX-License-Identifier: Apache-2.0
"""What users hand to `fit`, `evaluate` and `predict` instead of ids: text, read and checked.

`Rows` is all that a `Task` knows of its input. Texts and pairs of them are here; a task whose input
is of another kind (words, questions, choices) has a subclass in its own file. Nothing here needs
TensorFlow until batches are made.
"""

from __future__ import annotations

import abc
import dataclasses
import numbers
import random
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from keras_bert.tasks.class_labels import LabelRules

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_bert.data.batching import BatchOptions

DEFAULT_BATCH_SIZE = 32
TEXT_FORMS = (
    "a string, a list of strings, a list of (a, b) pairs, a tuple of two lists, a dict of "
    '"text" and "text_pair", a pandas data frame of these columns or a series of texts, or a '
    "tf.data.Dataset of these"
)


# The features of a batch, what else is in it (which rows they are), and the model's outputs
BatchOutputs = tuple[Any, Any, Any]
# Puts the outputs of batches into the order and nesting of the input; the second argument is the
# model's output shape, for an input without rows
Restore = Callable[[Iterable[BatchOutputs], Any], Any]


@dataclasses.dataclass(frozen=True)
class Batching:
    """How the rows of one call of `fit`, `evaluate` or `predict` become batches.

    Args:
        batch_size: Rows in a batch; `None` takes the default.
        compiles: Whether a batch of a new shape costs seconds of compilation.
        shuffle: Whether the order of the rows is random.
        reshuffle: Whether it is another one in each iteration.
        training: Whether the rows are `fit`'s own. Their last batch is filled up where one of
            another size costs seconds.
        length_window: How many batches are sorted by length among themselves; `None` takes the
            default.
        class_weight: What a label of each class id weighs; `None` for 1.
        allow_unlabelled: Whether a label may be -1, or NaN of a regression, for none.
    """

    batch_size: int | None = None
    compiles: bool = False
    shuffle: bool = False
    reshuffle: bool = True
    training: bool = False
    length_window: int | None = None
    class_weight: Mapping[int, float] | None = None
    allow_unlabelled: bool = False

    def options(self) -> BatchOptions:
        """What the pipelines of `keras_bert.data` take."""
        options: BatchOptions = {
            "batch_size": self.batch_size or DEFAULT_BATCH_SIZE,
            # From Python's generator, which keras.utils.set_random_seed seeds
            "shuffle_seed": random.getrandbits(31) if self.shuffle else None,
            "reshuffle": self.reshuffle,
            "coarse_buckets": self.compiles,
            "pad_last_batch": self.compiles and self.training,
        }
        if self.length_window is not None:
            options["window_batches"] = self.length_window
        return options


class Rows(abc.ABC):
    """Input of one kind, read and checked: the seam between a `Task` and its data."""

    # What users may give, for errors
    forms: ClassVar[str]
    # Whether the rows are in memory, so that the last ones can be held out
    in_memory: ClassVar[bool] = True
    # Whether the labels are part of `x`
    has_own_labels: ClassVar[bool] = False
    # Whether a row's outputs are as wide as any other's, so that Keras can join those of batches
    outputs_are_joined: ClassVar[bool] = False

    @classmethod
    @abc.abstractmethod
    def matches(cls, x: object) -> bool:
        """Whether `x` is of this kind, rather than features."""

    @classmethod
    @abc.abstractmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        """Reads what a user gave.

        Args:
            x: Input that `matches`.
            y: Labels, one for each row or as the input is nested; `None` for none.
            sample_weight: The labels' weights, likewise.
            rules: Which labels there may be; `None` where only `x` is looked at.

        Raises:
            ValueError: If a row, a label or a weight is malformed; the message names its row.
        """

    def split(self, share: float) -> tuple[Self, Self]:
        """All rows but the last ones, and these: a share of the rows, as Keras holds them out."""
        raise NotImplementedError

    @abc.abstractmethod
    def batches(self, preprocessor: Any, batching: Batching) -> tf.data.Dataset:
        """Batches to train or evaluate on: `(features, labels, weights)`, as far as there are any.

        Args:
            preprocessor: Makes features of rows.
            batching: How.
        """

    @abc.abstractmethod
    def numbered_batches(
        self, preprocessor: Any, batching: Batching
    ) -> tuple[tf.data.Dataset, Restore]:
        """Batches to predict on, and what puts their outputs into the order of the input.

        Args:
            preprocessor: Makes features of rows.
            batching: How.

        Returns:
            A dataset of `(features, index)`, where `index` says which rows a batch has; and a
            function of the features, index and outputs of each batch, NumPy arrays, and of the
            model's output shape.
        """


@dataclasses.dataclass(frozen=True, eq=False)
class TextRows(Rows):
    """Texts or pairs of texts in memory.

    Args:
        columns: `text` and, for pairs, `text_pair`: strings `(rows,)`.
        labels: As the loss wants them, `(rows, ...)`.
        weights: float32 `(rows,)`.
    """

    forms = TEXT_FORMS
    outputs_are_joined = True

    columns: dict[str, np.ndarray[Any, Any]]
    labels: np.ndarray[Any, Any] | None = None
    weights: np.ndarray[Any, Any] | None = None

    @classmethod
    def matches(cls, x: object) -> bool:
        return is_text(x) and not is_dataset(x)

    @classmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        columns, rules = text_columns(x), rules or LabelRules()
        labels = None if y is None else rules.read(y)
        weights = None if sample_weight is None else np.asarray(sample_weight, "float32")
        for values in (labels, weights):
            if values is not None and len(values) != len(columns["text"]):
                raise ValueError(
                    f"There are {len(columns['text'])} texts and {len(values)} labels or weights; "
                    "each text needs one."
                )
        if labels is not None:
            weights = rules.weigh(labels, weights)
        return cls(columns, labels, weights)

    def split(self, share: float) -> tuple[Self, Self]:
        first, last = (
            dataclasses.replace(
                self,
                columns={name: column[rows] for name, column in self.columns.items()},
                labels=sliced(self.labels, rows),
                weights=sliced(self.weights, rows),
            )
            for rows in held_out_slices(len(self.columns["text"]), share)
        )
        return first, last

    def batches(self, preprocessor: Any, batching: Batching) -> tf.data.Dataset:
        from keras_bert.data import text_batches

        rest = [values for values in (self.labels, self.weights) if values is not None]
        rows = text_batches.rows_from_columns(self.columns, rest)
        return text_batches.batches_from_rows(rows, preprocessor, **batching.options())

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
        dataset: Of `x`, `(x, labels)` or `(x, labels, weights)`.
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

        if y is not None:
            raise ValueError("`y` must be left out: a dataset of text brings its labels.")
        if sample_weight is not None:
            raise ValueError(
                "sample_weight must be left out: a dataset of text brings its weights, as "
                "(text, label, weight)."
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
        spec = self.dataset.element_spec
        return isinstance(spec, tuple) and len(spec) > 1

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
            # An element that is no tuple arrives whole, a tuple as several arguments
            rows.enumerate().map(lambda index, row: (_without_labels(row), index)),
            preprocessor,
            **batching.options(),
        )
        return batches, _in_order


def _in_order(outputs_of_batches: Iterable[BatchOutputs], shape: Any) -> np.ndarray[Any, Any]:
    """Outputs `(rows, ...)` by the numbers of the rows."""
    batches = [(index, outputs) for _, index, outputs in outputs_of_batches]
    if not batches:
        return np.zeros((0, *shape[1:]), "float32")
    index, joined = (np.concatenate(part) for part in zip(*batches, strict=True))
    restored = np.empty_like(joined)
    restored[index] = joined
    return restored


def held_out_slices(num_rows: int, share: float) -> tuple[slice, slice]:
    """All rows but the last ones, and these, as Keras holds a share of arrays out."""
    start = int(num_rows * (1 - share))
    return slice(start), slice(start, None)


def sliced(values: Any, rows: slice) -> Any:
    """Some of the values; `None` where there are none."""
    return None if values is None else values[rows]


def is_dataset(x: object) -> bool:
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


def _leaves(row: object) -> Iterator[Any]:
    if not isinstance(row, (list, tuple)):
        yield row
        return
    for part in row:
        yield from _leaves(part)


def _is_number(x: object) -> bool:
    return isinstance(x, numbers.Number) or hasattr(x, "shape")


def is_data_frame(x: object) -> bool:
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


def _without_labels(row: Any) -> Any:
    """The `x` of a dataset's element.

    Raises:
        ValueError: If the element could be a pair as well as a text with its label.
    """
    if not isinstance(row, tuple):
        return row
    if len(row) == 2 and all(getattr(part, "dtype", None) == "string" for part in row):
        raise ValueError(
            "An element of two strings may be a pair of texts or a text and its label. "
            'Name the parts of a pair: {"text": ..., "text_pair": ...}.'
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
    """Answers in the form of what was asked.

    Args:
        x: A string, which has one answer; a series or data frame of pandas; or any other batch.
        answers: One for each row.

    Returns:
        A dict for a string; a data frame with the index of a series or data frame; else the list.
    """
    if isinstance(x, str):
        return answers[0]
    if hasattr(x, "index") and hasattr(x, "iloc"):
        import pandas  # is there: `x` is of it

        return pandas.DataFrame(answers, index=x.index)
    return answers

# SPDX-License-Identifier: Apache-2.0
"""The forms in which `fit`, `evaluate` and `predict` take text, words, choices and questions.

For each kind of input there is a function that recognizes it, which features are not, and one that
checks it and converts it to columns or examples. Nothing here imports TensorFlow: ids are
recognized where it is missing, too.
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set, Sized
from typing import Any

import numpy as np

from keras_bert import checks
from keras_bert.data.squad import QuestionExample, SpanAnswer, check_span
from keras_bert.text.characters import check_characters

TEXT_FORMS = (
    "a string, a list of strings, a list of (a, b) pairs, a tuple of two lists, a dict of "
    '"text" and "text_pair", a table of these columns or a column of texts (pandas, polars, Arrow, '
    "Hugging Face datasets), or a tf.data.Dataset of these"
)
CHOICE_FORMS = (
    "a list of (text, [choice, choice, …]) pairs, a tuple of a list of texts and a list of their "
    'lists of choices, or a dict or table of "text" and "choices"'
)
QUESTION_FORMS = (
    'a list of dicts of "question", "context" and "answers", a dict or table of such columns, or a '
    "list of QuestionExamples"
)
_QUESTION_FIELDS = ("id", "question", "context", "answers")
_DTYPES_OF_TEXT = ("str", "string", "large_string", "object")
# The names of the levels of nesting, for error messages
_PARTS = {1: "words", 2: "sentences", 3: "documents"}


# === Any input ===


def is_dataset(x: object) -> bool:
    """Returns whether `x` is a `tf.data.Dataset`."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(x, tensorflow.data.Dataset)


def dataset_has_labels(dataset: Any) -> bool:
    """Returns whether the elements of a dataset are `(x, labels)` or `(x, labels, weights)`."""
    spec = dataset.element_spec
    return isinstance(spec, tuple) and len(spec) > 1


def column_names(x: Any) -> tuple[Any, ...] | None:
    """Returns the names of the columns of a dict or table, without importing its library.

    Args:
        x: A dict; a data frame of pandas or polars; an Arrow table; a data set of Hugging Face's
            `datasets`, unless it is streamed; or anything else.

    Returns:
        The names, which index `x`; `None` for anything else.
    """
    if isinstance(x, Mapping):
        return tuple(x)
    if hasattr(x, "column_names") and hasattr(x, "__len__"):  # Arrow and `datasets`
        return tuple(x.column_names)
    return tuple(x.columns) if hasattr(x, "to_dict") and hasattr(x, "columns") else None


def label_column(x: Any, class_names: Sequence[str] | None = None) -> list[Any] | None:
    """Returns the column `label` of a dict or table; `None` if there is none.

    Args:
        x: The input.
        class_names: The names of the task's classes. If the ids in a data set of Hugging Face's
            `datasets` have names too, then these are returned, since their order may be another.
    """
    if "label" not in (column_names(x) or ()):
        return None
    labels = as_list(x["label"])
    features = getattr(x, "features", None)
    names = getattr(features["label"], "names", None) if isinstance(features, Mapping) else None
    if names and class_names is not None:
        return [names[label] if label is not None and label >= 0 else label for label in labels]
    return labels


def as_list(values: Any) -> list[Any]:
    """Converts a column to a list of Python's values.

    Args:
        values: A list, an array, a tensor of any backend, a series of pandas or polars, a column of
            an Arrow table or of a data set of Hugging Face's, or another iterable.

    Raises:
        ValueError: If it is a string: its characters would become rows.
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


def columns_of_rows(
    rows: Sequence[Mapping[str, Any]], fields: Sequence[str], optional_fields: Sequence[str] = ()
) -> dict[str, list[Any]]:
    """Converts rows to columns.

    Args:
        rows: The rows, each a dict of its fields. Other entries are ignored.
        fields: The names of the fields that all rows have.
        optional_fields: The names of those that all rows have or none.

    Returns:
        A dict of the list of values of each field.

    Raises:
        ValueError: If a row lacks a field; the message names the row.
    """
    present = [name for name in optional_fields if any(name in row for row in rows)]
    columns: dict[str, list[Any]] = {name: [] for name in (*fields, *present)}
    for index, row in enumerate(rows):
        for name, column in columns.items():
            if name not in row:
                raise ValueError(f"Row {index} has no {name}; it has {', '.join(row)}.")
            column.append(row[name])
    return columns


def check_lengths(columns: Mapping[str, Sized]) -> None:
    """Checks that columns have the same number of rows.

    Raises:
        ValueError: If they do not; the message has the number of each.
    """
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"The columns differ in length: {lengths}.")


def split_index(num_rows: int, share: float) -> int:
    """Returns the number of rows to train on, if a fraction of them is for validation.

    Raises:
        ValueError: If no rows are left to train on, or none for validation.
    """
    start = int(num_rows * (1 - share))
    if not 0 < start < num_rows:
        raise ValueError(
            f"validation_split is {share}, and there are {num_rows} rows; expected a fraction that "
            "leaves rows to train on and holds out others."
        )
    return start


def listed(x: Any) -> Any:
    """Converts an iterator to a list; returns anything else unchanged."""
    return list(x) if isinstance(x, Iterator) else x


def as_given(x: Any, answers: list[Any]) -> Any:
    """Converts predictions to the form of the input.

    Args:
        x: A string; a pandas series or data frame; or any other batch.
        answers: A prediction for each row: a dict, or a list of dicts.

    Returns:
        A single prediction for a string; for a series or data frame a data frame with the same
        index, or a series if predictions are lists; otherwise the list.
    """
    if isinstance(x, str):
        return answers[0]
    if hasattr(x, "index") and hasattr(x, "iloc"):
        import pandas  # installed, since `x` is a pandas object

        form = pandas.Series if answers and isinstance(answers[0], list) else pandas.DataFrame
        return form(answers, index=x.index)
    return answers


def first_of_element(spec: Any) -> Any:
    """Returns the spec of `x` from a dataset's element spec, with labels or without."""
    return spec[0] if isinstance(spec, tuple) else spec


# === Texts and pairs of texts ===


def is_text(x: Any) -> bool:
    """Returns whether `x` is text in one of `TEXT_FORMS`, and not ids."""
    if is_dataset(x):
        return _is_text_spec(first_of_element(x.element_spec))
    columns = column_names(x)
    if columns is not None:
        return "text" in columns
    if isinstance(x, (str, bytes)):
        return True
    dtype = getattr(x, "dtype", getattr(x, "type", None))
    if hasattr(x, "dtype") and not isinstance(x, np.ndarray) and not hasattr(x, "to_numpy"):
        return getattr(dtype, "name", "") == "string"  # a tensor
    # Iterators are not read: they would lose an element, and data loaders would start loading.
    is_column = isinstance(x, Sized) and isinstance(x, Iterable) and hasattr(x, "__getitem__")
    if not is_column or getattr(x, "ndim", 1) == 0:
        return False
    if not len(x):
        # Of an empty series, the dtype tells; NumPy's are ids
        return isinstance(x, (list, tuple)) or str(dtype).lower() in _DTYPES_OF_TEXT
    first = next(iter(x))
    first = first.as_py() if hasattr(first, "as_py") else first  # a scalar of Arrow
    if isinstance(first, Mapping) or (isinstance(first, (list, tuple)) and not first):
        return False
    return is_text(first)


def _is_text_spec(spec: object) -> bool:
    if isinstance(spec, Mapping):
        return "text" in spec
    if isinstance(spec, tuple):
        return _is_text_spec(spec[0])
    return getattr(getattr(spec, "dtype", None), "name", "") == "string"


def text_columns(x: Any, first_row: int = 0) -> dict[str, np.ndarray]:
    """Converts text in any form but a dataset to the columns `text` and, for pairs, `text_pair`.

    A tuple of two sequences is two columns; a list of pairs is rows.

    Args:
        x: Text in one of `TEXT_FORMS`.
        first_row: The index of the first row, for error messages.

    Returns:
        A dict of the columns, each an array of objects `(rows,)`.

    Raises:
        ValueError: If the columns differ in length, the form is not one of `TEXT_FORMS`, or UTF-8
            cannot represent a text; the message names the row.
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
        raise ValueError(f"Received {x!r} of type {type(x).__name__}; expected {TEXT_FORMS}.")
    rows = [np.asarray(x).item()] if getattr(x, "shape", None) == () else as_list(x)
    if not rows or not isinstance(rows[0], (list, tuple, np.ndarray)):
        return {"text": rows}
    for index, row in enumerate(rows, first_row):
        if isinstance(row, (str, bytes)) or not hasattr(row, "__len__"):
            raise ValueError(f"Row {index} is {row!r}; expected 2 texts in every row of pairs.")
        if len(row) != 2:
            raise ValueError(f"Row {index} has {len(row)} texts; expected 2 in every row of pairs.")
    return {"text": [row[0] for row in rows], "text_pair": [row[1] for row in rows]}


def _texts(values: list[Any], first_row: int) -> np.ndarray:
    for index, value in enumerate(values, first_row):
        if not isinstance(value, (str, bytes)):
            raise ValueError(
                f"Row {index} is {value!r} of type {type(value).__name__}; expected text as "
                f"{TEXT_FORMS}."
            )
        check_characters(value, f"Row {index}")
    return np.array(values, dtype=object)


def single_texts(x: Any) -> list[str]:
    """Converts single texts in any form but a dataset to a list of strings.

    Raises:
        ValueError: If a row is not text, or there are pairs.
    """
    columns = text_columns(x)
    if "text" not in columns or "text_pair" in columns:
        raise ValueError(f"Received the columns {list(columns)}; expected single texts.")
    return [as_string(text) for text in columns["text"]]


def as_string(text: str | bytes) -> str:
    """Converts UTF-8 to a string, without invalid bytes."""
    return text.decode("utf-8", "ignore") if isinstance(text, bytes) else str(text)


def any_characters(columns: Mapping[str, np.ndarray]) -> bool:
    """Returns whether any text in `text_columns` is neither empty nor blank."""
    return any(text.strip() for column in columns.values() for text in column)


def without_labels(row: Any) -> Any:
    """Returns the `x` of an element of a dataset.

    Raises:
        ValueError: If the element may be either a pair, or a text with its label.
    """
    if not isinstance(row, tuple):
        return row
    is_pair = isinstance(row[0], (Mapping, tuple))
    if len(row) == 2 and not is_pair and all(map(is_text, row)):
        raise ValueError(
            "An element of two strings is either a pair of texts or a text and its label. "
            'For pairs, use dicts: {"text": ..., "text_pair": ...}.'
        )
    return row[0]


def checked_generator(x: Any) -> Any:
    """Wraps a generator of batches of features so that it raises an error for wrong weights."""
    return _checked_batches(x) if isinstance(x, Generator) else x


def _checked_batches(batches: Generator[Any, Any, Any]) -> Generator[Any, None, None]:
    for batch in batches:
        if isinstance(batch, tuple) and len(batch) == 3:
            check_weights(batch[2])
        yield batch


def checked_weights(sample_weight: Any, first_row: int = 0) -> np.ndarray[Any, Any]:
    """Converts sample weights to a float32 array.

    Args:
        sample_weight: The weight of each row.
        first_row: The index of the first of them, for the error message.

    Raises:
        ValueError: If a weight is not a finite number of at least 0; the message names its row.
    """
    try:
        weights = np.atleast_1d(as_array(sample_weight)).astype("float32")
    except (TypeError, ValueError) as error:
        raise ValueError(f"The sample weights are not numbers: {error}.") from error
    wrong = np.argwhere(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise ValueError(
            f"The sample weight in row {first_row + wrong[0][0]} is {weights[tuple(wrong[0])]}; it "
            f"must be {checks.NON_NEGATIVE}."
        )
    return weights


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
        or any(is_text(column) or _is_text_spec(column) for column in columns.values())
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


# === Words ===


def word_depth(x: Any) -> int | None:
    """Returns the nesting depth of strings: 0 for a string, 2 for a list of lists of strings.

    Empty lists count as lists of strings. For anything but strings, `None` is returned.
    """
    if isinstance(x, (str, bytes)):
        return 0
    if isinstance(x, np.ndarray) and x.dtype.kind not in "OUS":
        return None
    if getattr(getattr(x, "dtype", None), "name", "") == "string":
        return len(x.shape)
    if hasattr(x, "to_pylist"):
        x = x.to_pylist()
    # Iterators are not read: their elements would be lost, and they may be infinite.
    is_nested = isinstance(x, Sized) and isinstance(x, Iterable)
    if not is_nested or column_names(x) is not None or hasattr(x, "element_spec"):
        return None
    depths = [word_depth(item) for item in x]
    if None in depths:
        return None
    return 1 + max((depth for depth in depths if depth is not None), default=0)


def as_lists(x: Any) -> Any:
    """Converts words in any form, such as a ragged tensor, to a string or lists of strings."""
    if getattr(x, "shape", None) == ():
        return np.asarray(x).item()
    return x if isinstance(x, (str, bytes, list, tuple)) else as_list(x)


def check_words(words: Any, depth: int, path: tuple[int, ...] = ()) -> None:
    """Checks that UTF-8 can represent all texts or words.

    Args:
        words: A text (`depth` 0), texts (1), sentences (2) or documents (3).
        depth: The nesting depth.
        path: The indices of `words` in the input.

    Raises:
        ValueError: If it cannot; the message says where.
    """
    if depth:
        for index, part in enumerate(words):
            check_words(part, depth - 1, (*path, index))
    elif isinstance(words, str) and not words.isascii():
        check_characters(words, _where(path[:1] if len(path) < 3 else path[:2]))


def flat_labels(words: Sequence[Any], labels: Sequence[Any], depth: int) -> list[Any]:
    """Flattens the labels of words.

    Args:
        words: Sentences (`depth` 2) or documents (`depth` 3).
        labels: Labels or weights, in the same nesting.
        depth: The nesting depth of the words.

    Returns:
        A list of one label for each word.

    Raises:
        ValueError: If the numbers of labels and words differ; the message says where.
    """
    flat: list[Any] = []
    _flatten(words, labels, depth, (), flat)
    return flat


def _flatten(words: Any, labels: Any, depth: int, path: tuple[int, ...], flat: list[Any]) -> None:
    if isinstance(labels, (str, bytes)) or not hasattr(labels, "__len__"):
        raise ValueError(f"{_where(path)} has the labels {labels!r}; expected a list.")
    if len(words) != len(labels):
        raise ValueError(
            f"{_where(path)} has {len(words)} {_PARTS[depth]} and labels or weights for "
            f"{len(labels)}; each needs one."
        )
    if depth == 1:
        flat.extend(labels)
        return
    for index, (part, its_labels) in enumerate(zip(words, labels, strict=True)):
        _flatten(part, its_labels, depth - 1, (*path, index), flat)


def _where(path: tuple[int, ...]) -> str:
    if not path:
        return "The input"
    if len(path) == 1:
        return f"Row {path[0]}"
    return f"Sentence {path[1]} of document {path[0]}"


# === Choices ===


def is_choices(x: Any) -> bool:
    """Returns whether `x` is texts with choices in one of `CHOICE_FORMS`, and not ids."""
    columns = column_names(x)
    if columns is not None:
        return "choices" in columns
    if not isinstance(x, (tuple, list)):
        return False
    if not x:
        return True
    first = x[0]
    return isinstance(first, str) or (
        isinstance(first, (tuple, list)) and (not first or isinstance(first[0], str))
    )


def is_single_choice(x: object) -> bool:
    """Returns whether `x` is a single text with its choices."""
    return isinstance(x, (tuple, list)) and len(x) == 2 and isinstance(x[0], str)


def choice_columns(x: Any) -> tuple[list[str], list[list[str]]]:
    """Converts texts with choices in any of `CHOICE_FORMS` to two lists.

    Returns:
        A tuple of the list of texts, and of the list of the choices of each text.

    Raises:
        ValueError: If the form is not one of `CHOICE_FORMS`, the numbers of texts and of lists of
            choices differ, or a row has no choice; the message names the row.
    """
    columns = column_names(x)
    if columns is not None:
        missing = {"text", "choices"} - set(columns)
        if missing:
            raise ValueError(f"`{missing.pop()}` is missing; expected {CHOICE_FORMS}.")
        texts, choices = x["text"], x["choices"]
    elif is_single_choice(x):
        texts, choices = [x[0]], [x[1]]
    elif isinstance(x, tuple) and len(x) == 2:
        texts, choices = x
    else:
        if not hasattr(x, "__iter__"):
            raise ValueError(f"Received {x!r} of type {type(x).__name__}; expected {CHOICE_FORMS}.")
        wrong = next((i for i, row in enumerate(x) if not is_single_choice(row)), None)
        if wrong is not None:
            raise ValueError(
                f"Row {wrong} is {x[wrong]!r} of type {type(x[wrong]).__name__}; expected "
                f"{CHOICE_FORMS}."
            )
        texts, choices = [row[0] for row in x], [row[1] for row in x]
    texts = as_list(texts)
    choices = [_checked_choices(row, index) for index, row in enumerate(as_list(choices))]
    if len(texts) != len(choices):
        raise ValueError(
            f"There are {len(texts)} texts and {len(choices)} lists of choices; expected one for "
            "each text."
        )
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"The text of row {index} is {text!r}; expected a string.")
        check_characters(text, f"The text of row {index}")
    return texts, choices


def choice_labels(labels: Any, choices: Sequence[Sequence[str]]) -> np.ndarray[Any, Any]:
    """Checks labels, the index of the right choice of each row.

    Returns:
        An int32 array `(rows,)`.

    Raises:
        ValueError: If there is not one for each row, or one is not the index of a choice.
    """
    array = one_for_each(as_array(labels), choices)
    for index, (label, own) in enumerate(zip(array, choices, strict=True)):
        if array.dtype.kind not in "iu" or not 0 <= label < len(own):
            raise ValueError(
                f"The label of row {index} is {label!r}; expected the index of one of its "
                f"{len(own)} choices, an integer from 0."
            )
    return array.astype("int32")


def one_for_each(
    values: np.ndarray[Any, Any], rows: Sized, *, with_columns: bool = False
) -> np.ndarray[Any, Any]:
    """Checks that there is one label or weight for each row; returns them unchanged.

    Args:
        values: The labels or weights.
        rows: The rows.
        with_columns: Whether labels may have more axes, such as one-hot labels.

    Raises:
        ValueError: If their shape is not `(rows,)`, or `(rows, ...)` with `with_columns`.
    """
    if (values.shape[:1] if with_columns else values.shape) != (len(rows),):
        raise ValueError(
            f"There are {len(rows)} texts and labels or weights of shape {values.shape}; expected "
            "one for each text."
        )
    return values


def _checked_choices(choices: Any, row: int) -> list[str]:
    if isinstance(choices, str) or not hasattr(choices, "__iter__"):
        raise ValueError(f"The choices of row {row} are {choices!r}; expected a list of strings.")
    own: list[str] = list(choices)
    if not own or not all(isinstance(choice, str) for choice in own):
        raise ValueError(f"The choices of row {row} are {choices!r}; expected at least one string.")
    for index, choice in enumerate(own):
        check_characters(choice, f"Choice {index} of row {row}")
    return own


# === Questions on passages ===


def is_questions(x: Any) -> bool:
    """Returns whether `x` is questions in one of `QUESTION_FORMS`, and not ids."""
    columns = column_names(x)
    if columns is not None:
        return "question" in columns
    if not isinstance(x, (list, tuple)):
        return False
    if not x:
        return True
    return "question" in x[0] if isinstance(x[0], Mapping) else hasattr(x[0], "question")


def question_examples(x: Any) -> list[QuestionExample]:
    """Converts questions in any of `QUESTION_FORMS` to examples.

    Args:
        x: The questions. The id of a question without `id` is its index.

    Raises:
        ValueError: If a question lacks a field, or an answer is not in the passage at its offset;
            the message names the question.
    """
    names = column_names(x)
    rows = x if names is None else _rows_of_columns(x, names)
    return [_example(row, index) for index, row in enumerate(rows)]


def _rows_of_columns(x: Any, names: Sequence[Any]) -> Iterator[dict[str, Any]]:
    columns = {name: as_list(x[name]) for name in _QUESTION_FIELDS if name in names}
    check_lengths(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _example(row: Any, index: int) -> QuestionExample:
    where = f"Question {index}"
    if isinstance(row, QuestionExample):
        for name in ("question", "context"):
            check_characters(getattr(row, name), f"{where}: {name}")
        _answers(row.answers, row.context, where)
        return row
    if not isinstance(row, Mapping):
        raise ValueError(f"{where} is {row!r}; expected {QUESTION_FORMS}.")
    question, context = (_text(row, name, where) for name in ("question", "context"))
    answers = _answers(row.get("answers"), context, where)
    return QuestionExample(str(row.get("id", index)), question, context, answers)


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise ValueError(
            f"{where}: {name} is {value!r} of type {type(value).__name__}; expected a string."
        )
    check_characters(value, f"{where}: {name}")
    return value


def _answers(answers: Any, context: str, where: str) -> tuple[SpanAnswer, ...] | None:
    """Converts answers, a list of dicts as in SQuAD files or a dict of two lists, to spans."""
    if answers is None:
        return None
    if isinstance(answers, Mapping):
        texts, starts = _field(answers, "text", where), _field(answers, "answer_start", where)
        if len(texts) != len(starts):
            raise ValueError(
                f"{where}: its answers have {len(texts)} texts and {len(starts)} values of "
                "answer_start; expected one for each text."
            )
        answers = [
            {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
        ]
    if isinstance(answers, str) or not hasattr(answers, "__iter__"):
        raise ValueError(
            f"{where}: answers is {answers!r} of type {type(answers).__name__}; expected a list."
        )
    spans = tuple(
        answer
        if isinstance(answer, SpanAnswer)
        else SpanAnswer(_field(answer, "text", where), int(_field(answer, "answer_start", where)))
        for answer in answers
    )
    for span in spans:
        check_span(span.text, span.start, context, where)
    return spans


def _field(answer: Any, name: str, where: str) -> Any:
    if not isinstance(answer, Mapping) or name not in answer:
        raise ValueError(f'{where}: an answer is {answer!r}; expected "text" and "answer_start".')
    return answer[name]


def paired(question: Any, context: Any) -> tuple[list[str], list[str]]:
    """Converts questions and passages to two lists of the same length.

    Args:
        question: A string or a list of strings.
        context: A string for all questions, or a list of strings.

    Raises:
        ValueError: If the lists differ in length, an argument is not a string or a list, or UTF-8
            cannot represent a text; the message names the question.
    """
    if isinstance(question, str):
        question = [question]
    for name, value in (("question", question), ("context", context)):
        if not hasattr(value, "__iter__"):
            raise ValueError(
                f"{name} is {value!r} of type {type(value).__name__}; expected a string or a list "
                "of strings."
            )
    questions: Sequence[str] = list(question)
    contexts = [context] * len(questions) if isinstance(context, str) else list(context)
    if len(questions) != len(contexts):
        raise ValueError(f"There are {len(questions)} questions and {len(contexts)} contexts.")
    for index, pair in enumerate(zip(questions, contexts, strict=True)):
        for name, text in zip(("question", "context"), pair, strict=True):
            check_characters(text, f"Question {index}: {name}")
    return list(questions), contexts

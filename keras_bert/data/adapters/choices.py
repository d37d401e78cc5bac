# SPDX-License-Identifier: Apache-2.0
"""Reads texts with their choices, for multiple choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np

from keras_bert.data.adapters.base import BatchOutputs
from keras_bert.data.adapters.texts import TextAdapter
from keras_bert.data.choices import ChoiceExamples
from keras_bert.data.columns import as_list, column_names, one_for_each, validate_weights
from keras_bert.data.labels import LabelRules, array_of_labels, reject_missing
from keras_bert.data.loader import Examples
from keras_bert.text.characters import check_characters

CHOICE_FORMS = (
    "a list of (text, [choice, choice, …]) pairs, a tuple with a list of texts and a list of their "
    'choices (each a list), or a dict or table with "text" and "choices"'
)
# The logit of missing choices, the same as in the model
_NO_CHOICE = -1e9


@dataclasses.dataclass(frozen=True, eq=False)
class ChoiceAdapter(TextAdapter):
    """Texts with their choices.

    The labels are the indices of the correct choices, or with `LabelRules.may_be_numbers` the
    scores of all choices.
    """

    forms = CHOICE_FORMS
    outputs_are_joined = False

    @classmethod
    def matches(cls, x: object) -> bool:
        return is_choices(x)

    @classmethod
    def read(
        cls, x: Any, y: Any = None, sample_weight: Any = None, rules: LabelRules | None = None
    ) -> Self:
        texts, choices = choice_columns(x)
        columns = {"text": texts, "choices": choices}
        if rules is None:
            return cls(columns)
        if y is None:
            values = "the index of the correct choice"
            if rules.may_be_numbers:
                values = "a list with the score of each choice"
            raise ValueError(f"y must be {values} for each text. Received: None")
        read_labels = choice_scores if rules.may_be_numbers else choice_labels
        labels = read_labels(y, choices)
        weights = sample_weight
        if weights is not None:
            weights = one_for_each(validate_weights(weights), texts)
        return cls(columns, labels, weights)

    def examples(self, preprocessor: Any) -> Examples:
        return ChoiceExamples(self.columns["text"], self.columns["choices"], preprocessor)

    def restore(self, outputs_of_batches: Iterable[BatchOutputs], shape: Any) -> Any:
        shape = (len(self), max(map(len, self.columns["choices"]), default=0))
        logits = np.full(shape, _NO_CHOICE, "float32")
        for _, rows, outputs in outputs_of_batches:
            logits[rows, : outputs.shape[1]] = outputs
        return logits


def is_choices(x: Any) -> bool:
    """Returns whether `x` contains texts with choices rather than token ids."""
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
    """Converts texts with choices in any of `CHOICE_FORMS` to lists of texts and their choices.

    Raises:
        ValueError: If an example is invalid. The message contains its index.
    """
    columns = column_names(x)
    if columns is not None:
        absent_columns = {"text", "choices"} - set(columns)
        if absent_columns:
            raise ValueError(
                f"x must be {CHOICE_FORMS}. Received: no column {absent_columns.pop()!r}"
            )
        texts, choices = x["text"], x["choices"]
    elif is_single_choice(x):
        texts, choices = [x[0]], [x[1]]
    elif isinstance(x, tuple) and len(x) == 2:
        texts, choices = x
    else:
        if not hasattr(x, "__iter__"):
            raise ValueError(
                f"x must be {CHOICE_FORMS}. Received: {x!r} of type {type(x).__name__}"
            )
        wrong = next((i for i, row in enumerate(x) if not is_single_choice(row)), None)
        if wrong is not None:
            raise ValueError(
                f"Row {wrong} must be {CHOICE_FORMS}. Received: {x[wrong]!r} of type "
                f"{type(x[wrong]).__name__}"
            )
        texts, choices = [row[0] for row in x], [row[1] for row in x]
    texts = as_list(texts)
    choices = [_validate_choices(row, index) for index, row in enumerate(as_list(choices))]
    if len(texts) != len(choices):
        raise ValueError(
            "Each text must have a list of choices. Received: "
            f"{len(texts)} texts and {len(choices)} lists of choices"
        )
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"The text of row {index} must be a string. Received: {text!r}")
        check_characters(text, f"The text of row {index}")
    return texts, choices


def _validate_choices(choices: Any, row: int) -> list[str]:
    if isinstance(choices, str) or not hasattr(choices, "__iter__"):
        raise ValueError(
            f"The choices of row {row} must be a list of strings. Received: {choices!r}"
        )
    own: list[str] = list(choices)
    if not own or not all(isinstance(choice, str) for choice in own):
        raise ValueError(
            f"The choices of row {row} must be at least one string. Received: {choices!r}"
        )
    for index, choice in enumerate(own):
        check_characters(choice, f"Choice {index} of row {row}")
    return own


def choice_labels(labels: Any, choices: Sequence[Sequence[str]]) -> np.ndarray[Any, Any]:
    """Validates the indices of the correct choices. Returns int32 `(rows,)`."""
    reject_missing(labels)
    array = array_of_labels(labels)
    array = one_for_each(array.reshape(-1) if array.size == len(array) else array, choices)
    for index, (label, own) in enumerate(zip(array.tolist(), choices, strict=True)):
        if array.dtype.kind not in "iuf" or label not in range(len(own)):
            raise ValueError(
                f"The label of row {index} must be the index of one of its {len(own)} choices, an "
                f"integer from 0. Received: {label!r}"
            )
    return array.astype("int32")


def choice_scores(scores: Any, choices: Sequence[Sequence[str]]) -> np.ndarray[Any, Any]:
    """Validates the scores of all choices.

    Returns:
        Float32 `(rows, choices)`, where `choices` is the maximum number of choices. Missing choices
        have -inf.
    """
    rows = as_list(scores)
    if len(rows) != len(choices):
        raise ValueError(
            f"There must be a label for each of the {len(choices)} texts. Received: {len(rows)}"
        )
    result = np.full((len(rows), max(map(len, choices), default=0)), -np.inf, "float32")
    for index, (row, own) in enumerate(zip(rows, choices, strict=True)):
        array = np.asarray(row)
        is_valid = array.dtype.kind in "iuf" and array.shape == (len(own),)
        if not is_valid or not np.isfinite(array).all():
            raise ValueError(
                f"The label of row {index} must be a list with a finite score for each of its "
                f"{len(own)} choices. Received: {row!r}"
            )
        result[index, : len(own)] = array
    return result

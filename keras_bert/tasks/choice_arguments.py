# SPDX-License-Identifier: Apache-2.0
"""Texts and the choices of each, among what users hand to a multiple-choice task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

CHOICE_FORMS = (
    "a list of (text, [choice, choice, …]) pairs, a tuple of a list of texts and a list of their "
    'lists of choices, or a dict of "text" and "choices"'
)


def is_single_choice(x: Any) -> bool:
    """Whether `x` is one text with its choices."""
    return isinstance(x, (tuple, list)) and len(x) == 2 and isinstance(x[0], str)


def is_choices(x: Any) -> bool:
    """Whether `x` holds texts with choices in one of `CHOICE_FORMS`, rather than ids."""
    if isinstance(x, Mapping):
        return "choices" in x
    if not isinstance(x, (tuple, list)):
        return False
    if not x:
        return True
    first = x[0]
    return isinstance(first, str) or (
        isinstance(first, (tuple, list)) and (not first or isinstance(first[0], str))
    )


def choice_columns(x: Any) -> tuple[list[str], list[list[str]]]:
    """The texts, and the choices of each.

    Raises:
        ValueError: If the form is none of `CHOICE_FORMS`, there are more texts than lists of
            choices or fewer, or a row has no choice; the message says which row.
    """
    if isinstance(x, Mapping):
        missing = {"text", "choices"} - set(x)
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
    texts, choices = list(texts), [_checked(row, index) for index, row in enumerate(choices)]
    if len(texts) != len(choices):
        raise ValueError(
            f"There are {len(texts)} texts and {len(choices)} lists of choices; each text has one."
        )
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"The text of row {index} is {text!r}; expected a string.")
    return texts, choices


def choice_labels(labels: Any, choices: Sequence[Sequence[str]]) -> np.ndarray[Any, Any]:
    """Which choice of each row is right, int32 `(rows,)`.

    Raises:
        ValueError: If there is not one for each row, or it is none of the row's choices.
    """
    array = one_for_each(np.asarray(labels), choices)
    for index, (label, own) in enumerate(zip(array, choices, strict=True)):
        if array.dtype.kind not in "iu" or not 0 <= label < len(own):
            raise ValueError(
                f"The label of row {index} is {label!r}; expected which of its {len(own)} choices "
                "is right, an integer from 0."
            )
    return array.astype("int32")


def one_for_each(values: np.ndarray[Any, Any], rows: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Labels or weights `(rows,)`, as they are.

    Raises:
        ValueError: If there are more or fewer of them than rows.
    """
    if values.shape != (len(rows),):
        raise ValueError(
            f"There are {len(rows)} texts and labels or weights of shape {values.shape}; each text "
            "needs one."
        )
    return values


def _checked(choices: Any, row: int) -> list[str]:
    if isinstance(choices, str) or not hasattr(choices, "__iter__"):
        raise ValueError(f"The choices of row {row} are {choices!r}; expected a list of strings.")
    own: list[str] = list(choices)
    if not own or not all(isinstance(choice, str) for choice in own):
        raise ValueError(f"The choices of row {row} are {choices!r}; expected one string or more.")
    return own

# SPDX-License-Identifier: Apache-2.0
"""Classes by number and by name: which labels a task takes, and what they weigh."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class LabelRules:
    """Which labels the rows of a task may have, and what they weigh.

    Args:
        num_ids: How many class ids there are; `None` where labels are no class ids.
        class_names: The classes' names in the order of their ids; labels may then be names.
        lowest: The least id that is accepted: 0, or -1 where it stands for no label; `None` for
            any negative id.
        is_score: Whether labels are numbers, of a regression; NaN stands for no label unless
            `lowest` is 0.
        class_weight: What a label of each class id weighs; `None` for 1.
    """

    num_ids: int | None = None
    class_names: Sequence[str] | None = None
    lowest: int | None = 0
    is_score: bool = False
    class_weight: Mapping[int, float] | None = None

    def read(self, labels: Any) -> np.ndarray[Any, Any]:
        """Labels as the loss wants them.

        Raises:
            ValueError: If one is none of the above; the message names its row.
        """
        if self.is_score:
            return finite_scores(labels, allow_unlabelled=self.lowest != 0)
        array = np.asarray(labels)
        if array.dtype.kind in "OUS":
            return _ids_of_names(array, self.class_names)
        if self.num_ids is None:
            return array
        return checked_ids(array, self.num_ids, lowest=self.lowest).astype("int32")

    def weigh(
        self, labels: np.ndarray[Any, Any], weights: np.ndarray[Any, Any] | None
    ) -> np.ndarray[Any, Any] | None:
        """The labels' weights, times those of their classes.

        Raises:
            ValueError: If classes have weights, and the labels are no class ids.
        """
        if not self.class_weight:
            return weights
        if labels.ndim != 1:
            raise ValueError(
                f"class_weight needs class ids (rows,); the labels are {labels.shape}."
            )
        return class_weights_of(labels, self.class_weight, weights)


def checked_num_classes(num_classes: int | None, class_names: Sequence[str] | None) -> int:
    """The number of classes.

    Raises:
        ValueError: If it is not given, below 1, or not the number of `class_names`, or if two
            classes have one name.
    """
    if num_classes is None:
        if class_names is None:
            raise ValueError("Give `num_classes` or `class_names`.")
        num_classes = len(class_names)
    if num_classes < 1:
        raise ValueError(f"num_classes is {num_classes}; it must be at least 1.")
    if class_names is not None and len(class_names) != num_classes:
        raise ValueError(f"num_classes is {num_classes}, but class_names has {len(class_names)}.")
    names = tuple(class_names or ())
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"class_names holds {name!r} more than once: {', '.join(names)}.")
    return num_classes


def checked_ids(
    ids: Any,
    num_ids: int,
    *,
    lowest: int | None = 0,
    weights: Any = None,
    name: str = "",
) -> np.ndarray[Any, Any]:
    """Ids of classes, tokens or positions, each from `lowest` to `num_ids - 1`.

    On JAX a loss takes ids out of range without an error, and on the other backends its error
    names no row.

    Args:
        ids: Whole numbers of any shape, also as floats.
        num_ids: How many ids there are.
        lowest: The least id that is accepted; `None` for any negative id.
        weights: What the ids weigh, of their shape; those of weight 0 may be anything.
        name: Of the output that the ids are targets of.

    Returns:
        The ids as an array.

    Raises:
        ValueError: If one is no whole number or out of range; the message names its row.
    """
    array = np.asarray(ids)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"The labels{_of(name)} have the dtype {array.dtype}; expected integers.")
    if not array.size:
        return array
    is_wrong = array >= num_ids
    if lowest is not None:
        is_wrong |= array < lowest
    if array.dtype.kind == "f":
        is_wrong |= ~np.isfinite(array) | (array != np.floor(array))
    if weights is not None:
        weights = np.asarray(weights)
        if weights.shape == array.shape:
            is_wrong &= weights != 0
    if is_wrong.any():
        row, *position = (int(index) for index in np.argwhere(is_wrong)[0])
        where = f"row {row}" + (f", position {position[0]}" if position else "")
        least = 0 if lowest is None else lowest
        raise ValueError(
            f"The label{_of(name)} in {where} is {array[(row, *position)]}; expected an id from "
            f"{least} to {num_ids - 1}. Labels that are not counted from 0 need class_names, and "
            'must be given by these names: with class_names=["1", "2", "3"], labels such as "3".'
        )
    return array


def finite_scores(
    labels: Any, *, allow_unlabelled: bool = False, name: str = ""
) -> np.ndarray[Any, Any]:
    """The targets of a regression, numbers `(rows,)`.

    Args:
        labels: The numbers.
        allow_unlabelled: Whether NaN stands for no label.
        name: Of the output that they are targets of.

    Raises:
        ValueError: If one is no finite number; the message names its row.
    """
    array = np.asarray(labels)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"The labels{_of(name)} have the dtype {array.dtype}; expected numbers.")
    is_wrong = np.isinf(array) if allow_unlabelled else ~np.isfinite(array)
    if is_wrong.any():
        row = int(np.argwhere(is_wrong)[0][0])
        raise ValueError(
            f"The label{_of(name)} in row {row} is {array[row]}; expected a finite number."
        )
    return array


def class_weights_of(
    ids: np.ndarray[Any, Any],
    class_weight: Mapping[int, float],
    weights: np.ndarray[Any, Any] | None = None,
) -> np.ndarray[Any, Any]:
    """What each label weighs by its class, times its own weight; float32 of the labels' shape.

    Args:
        ids: Class ids; negative ones weigh what they did.
        class_weight: The weight of each class id; 1 for those that are not there.
        weights: The labels' own weights.
    """
    of_labels = np.ones(ids.shape, "float32")
    for class_id, weight in class_weight.items():
        of_labels[ids == class_id] = weight
    return of_labels if weights is None else of_labels * np.asarray(weights, "float32")


def _of(name: str) -> str:
    return f" of {name}" if name else ""


def _ids_of_names(
    labels: np.ndarray[Any, Any], class_names: Sequence[str] | None
) -> np.ndarray[Any, Any]:
    if class_names is None:
        raise ValueError(
            f"The labels are names, such as {str(labels.flat[0])!r}, but this task knows no "
            "class_names. Give them when making it."
        )
    ids = {name: index for index, name in enumerate(class_names)}
    for row, label in enumerate(labels):
        if str(label) not in ids:
            classes = ", ".join(class_names)
            raise ValueError(
                f"The label in row {row} is {str(label)!r}; the classes are {classes}."
            )
    return np.array([ids[str(label)] for label in labels], "int32")


def softmax(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Probabilities of logits over the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))

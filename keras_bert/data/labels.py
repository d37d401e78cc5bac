# SPDX-License-Identifier: Apache-2.0
"""Validates class ids, class names, regression targets and class weights."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from keras_bert import checks
from keras_bert.data.columns import as_array, as_list, as_string, is_missing

_NAMES_SHOWN = 20


@dataclasses.dataclass(frozen=True)
class LabelRules:
    """The labels that a task accepts.

    Args:
        num_ids: Number of class ids, or `None` if labels are not class ids.
        class_names: The class names in the order of their ids. If they are given, labels may be
            names.
        lowest: The lowest accepted id: 0, or -1 if it marks an example without a label. `None`
            accepts any negative id.
        is_score: Whether labels are regression targets. Then NaN marks an example without a label,
            unless `lowest` is 0.
        ignored: Another id that the loss ignores, or `None`.
        may_be_numbers: Whether labels may also have a number for each class, such as one-hot labels
            or probabilities. Whole numbers of shape `(rows,)` are still class ids.
        are_parts: Whether labels are read in chunks, such as batches. A chunk is too small to
            decide whether numbers are ids or names, so they are always read as ids.
    """

    num_ids: int | None = None
    class_names: Sequence[str] | None = None
    lowest: int | None = 0
    is_score: bool = False
    ignored: int | None = None
    may_be_numbers: bool = False
    are_parts: bool = False

    @property
    def allows_unlabeled(self) -> bool:
        """Whether examples may have no label."""
        return self.lowest == -1

    def no_labels(self, num_rows: int) -> np.ndarray[Any, Any]:
        """Returns the labels of examples without a label."""
        return np.full(num_rows, np.float32(np.nan) if self.is_score else np.int32(-1))

    def read(self, labels: Any, first_row: int = 0) -> np.ndarray[Any, Any]:
        """Validates labels and converts them to loss targets. Names may be strings or UTF-8."""
        array = array_of_labels(labels)
        if self.is_score:
            return finite_scores(array, allow_unlabeled=self.lowest != 0, first_row=first_row)
        if array.dtype.kind in "OUST":
            reject_missing(labels, first_row)
            if array.dtype.kind == "S":
                array = np.char.decode(array, "utf-8")
            return _ids_of_names(_single_column(array), self.class_names, first_row)
        if self.num_ids is None or (self.may_be_numbers and not may_be_ids(array)):
            return array
        array = _single_column(array)
        if array.ndim > 1:
            raise ValueError(
                f"The labels must be class ids (rows,). Received: shape {array.shape}. For "
                "one-hot labels, use keras.losses.CategoricalCrossentropy(from_logits=True)."
            )
        reject_missing(array, first_row)
        ids = validate_ids(
            array, self.num_ids, lowest=self.lowest, ignored=self.ignored, first_row=first_row
        )
        if not self.are_parts:
            _reject_ambiguous(ids, self.class_names)
        # Later chunks may contain numbers of the same dtype other than ids.
        return ids if self.may_be_numbers and ids.dtype.kind == "f" else ids.astype("int32")

    def best_constant(self, labels: Any, weights: Any = None) -> np.ndarray[Any, Any] | None:
        """Returns the constant output with the lowest loss.

        For scores, this is their mean. For classes, it is `None`, because their heads start at 0.

        Args:
            labels: Targets, as returned by `read`.
            weights: The sample weights, or `None`.
        """
        if not self.is_score:
            return None
        labels, weights = labels.reshape(-1), _row_weights(labels, weights)
        weights = np.where(np.isfinite(labels), weights, 0.0)
        mean = np.average(np.nan_to_num(labels), weights=weights) if weights.any() else 0.0
        return np.array([mean], "float32")


@dataclasses.dataclass(frozen=True)
class MultiLabelRules(LabelRules):
    """Any number of labels per example, as a list of names, or 0 or 1 for each class."""

    def read(self, labels: Any, first_row: int = 0) -> np.ndarray[Any, Any]:
        """Converts lists of names, or 0 or 1 for each class, to float32 `(rows, classes)`."""
        # A table with columns of 0 and 1 is an array rather than a list of rows.
        is_table = len(getattr(labels, "shape", ())) == 2
        rows = as_list(as_array(labels) if is_table else labels)
        if is_table and self.num_ids != 1:  # A data frame may have a single column of lists.
            rows = [row[0] if len(row) == 1 else row for row in rows]
        targets = np.zeros((len(rows), self.num_ids or 0), "float32")
        names = self.class_names or ()
        ids = {name: index for index, name in enumerate(names)}
        for row, labels_of_row in enumerate(rows):
            is_list = isinstance(labels_of_row, Iterable) and not isinstance(
                labels_of_row, str | bytes
            )
            items: list[Any] = as_list(labels_of_row) if is_list else [None]
            if all(isinstance(item, str | bytes) for item in items):
                unknown = [name for name in map(as_string, items) if name not in ids]
                if unknown:
                    known = (
                        f"one of {join_names(names)}"
                        if names
                        else "0 or 1 for each class, as there are no class_names"
                    )
                    raise ValueError(
                        f"A label in row {first_row + row} must be {known}. Received: "
                        f"{unknown[0]!r}"
                    )
                targets[row, [ids[as_string(name)] for name in items]] = 1
            elif len(items) == self.num_ids and all(item in (0, 1) for item in items):
                targets[row] = items
            else:
                raise ValueError(
                    f"The labels in row {first_row + row} must be a list of names, or "
                    f"{self.num_ids} values 0 or 1. Received: {labels_of_row!r}"
                )
        return targets

    def best_constant(self, labels: Any, weights: Any = None) -> np.ndarray[Any, Any] | None:
        """Returns the log odds of each label, float32 `(classes,)`.

        As smoothing, half an example with the label and half an example without it are added.
        """
        weights = _row_weights(labels, weights)
        counts = weights @ labels
        return np.asarray(np.log(counts + 0.5) - np.log(weights.sum() - counts + 0.5), "float32")


@dataclasses.dataclass(frozen=True)
class TagRules(LabelRules):
    """A class id for each word. Usually, most words have the same class, such as `O`."""

    def best_constant(self, labels: Any, weights: Any = None) -> np.ndarray[Any, Any] | None:
        """Returns the log frequency of each class, float32 `(classes,)`, shifted to a mean of 0.

        As smoothing, half a word is added to each class. Returns `None` if labels are not class
        ids.
        """
        ids, weights = labels.reshape(-1), _row_weights(labels, weights)
        if len(ids) != len(weights):
            return None
        counted = (ids >= 0) & (ids != self.ignored)
        counts = np.bincount(ids[counted].astype("int64"), weights[counted], self.num_ids or 0)
        logs = np.log(counts + 0.5)
        return np.asarray(logs - logs.mean(), "float32")


def _row_weights(labels: np.ndarray[Any, Any], weights: Any) -> np.ndarray[Any, Any]:
    """Returns the weight of each example, float64 `(rows,)`. Defaults to 1."""
    return np.ones(len(labels)) if weights is None else np.asarray(weights, "float64").reshape(-1)


def validate_num_classes(num_classes: int | None, class_names: Sequence[str] | None) -> int:
    """Returns the number of classes, and checks that it matches `class_names`."""
    if class_names is not None:
        checks.check_names("class_names", class_names)
    if num_classes is None:
        if class_names is None:
            raise ValueError("Pass `num_classes` or `class_names`.")
        num_classes = len(class_names)
    checks.POSITIVE_INT.check(num_classes=num_classes)
    num_classes = int(num_classes)
    if class_names is not None and len(class_names) != num_classes:
        raise ValueError(
            f"num_classes must be the number of class_names, {len(class_names)}. Received: "
            f"{num_classes}"
        )
    names = () if class_names is None else tuple(class_names)
    if len(set(names)) < len(names):
        name, _ = collections.Counter(names).most_common(1)[0]
        raise ValueError(
            f"class_names must be unique. Received: {name!r} twice in {join_names(names)}"
        )
    return num_classes


def join_names(names: Sequence[str]) -> str:
    """Formats up to 20 names for an error message, and how many more there are."""
    rest = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + rest


def validate_ids(
    ids: Any,
    num_ids: int,
    *,
    lowest: int | None = 0,
    ignored: int | None = None,
    weights: Any = None,
    name: str = "",
    first_row: int = 0,
) -> np.ndarray[Any, Any]:
    """Checks that ids of classes, tokens or positions are between `lowest` and `num_ids - 1`.

    On JAX, losses do not raise errors for invalid ids. On the other backends, the errors do not
    contain the index of the example. Floats with integer values are accepted. `lowest=None` accepts
    all negative ids, and `ignored` is an additional accepted id. Ids with weight 0 are not checked.
    `name` is the name of the output in the error message.
    """
    array = as_array(ids)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            f"The labels{_output_suffix(name)} must be integers. Received: dtype {array.dtype}"
        )
    if not array.size:
        return array
    is_wrong = array >= num_ids
    if lowest is not None:
        is_wrong |= array < lowest
    if array.dtype.kind == "f":
        is_wrong |= ~np.isfinite(array) | (array != np.floor(array))
    if ignored is not None:
        is_wrong &= array != ignored
    if weights is not None:
        weights = as_array(weights)
        if weights.shape == array.shape:
            is_wrong &= weights != 0
    if is_wrong.any():
        row, *position = (int(index) for index in np.argwhere(is_wrong)[0])
        where = f"row {first_row + row}" + (f", position {position[0]}" if position else "")
        least = 0 if lowest is None else lowest
        raise ValueError(
            f"The label{_output_suffix(name)} in {where} must be an id from {least} to "
            f"{num_ids - 1}. Received: {array[(row, *position)]}. If labels do not count from 0, "
            "pass them as strings with class_names. For example, pass labels such as "
            '"3" with class_names=["1", "2", "3"].'
        )
    return array


def finite_scores(
    labels: Any, *, allow_unlabeled: bool = False, first_row: int = 0
) -> np.ndarray[Any, Any]:
    """Validates regression targets of shape `(rows,)` or `(rows, 1)`. Returns float32 `(rows,)`.

    With `allow_unlabeled`, NaN marks an example without a target.
    """
    array = np.asarray(labels)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"The labels must be numbers. Received: dtype {array.dtype}")
    if array.size != len(array):
        raise ValueError(f"The labels must be numbers (rows,). Received: shape {array.shape}")
    array = array.reshape(-1)
    is_wrong = np.isinf(array) if allow_unlabeled else ~np.isfinite(array)
    if is_wrong.any():
        row = int(np.argwhere(is_wrong)[0][0])
        raise ValueError(
            f"The label in row {first_row + row} must be a finite number. Received: {array[row]}"
        )
    return array.astype("float32")


def validate_class_weight(
    class_weight: Any, num_ids: int | None, class_names: Sequence[str] | None
) -> dict[int, float]:
    """Validates a dict of class weights, and converts class names to ids.

    `num_ids` is `None` if the number of classes depends on the example.
    """
    names = tuple(class_names or ())
    choices = f"an id from 0 to {num_ids - 1}" if num_ids else "an id from 0"
    if names:
        choices = f"one of {join_names(names)}, or {choices}"
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"class_weight must be a dict whose keys are {choices}. Received: {class_weight!r}"
        )
    ids_of_names: dict[Any, int] = {name: index for index, name in enumerate(names)}
    weights_by_id: dict[int, float] = {}
    for key, weight in class_weight.items():
        class_id: Any = ids_of_names.get(key, key)
        is_id = isinstance(class_id, (int, np.integer)) and not isinstance(class_id, bool)
        if not is_id or not 0 <= class_id < (num_ids or math.inf):
            raise ValueError(f"Each key of class_weight must be {choices}. Received: {key!r}")
        checks.NON_NEGATIVE.check(**{f"class_weight[{key!r}]": weight})
        weights_by_id[int(class_id)] = float(weight)
    _reject_ambiguous(np.array([key for key in class_weight if key not in names], int), names)
    return weights_by_id


def _output_suffix(name: str) -> str:
    return f" of {name}" if name else ""


def _ids_of_names(
    labels: np.ndarray[Any, Any], class_names: Sequence[str] | None, first_row: int
) -> np.ndarray[Any, Any]:
    if class_names is None:
        label_names = sorted(set(map(str, labels.flat)))
        raise ValueError(
            f"The labels must be class ids, because this task has no class_names. Received: "
            f"{str(labels.flat[0])!r}. To train on names, pass them to from_preset or the task "
            f"class: class_names={label_names if len(label_names) < 6 else [*label_names[:5], '…']}"
        )
    ids = {name: index for index, name in enumerate(class_names)}
    for row, label in enumerate(labels, first_row):
        if str(label) not in ids:
            advice = ". Remove the spaces around it." if str(label).strip() in ids else ""
            raise ValueError(
                f"The label in row {row} must be one of {join_names(class_names)}. Received: "
                f"{str(label)!r}{advice}"
            )
    return np.array([ids[str(label)] for label in labels], "int32")


def array_of_labels(labels: Any) -> np.ndarray[Any, Any]:
    """Converts labels to an array. Objects in a pandas column determine its dtype."""
    array = np.atleast_1d(as_array(labels))
    return np.asarray(array.tolist()) if array.dtype.kind == "O" else array


def may_be_ids(array: np.ndarray[Any, Any]) -> bool:
    """Returns whether labels are whole numbers `(rows,)` or `(rows, 1)`."""
    is_column = array.dtype.kind in "biuf" and array.shape[1:] in ((), (1,))
    return is_column and bool(np.all(array == np.floor(array)))


def _single_column(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Converts `(rows, 1)`, such as a data frame with one column, to `(rows,)`."""
    return array[:, 0] if array.shape[1:] == (1,) else array


def reject_missing(labels: Any, first_row: int = 0) -> None:
    """Raises an error for `None`, NaN and pandas' NA, because NumPy would convert them to names."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biu":
        return
    for row, label in enumerate(_single_column(np.asarray(labels, dtype=object)), first_row):
        if is_missing(label):
            raise ValueError(f"The label in row {row} must not be missing. Received: {label}")


def _reject_ambiguous(ids: np.ndarray[Any, Any], class_names: Sequence[str] | None) -> None:
    """Raises an error if all ids are also class names, but the names of different classes."""
    ids_of_numbers = {}
    for index, name in enumerate(class_names or ()):
        with contextlib.suppress(ValueError):
            ids_of_numbers[float(name)] = index
    labels = np.unique(ids[ids >= 0]).tolist() if ids_of_numbers else []
    differs = [label for label in labels if ids_of_numbers.get(label) != label]
    if differs and ids_of_numbers.keys() >= set(labels):
        (label, *_), names = differs, tuple(class_names or ())
        raise ValueError(
            f"Labels must be names if numbers are names. Received: {label:g}, the id of the class "
            f"{names[int(label)]!r} and the name of the class with the id {ids_of_numbers[label]}. "
            "Pass names as strings."
        )


def f1_thresholds(labels: np.ndarray[Any, Any], scores: np.ndarray[Any, Any]) -> tuple[float, ...]:
    """Returns the threshold with the highest F1 score for each class.

    A threshold is halfway between two scores, so rounding does not matter. If multiple thresholds
    are equally good, the highest is returned. A class without examples gets 0.5. Labels are 0 or 1
    and scores are probabilities, both of shape `(rows, classes)`.

    Example:

    >>> f1_thresholds(np.array([[1], [1], [0], [0]]), np.array([[0.9], [0.5], [0.25], [0.0]]))
    (0.375,)
    """
    thresholds = []
    for truth, score in zip(labels.T, scores.T.astype("float64"), strict=True):
        order = np.argsort(-score, kind="stable")
        score, hits = score[order], np.cumsum(truth[order])
        below = np.append(score[1:], 0.0)
        f1 = 2 * hits / (np.arange(1, len(score) + 1) + truth.sum())
        f1[score == below] = -1  # A threshold cannot separate equal scores.
        best = int(np.argmax(f1))
        middle = (score[best] + below[best]) / 2
        thresholds.append(float(middle) if truth.any() else 0.5)
    return tuple(thresholds)


def rank_labels(names: Sequence[Any], scores: np.ndarray[Any, Any]) -> list[dict[str, Any]]:
    """Returns a dict of `label` and `score` for each label, in descending order of score."""
    order = np.argsort(-scores, kind="stable")
    return [{"label": names[index], "score": float(scores[index])} for index in order]


def sigmoid(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Computes the sigmoid of logits."""
    return np.asarray(np.exp(-np.logaddexp(0, -logits)))


def softmax(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Computes the softmax of logits over the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))

# SPDX-License-Identifier: Apache-2.0
"""Classes by number and by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def checked_num_classes(num_classes: int | None, class_names: Sequence[str] | None) -> int:
    """The number of classes.

    Raises:
        ValueError: If it is not given, below 1, or not the number of `class_names`.
    """
    if num_classes is None:
        if class_names is None:
            raise ValueError("Give `num_classes` or `class_names`.")
        num_classes = len(class_names)
    if num_classes < 1:
        raise ValueError(f"num_classes is {num_classes}; it must be at least 1.")
    if class_names is not None and len(class_names) != num_classes:
        raise ValueError(f"num_classes is {num_classes}, but class_names has {len(class_names)}.")
    return num_classes


def class_ids(
    labels: Sequence[Any] | np.ndarray[Any, Any],
    class_names: Sequence[str] | None,
    num_classes: int,
) -> np.ndarray[Any, Any]:
    """Class ids of labels, which are names or ids; negative ids stay as they are.

    Args:
        labels: Names or ids, `(labels,)`.
        class_names: The names in the order of the ids, if there are any.
        num_classes: How many ids there are.

    Returns:
        int32 `(labels,)`.

    Raises:
        ValueError: If a name is not known, or an id is no class.
    """
    array = np.asarray(labels)
    if array.dtype.kind in "OUS":
        return _ids_of_names(array, class_names)
    if array.size and (array.dtype.kind not in "iu" or array.max() >= num_classes):
        wrong = array[array >= num_classes] if array.dtype.kind in "iu" else array
        raise ValueError(
            f"The labels hold {wrong.flat[0]}; expected ids of classes, 0 to {num_classes - 1}."
        )
    return array.astype("int32")


def _ids_of_names(
    labels: np.ndarray[Any, Any], class_names: Sequence[str] | None
) -> np.ndarray[Any, Any]:
    if class_names is None:
        raise ValueError(
            f"The labels are names, such as {str(labels.flat[0])!r}, but this task knows no "
            "class_names. Give them when making it."
        )
    ids = {name: index for index, name in enumerate(class_names)}
    unknown = sorted({str(label) for label in labels} - set(ids))
    if unknown:
        raise ValueError(
            f"The labels hold {unknown[0]!r}; the classes are {', '.join(class_names)}."
        )
    return np.array([ids[str(label)] for label in labels], "int32")

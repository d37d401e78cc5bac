# SPDX-License-Identifier: Apache-2.0
"""Sentences of words, and documents of sentences, among what users hand to a tagger."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

WORD_FORMS = (
    "a list of sentences, each a list of words; or a list of documents, each a list of such "
    "sentences"
)


def word_depth(x: Any) -> int | None:
    """How deep strings are nested: 0 in a string, 2 in a list of lists; `None` without strings.

    Empty lists do not say what they would hold; they count as lists of strings.
    """
    if isinstance(x, (str, bytes)):
        return 0
    if isinstance(x, np.ndarray) and x.dtype.kind not in "OUS":
        return None
    if getattr(getattr(x, "dtype", None), "name", "") == "string":
        return len(x.shape)
    # An iterator is not looked into: it would lose what is read, and may never end.
    if isinstance(x, Mapping) or not isinstance(x, Collection) or hasattr(x, "element_spec"):
        return None
    depths = [word_depth(item) for item in x]
    if None in depths:
        return None
    return 1 + max((depth for depth in depths if depth is not None), default=0)


def as_lists(x: Any) -> Any:
    """Strings of a ragged tensor, a string tensor or a data frame's column, as lists of them."""
    if hasattr(x, "to_list"):
        return x.to_list()
    return x if isinstance(x, (str, bytes, list, tuple)) else np.asarray(x).tolist()


def flat_labels(words: Sequence[Any], labels: Sequence[Any], depth: int) -> list[Any]:
    """One label for each word, in order.

    Args:
        words: Sentences (`depth` 2) or documents (`depth` 3).
        labels: Labels or weights, nested alike.
        depth: Of the words.

    Raises:
        ValueError: If there are more or fewer labels than words; the message says where.
    """
    flat: list[Any] = []
    _flatten(words, labels, depth, (), flat)
    return flat


def nested_like(words: Sequence[Any], values: Sequence[Any], depth: int) -> list[Any]:
    """Groups what there is one of for each sentence as the sentences are: the inverse."""
    if depth < 3:
        return list(values)
    remaining = iter(values)
    return [[next(remaining) for _ in document] for document in words]


def _flatten(words: Any, labels: Any, depth: int, path: tuple[int, ...], flat: list[Any]) -> None:
    if isinstance(labels, (str, bytes)) or not hasattr(labels, "__len__"):
        raise ValueError(f"{_place(path)} has the labels {labels!r}; expected a list.")
    if len(words) != len(labels):
        raise ValueError(
            f"{_place(path)} has {len(words)} {_PARTS[depth]} and labels or weights for "
            f"{len(labels)}; each needs one."
        )
    if depth == 1:
        flat.extend(labels)
        return
    for index, (part, its_labels) in enumerate(zip(words, labels, strict=True)):
        _flatten(part, its_labels, depth - 1, (*path, index), flat)


_PARTS = {1: "words", 2: "sentences", 3: "documents"}


def _place(path: tuple[int, ...]) -> str:
    if not path:
        return "The input"
    if len(path) == 1:
        return f"Row {path[0]}"
    return f"Sentence {path[1]} of document {path[0]}"

# SPDX-License-Identifier: Apache-2.0
"""Finds the columns of texts and labels by the names that data sets commonly use."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from typing import Literal

# What a label is: the name of a class, a number to predict, or a list of names
Labels = Literal["classes", "scores", "lists"]

# The defaults of --text, --text_pair and --label
TEXT, TEXT_PAIR, LABEL = "text", "text_pair", "label"
# Columns of two texts. With a question or a query, a text of another column is its partner.
_PAIRS = (
    *itertools.product(("question", "query"), ("sentence", "passage", "document", "answer")),
    (TEXT, TEXT_PAIR),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("sentence_A", "sentence_B"),
)
# Names of columns, the most specific first. A file should have at most one name of each group.
_TEXTS = (
    ("texts", "sentence", "review", "comment", "content", "body", "tweet", "document"),
    ("query", "question", "sentence1", "question1"),
    ("title",),
)
_SCORES = ("score", "rating", "target")
_LABELS: dict[Labels, tuple[tuple[str, ...], ...]] = {
    "classes": (
        ("gold_label",),
        ("labels.binary-label",),
        ("class", "category", "sentiment", *_SCORES),
    ),
    "scores": (("gold_label",), ("labels.real-label",), _SCORES),
    "lists": (("labels",),),
}
# Names that show in the first row of a table that the row is a header, in lower case
HEADER_NAMES = {
    "text": frozenset((TEXT, *(name for group in _TEXTS for name in group))),
    "label": frozenset((LABEL, "labels", *_LABELS["classes"][-1])),
}
# The label of a single annotator, in NLI data sets
_ANNOTATOR = re.compile(r"label_?\d+")


def find_texts(names: Collection[str], text_pair: str = "") -> dict[str, str]:
    """Returns the columns of a text or of a text pair, if they do not have the default names.

    Args:
        names: The names of all columns.
        text_pair: The column of the second text, if it is given.

    Raises:
        ValueError: If multiple columns are equally common names.

    Example:

    >>> find_texts(["premise", "hypothesis", "label"])
    {'text': 'premise', 'text_pair': 'hypothesis'}
    """
    if TEXT in names:
        is_pair = not text_pair and TEXT_PAIR in names
        return {"text_pair": TEXT_PAIR} if is_pair else {}
    if text_pair in ("", TEXT_PAIR):
        pairs = [pair for pair in _PAIRS if set(pair) <= {*names}]
    else:
        pairs = [pair for pair in _PAIRS if pair[0] in names and pair[1] == text_pair]
    if len(pairs) > 1:
        raise _ambiguous((TEXT, TEXT_PAIR), [" and ".join(pair) for pair in pairs])
    if pairs:
        return {"text": pairs[0][0], "text_pair": pairs[0][1]}
    name = _find(TEXT, names, _TEXTS)
    return {"text": name} if name else {}


def find_label(names: Collection[str], labels: Labels) -> dict[str, str]:
    """Returns the column of the label, if it does not have the default name.

    The label of a data set, such as `gold_label`, has precedence over the labels of annotators.

    Raises:
        ValueError: If multiple columns are equally common names.

    Example:

    >>> find_label(["premise", "hypothesis", "gold_label", "label1", "label2"], "classes")
    {'label': 'gold_label'}
    """
    name = "" if LABEL in names else _find(LABEL, names, _LABELS[labels])
    return {"label": name} if name else {}


def without_annotators(names: Collection[str]) -> list[str]:
    """Returns the names without the labels of single annotators, if there is a gold label."""
    if "gold_label" not in names:
        return list(names)
    return [name for name in names if not _ANNOTATOR.fullmatch(name)]


def _find(role: str, names: Collection[str], groups: Sequence[Sequence[str]]) -> str:
    for group in groups:
        found = [name for name in group if name in names]
        if len(found) > 1:
            raise _ambiguous((role,), found)
        if found:
            return found[0]
    return ""


def _ambiguous(roles: Sequence[str], candidates: Sequence[str]) -> ValueError:
    flags = " and ".join(f"--{role}" for role in roles)
    return ValueError(
        f"the column of the {roles[0]} must be clear. Received: the columns "
        f"{', '.join(candidates)}. Pass {flags}"
    )

# SPDX-License-Identifier: Apache-2.0
"""Ranks documents by their relevance to a query. `rank` of each task and the server call it."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_bert.checks import shorten_repr
from keras_bert.data.adapters.texts import single_texts
from keras_bert.data.columns import materialize

Array = np.ndarray[Any, Any]


def query_documents(query: Any, documents: Any) -> list[str]:
    """Checks a query and converts its documents to a list.

    Raises:
        ValueError: If `query` is not a string, or if `documents` is not a list of texts.
    """
    if not isinstance(query, str) or isinstance(documents, str):
        raise ValueError(
            "query must be a string, and documents must be single texts, such as a list of "
            f"strings. Received: query={shorten_repr(query)}, documents={shorten_repr(documents)}"
        )
    return single_texts(materialize(documents))


def reason_against_ranking(num_classes: int, *, multi_label: bool) -> str:
    """Returns why a classifier's outputs are no relevance scores, or `""` if they are."""
    if num_classes > 1 and multi_label:
        return "has multiple labels per example"
    return "" if num_classes in (1, 2) else f"has {num_classes} classes"


def rank_documents(scores: Array, top_k: int | None = None) -> list[dict[str, Any]]:
    """Returns a dict of `index` and `score` for each document, in descending order of score.

    Documents with equal scores keep their order.

    Args:
        scores: Float `(documents,)`.
        top_k: Maximum number of documents to return. Defaults to all.

    Example:

    >>> rank_documents(np.array([0.25, 0.5, 0.25]), top_k=2)
    [{'index': 1, 'score': 0.5}, {'index': 0, 'score': 0.25}]
    """
    order = np.argsort(-scores, kind="stable")[:top_k]
    return [{"index": int(index), "score": float(scores[index])} for index in order]

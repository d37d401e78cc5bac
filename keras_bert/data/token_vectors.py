# SPDX-License-Identifier: Apache-2.0
"""Scores documents by the vectors of their tokens (MaxSim), and pools these vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_bert import checks

Array = np.ndarray[Any, Any]
# The number of similarities in memory at a time, 64 MB
_SIMILARITIES_AT_ONCE = 1 << 24


def max_similarities(query: Array, documents: Sequence[Array]) -> Array:
    """Computes the MaxSim score of each document for a query.

    For each vector of the query, the largest dot product with a vector of the document counts. The
    score is the sum. A document without vectors has the score 0.

    Args:
        query: The vectors of the query's tokens, float `(query_tokens, dim)`.
        documents: The vectors of each document's tokens, float `(tokens, dim)`.

    Returns:
        Float32 `(documents,)`.

    Example:

    >>> query = np.eye(2, dtype="float32")
    >>> max_similarities(query, [query, np.array([[0.5, 0.75]])]).tolist()
    [2.0, 1.25]

    Reference:
        [ColBERT](https://arxiv.org/abs/2004.12832), section 3.3.
    """
    scores = np.zeros(len(documents), "float32")
    rows = [row for row, document in enumerate(documents) if len(document)]
    ends = np.cumsum([len(documents[row]) for row in rows])
    most = max(1, _SIMILARITIES_AT_ONCE // max(1, len(query)))
    start = 0
    while start < len(rows):
        first = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, first + most, "right")))
        vectors = np.concatenate([documents[row] for row in rows[start:stop]])
        starts = np.concatenate([[0], ends[start : stop - 1] - first])
        # (query_tokens, tokens) -> (query_tokens, documents)
        best = np.maximum.reduceat(query @ vectors.T, starts, axis=1)
        scores[rows[start:stop]] = best.sum(axis=0)
        start = stop
    return scores


def pool_tokens(vectors: Array, pool_factor: int, num_protected: int = 1) -> Array:
    """Reduces the number of token vectors by averaging similar ones (hierarchical token pooling).

    The vectors are clustered by Ward's method on their cosine distances, and each cluster becomes
    its mean. As in PyLate, the means are not scaled to unit norm.

    Args:
        vectors: The vectors of a document's tokens, of unit norm, float32 `(tokens, dim)`.
        pool_factor: Average number of vectors per cluster. 1 keeps all vectors.
        num_protected: Number of vectors at the start to keep, for example that of `[CLS]`.

    Returns:
        Float32 `(num_protected + clusters, dim)`.

    Raises:
        ValueError: If `pool_factor` is not a positive integer.
        ImportError: If SciPy is not installed.

    Example:

    >>> vectors = np.array([[1, 0], [0, 1], [0.6, 0.8], [0, 1], [0.8, 0.6]], "float32")
    >>> pool_tokens(vectors, pool_factor=2).shape
    (3, 2)

    Reference:
        [Token pooling](https://arxiv.org/abs/2409.14683), section 3.
    """
    checks.POSITIVE_INT.check(pool_factor=pool_factor)
    kept, pooled = vectors[:num_protected], vectors[num_protected:]
    num_clusters = max(len(pooled) // pool_factor, 1)
    if num_clusters >= len(pooled):
        return vectors
    hierarchy = _scipy_hierarchy()
    distances = (1 - pooled @ pooled.T)[np.triu_indices(len(pooled), k=1)]
    links = hierarchy.linkage(distances, method="ward")
    labels = hierarchy.fcluster(links, t=num_clusters, criterion="maxclust")
    # Ties may leave fewer clusters.
    _, clusters, counts = np.unique(labels, return_inverse=True, return_counts=True)
    sums = np.zeros((len(counts), vectors.shape[1]), vectors.dtype)
    np.add.at(sums, clusters, pooled)
    return np.concatenate([kept, sums / counts[:, np.newaxis].astype(vectors.dtype)])


def _scipy_hierarchy() -> Any:
    with checks.importing("training", "Token pooling"):
        from scipy.cluster import hierarchy
    return hierarchy

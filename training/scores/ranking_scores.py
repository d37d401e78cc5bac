# SPDX-License-Identifier: Apache-2.0
"""Metrics of rankings: reciprocal rank, average precision, discounted cumulative gain.

A ranking lists the documents that a system retrieved for a query, the best first. Qrels grade
the relevance of documents for each query. As in `trec_eval -c`, a query that has a judgment counts
0 if the system retrieved nothing for it or if no document is relevant to it, and a query without a
judgment does not count. (Without `-c`, queries that are not in the run do not count either.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Run = Mapping[str, Sequence[str]]
Qrels = Mapping[str, Mapping[str, int]]


def ranking_scores(run: Run, qrels: Qrels, cutoff: int = 10) -> dict[str, float]:
    """Returns the means over queries, in percent.

    Args:
        run: For each query, its documents, the best first, without duplicates.
        qrels: For each query, the grades of judged documents; grades above 0 are relevant.
        cutoff: The number k of documents that `mrr@k` and `ndcg@k` consider.

    Returns:
        `mrr@k`, the reciprocal rank of the first relevant document among the first k (for 10, that
        is `trec_eval -c -M 10 -m recip_rank`); `map`, the mean over relevant documents of the
        precision at their rank, 0 for those not retrieved (`-c -m map`); and `ndcg@k`, the gains
        (the grades) discounted by log2(rank + 1), relative to the ideal ranking
        (`-c -m ndcg_cut.10`).

    Raises:
        ValueError: If no query has a relevant document, or a ranking has a document twice.

    Example:

    >>> ranking_scores({"1": ["b", "a"]}, {"1": {"a": 1}})
    {'mrr@10': 50.0, 'map': 50.0, 'ndcg@10': 63.09}

    Reference:
        [Cumulated gain-based evaluation](https://doi.org/10.1145/582415.582418).
    """
    per_query = [
        _query_scores(query, run.get(query, ()), grades, cutoff)
        for query, grades in qrels.items()
        if grades
    ]
    if not any(grade > 0 for grades in qrels.values() for grade in grades.values()):
        raise ValueError("no query has a relevant document, expected qrels above 0")
    names = (f"mrr@{cutoff}", "map", f"ndcg@{cutoff}")
    return {
        name: round(100 * math.fsum(values) / len(per_query), 2)
        for name, values in zip(names, zip(*per_query, strict=True), strict=True)
    }


def _query_scores(
    query: str, ranking: Sequence[str], grades: Mapping[str, int], cutoff: int
) -> tuple[float, float, float]:
    if len(set(ranking)) < len(ranking):
        raise ValueError(f"query {query} has a document twice in its ranking")
    gains = [max(0, grades.get(document, 0)) for document in ranking]
    ideal = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    if not ideal:
        return 0.0, 0.0, 0.0
    hits = [rank for rank, gain in enumerate(gains, start=1) if gain]
    reciprocal = 1 / hits[0] if hits and hits[0] <= cutoff else 0.0
    precisions = [count / rank for count, rank in enumerate(hits, start=1)]
    return (
        reciprocal,
        math.fsum(precisions) / len(ideal),
        _discounted(gains[:cutoff]) / _discounted(ideal[:cutoff]),
    )


def _discounted(gains: Sequence[int]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))

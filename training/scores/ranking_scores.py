# SPDX-License-Identifier: Apache-2.0
"""Ranking metrics: reciprocal rank, average precision and discounted cumulative gain.

A ranking lists the documents that a system retrieved for a query, best first. Qrels grade the
relevance of documents for each query. Scores match `trec_eval -c`: a query without any relevant or
retrieved document counts as 0, and a query without judgments does not count. `trec_eval` without
`-c` also ignores queries that are not in the run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

Run = Mapping[str, Sequence[str]]
Qrels = Mapping[str, Mapping[str, int]]


def ranking_scores(run: Run, qrels: Qrels, cutoff: int = 10) -> dict[str, float]:
    """Returns the means over queries, in percent.

    Args:
        run: The documents for each query, best first and without duplicates.
        qrels: The grades of the judged documents for each query. Documents with a grade above 0
            are relevant.
        cutoff: The number k of documents that `mrr@k` and `ndcg@k` consider.

    Returns:
        - `mrr@k`: The reciprocal rank of the first relevant document among the first k. For k = 10,
          the same as `trec_eval -c -M 10 -m recip_rank`.
        - `map`: The precision at the rank of each relevant document, 0 if it was not retrieved,
          averaged over relevant documents (`-c -m map`).
        - `ndcg@k`: The grades discounted by log2(rank + 1), relative to the ideal ranking
          (`-c -m ndcg_cut.10`).

    Raises:
        ValueError: If no query has a relevant document, or if a ranking has duplicates.

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
        raise ValueError("qrels must have at least one grade above 0")
    names = (f"mrr@{cutoff}", "map", f"ndcg@{cutoff}")
    return {
        name: round(100 * math.fsum(values) / len(per_query), 2)
        for name, values in zip(names, zip(*per_query, strict=True), strict=True)
    }


def _query_scores(
    query: str, ranking: Sequence[str], grades: Mapping[str, int], cutoff: int
) -> tuple[float, float, float]:
    if len(set(ranking)) < len(ranking):
        raise ValueError(
            f"each query must rank a document only once. Received: duplicates for query {query}"
        )
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

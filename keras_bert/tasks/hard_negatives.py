# SPDX-License-Identifier: Apache-2.0
"""Mines hard negatives: texts that a model confuses with the relevant text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from keras_bert import checks
from keras_bert.data.adapters.texts import single_texts
from keras_bert.data.adapters.tuples import tuple_columns
from keras_bert.data.arrays import unit_rows
from keras_bert.data.columns import as_string, materialize

Array = np.ndarray[Any, Any]
# The maximum number of scores to compute at a time (1 GiB)
_SCORES_AT_A_TIME = 1 << 28
# The number of candidates per negative if guards may drop candidates
_CANDIDATES_PER_NEGATIVE = 10


def mine_hard_negatives(
    embedder: Any,
    pairs: Any,
    corpus: Any = None,
    *,
    cross_encoder: Any = None,
    num_negatives: int = 3,
    range_min: int = 0,
    range_max: int | None = None,
    max_score: float | None = None,
    min_score: float | None = None,
    absolute_margin: float | None = None,
    relative_margin: float | None = None,
    sampling: Literal["top", "random"] = "top",
    seed: int = 0,
    batch_size: int | None = None,
    verbose: int | str = 0,
) -> dict[str, list[Any]]:
    """Finds hard negatives for pairs of a query and a relevant text, to train an embedder.

    The candidates are the documents that the embedder finds for the query, without the query and
    its relevant texts. Some of them may be relevant too (false negatives), and the options below
    drop them. We recommend `relative_margin=0.05`.

    Args:
        embedder: A `TextEmbedder` or `StaticEmbedder`.
        pairs: The queries and relevant texts, in any form that `TextEmbedder.fit` accepts in
            memory. A query may have multiple relevant texts, one in each pair.
        corpus: The documents to search, in any form of single texts in memory. Relevant texts are
            always added. Defaults to only them.
        cross_encoder: A task whose `rank` computes the scores that the options below compare and
            that are returned, for example a `TextClassifier` trained to re-rank. The embedder still
            finds the candidates, and the negatives are those with the cross-encoder's highest
            scores.
        num_negatives: Maximum number of negatives for each pair.
        range_min: Number of the best candidates to skip.
        range_max: Number of the best candidates to consider. Defaults to `range_min` plus
            `num_negatives`, or 10 times `num_negatives` if candidates may be dropped, plus the
            maximum number of relevant texts of a query.
        max_score: Drops candidates with a higher score.
        min_score: Drops candidates with a lower score.
        absolute_margin: Drops candidates unless their score is at least this much lower than the
            score of the query's relevant text (of all its relevant texts, if there are more).
        relative_margin: Drops candidates unless their score is at least this fraction of the
            relevant text's score lower.
        sampling: `"top"` for the candidates with the highest scores, or `"random"` for a random
            choice of them.
        seed: Seed for `"random"`.
        batch_size: Number of texts per batch. Defaults to 32.
        verbose: 0 or 1. With 1, it shows progress bars.

    Returns:
        A dict for `TextEmbedder.fit` with one row for each pair, in their order: `text`,
        `text_pair`, `negatives` (a list, which has fewer texts if too few candidates are left) and
        `scores`, the scores of the relevant text and of each negative.

    Raises:
        ValueError: If `pairs` are not pairs, if an option is invalid, or if the embedder does not
            compute one vector for each text.

    Example:

    ```python
    rows = keras_bert.mine_hard_negatives(embedder, pairs, relative_margin=0.05)
    embedder.fit(rows)
    ```

    Reference:
        [NV-Retriever](https://arxiv.org/abs/2407.15831), section 3.
    """
    guards = _Guards(max_score, min_score, absolute_margin, relative_margin)
    checks.POSITIVE_INT.check(num_negatives=num_negatives)
    checks.NON_NEGATIVE_INT.check(range_min=range_min)
    checks.check_choice(("top", "random"), sampling=sampling)
    columns = tuple_columns(pairs)
    queries, positives = (
        [as_string(text) for text in columns[name]] for name in ("text", "text_pair")
    )
    corpus_texts = [] if corpus is None else single_texts(materialize(corpus))
    documents = list(dict.fromkeys([*corpus_texts, *positives]))
    positions = {text: index for index, text in enumerate(documents)}
    relevant: dict[str, list[int]] = {}
    for query, positive in zip(queries, positives, strict=True):
        own = relevant.setdefault(query, [])
        if positions[positive] not in own:
            own.append(positions[positive])
    most_relevant = max(map(len, relevant.values()), default=0)
    if range_max is None:
        factor = _CANDIDATES_PER_NEGATIVE if guards.may_drop(cross_encoder) else 1
        range_max = range_min + factor * num_negatives + most_relevant
    if range_max - range_min < num_negatives:
        raise ValueError(
            f"range_max must be at least range_min + num_negatives, {range_min + num_negatives}. "
            f"Received: {range_max}"
        )
    options: dict[str, Any] = {"batch_size": batch_size, "verbose": verbose}
    query_vectors = _unit(embedder.embed_queries(list(relevant), **options))
    document_vectors = _unit(embedder.embed_documents(documents, **options))
    random = np.random.default_rng(seed)
    found: dict[str, tuple[dict[int, float], list[int], list[float]]] = {}
    chunk_size = max(1, _SCORES_AT_A_TIME // max(1, len(documents)))
    for index, (query, own) in enumerate(relevant.items()):
        if index % chunk_size == 0:
            chunk = query_vectors[index : index + chunk_size]
            all_scores = chunk @ document_vectors.T
        scores = all_scores[index % chunk_size]
        # The query's own text may also be in the corpus.
        excluded = [*own, positions.get(query, own[0])]
        candidates = _largest(scores, range_max + most_relevant + (query in positions))
        scores, own_scores = scores[candidates], scores[own]
        if cross_encoder is not None:
            texts = [documents[number] for number in (*candidates, *own)]
            scores = _rescore(cross_encoder, query, texts, batch_size)
            scores, own_scores = scores[: len(candidates)], scores[len(candidates) :]
        keeps = ~np.isin(candidates, excluded) & guards.keep(scores, own_scores.min())
        # If the cross-encoder has another order, it decides.
        order = np.argsort(np.where(keeps, -scores, np.inf), kind="stable")[range_min:range_max]
        order = order[keeps[order]]
        if sampling == "random" and len(order) > num_negatives:
            order = order[np.sort(random.choice(len(order), num_negatives, replace=False))]
        order = order[:num_negatives]
        found[query] = (
            dict(zip(own, own_scores.tolist(), strict=True)),
            candidates[order].tolist(),
            scores[order].tolist(),
        )
    rows = [(found[query], positions[text]) for query, text in zip(queries, positives, strict=True)]
    return {
        "text": queries,
        "text_pair": positives,
        "negatives": [[documents[index] for index in chosen] for (_, chosen, _), _ in rows],
        "scores": [[own[positive], *scores] for (own, _, scores), positive in rows],
    }


@dataclasses.dataclass(frozen=True)
class _Guards:
    """The options of `mine_hard_negatives` against false negatives."""

    max_score: float | None
    min_score: float | None
    absolute_margin: float | None
    relative_margin: float | None

    def __post_init__(self) -> None:
        checks.FINITE.check_optional(max_score=self.max_score, min_score=self.min_score)
        checks.NON_NEGATIVE.check_optional(
            absolute_margin=self.absolute_margin, relative_margin=self.relative_margin
        )

    def may_drop(self, cross_encoder: Any) -> bool:
        """Whether more candidates than negatives are needed."""
        others = (self.max_score, self.absolute_margin, self.relative_margin)
        # The embedder's candidates with the highest scores are the last that `min_score` drops.
        is_rescored = cross_encoder is not None and self.min_score is not None
        return is_rescored or any(value is not None for value in others)

    def keep(self, scores: Array, relevant_score: float) -> Array:
        """Returns which candidates to keep, given the lowest score of a relevant text."""
        keeps = np.ones(len(scores), bool)
        if self.absolute_margin is not None:
            keeps &= scores + self.absolute_margin <= relevant_score
        if self.relative_margin is not None:
            # Scores may be negative, so the margin is a fraction of the magnitude.
            keeps &= scores <= relevant_score - abs(relevant_score) * self.relative_margin
        if self.max_score is not None:
            keeps &= scores <= self.max_score
        if self.min_score is not None:
            keeps &= scores >= self.min_score
        return keeps


def _largest(scores: Array, count: int) -> Array:
    """Returns the indices of the largest scores, in descending order of the scores."""
    if count < len(scores):
        indices = np.sort(np.argpartition(-scores, count)[:count])
    else:
        indices = np.arange(len(scores))
    return np.asarray(indices[np.argsort(-scores[indices], kind="stable")])


def _unit(vectors: Any) -> Array:
    if not isinstance(vectors, np.ndarray) or vectors.ndim != 2:
        raise ValueError(
            "embedder must compute one dense vector for each text, like a TextEmbedder or "
            f"StaticEmbedder. Received: embeddings of type {type(vectors).__name__}"
            f"{f' and shape {vectors.shape}' if hasattr(vectors, 'shape') else ''}"
        )
    return unit_rows(np.asarray(vectors, "float32"))


def _rescore(cross_encoder: Any, query: str, texts: Sequence[str], batch_size: int | None) -> Array:
    """Returns the score of each text."""
    scores = np.zeros(len(texts), "float32")
    ranking: Sequence[Mapping[str, Any]] = cross_encoder.rank(query, texts, batch_size)
    for row in ranking:
        scores[row["index"]] = row["score"]
    return scores

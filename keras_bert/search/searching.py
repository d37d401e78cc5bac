# SPDX-License-Identifier: Apache-2.0
"""Answers queries from an index: by each of its methods, fused, re-ranked, and with a snippet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from keras_bert import checks
from keras_bert.search.index import FUSED, Passage, SearchIndex
from keras_bert.search.passages import sentences, text_with_title
from keras_bert.search.retriever import Ranking
from keras_bert.search.terms import term_spans, terms

Mode = Literal["fused", "words", "vectors", "sparse", "late"]
MODES: tuple[Mode, ...] = get_args(Mode)
# The target of attributions by a re-ranker's number of classes
_RELEVANT = {1: None, 2: 1}


@dataclasses.dataclass(frozen=True)
class Hit:
    """A passage that was found.

    Args:
        id: The passage's number.
        document: The document's name.
        title: The document's title.
        text: The passage's text.
        start: The offset of the passage's first character in the document.
        page: The page of this character, from 1. `None` for documents without pages.
        score: The score that determines the order: of the re-ranker, otherwise of the mode.
        snippet: The start and end, in the passage, of the answer or of the sentence with the rarest
            words of the query. `end` is the offset after the last character.
        ranks: The passage's rank by each of the index's methods, from 1. A method that did not find
            it is left out.
        answer_score: The probability of the answer, from 0 to 1. `None` without an answerer.
    """

    id: int
    document: str
    title: str
    text: str
    start: int
    page: int | None
    score: float
    snippet: tuple[int, int]
    ranks: dict[str, int]
    answer_score: float | None = None


class Searcher:
    """Answers queries from an index.

    Args:
        index: The index.
        reranker: A task with `rank(query, documents)`, such as a `TextClassifier` of pairs. It
            orders the best candidates by reading each one together with the query.
        answerer: A `QuestionAnswerer`. It finds the answer in each of the best passages.

    Example:

    ```python
    searcher = Searcher(index)
    for hit in searcher.search("who wrote faust?", top_k=3):
        print(hit.document, hit.text[slice(*hit.snippet)])
    ```
    """

    def __init__(self, index: SearchIndex, reranker: Any = None, answerer: Any = None) -> None:
        for name, task, method in (
            ("reranker", reranker, "rank"),
            ("answerer", answerer, "answer"),
        ):
            if task is not None and not hasattr(task, method):
                raise ValueError(
                    f"{name} must be a task with the method {method}. Received: a "
                    f"{type(task).__name__}"
                )
        self.index = index
        self.reranker = reranker
        self.answerer = answerer

    def search(
        self, query: str, top_k: int = 10, *, mode: Mode = "fused", candidates: int = 100
    ) -> list[Hit]:
        """Finds the passages that answer a query.

        Args:
            query: The query.
            top_k: Maximum number of passages. Defaults to 10.
            mode: `"words"` for BM25, `"vectors"` for the similarity of vectors, `"sparse"` for
                sparse embeddings, `"late"` for late interaction with the best passages of the
                index's other methods, or `"fused"` for the mean of the scores of all of the index's
                methods, each scaled to [0, 1]. Defaults to `"fused"`.
            candidates: Number of passages of each method to fuse, and to re-rank. Defaults to 100.

        Returns:
            The passages in descending order of score.

        Raises:
            ValueError: If `query` is not a string, an option is invalid, or the index has no
                embedder for `mode`.

        Reference:
            [An analysis of fusion functions](https://arxiv.org/abs/2210.11934), section 3.
        """
        if not isinstance(query, str):
            raise ValueError(f"query must be a string. Received: {checks.shorten_repr(query)}")
        checks.POSITIVE_INT.check(top_k=top_k, candidates=candidates)
        checks.check_choice((FUSED, *self.index.methods), mode=mode)
        count = max(top_k, candidates)
        ranked: dict[str, Ranking] = {}
        for name in self.index.methods_of(mode):
            found = [number for number, _ in fuse_scores(ranked.values(), count)[:count]]
            ranked[name] = self.index.search(name, query, count, found)
        scored = ranked[mode] if mode != FUSED else fuse_scores(ranked.values(), count)[:count]
        if self.reranker is None:
            scored = scored[:top_k]
        passages = self.index.passages([number for number, _ in scored])
        scores = dict(scored)
        pairs = [(passage, scores[passage.id]) for passage in passages]
        if self.reranker is not None and pairs:
            texts = [text_with_title(passage.title, passage.text) for passage in passages]
            order = self.reranker.rank(query, texts, top_k=top_k)
            pairs = [(passages[rank["index"]], rank["score"]) for rank in order]
        ranks: dict[int, dict[str, int]] = {}
        for name, ranking in ranked.items():
            for rank, (number, _) in enumerate(ranking, start=1):
                ranks.setdefault(number, {})[name] = rank
        return self._hits(query, pairs, ranks)

    def explain(self, query: str, id: int) -> list[dict[str, Any]]:
        """Weighs the words of a passage by what they contribute to its rank.

        With a `TextClassifier` as the re-ranker, the weights are its attributions (integrated
        gradients), and negative for words that lower its score. Otherwise, the query's
        words have the weight that BM25 gives to their rarity.

        Args:
            query: The query.
            id: The passage's number, `Hit.id`.

        Returns:
            Dicts with `start` and `end` in the passage, and `score`. Empty if the passage was
            removed.
        """
        passages = self.index.passages([id])
        if not passages:
            return []
        words = self._attributed_words(query, passages[0])
        if words is None:
            rarities = self.index.rarities(query)
            words = [
                {"start": start, "end": end, "score": rarities[term]}
                for term, start, end in term_spans(passages[0].text)
                if term in rarities
            ]
        return words

    def _attributed_words(self, query: str, passage: Passage) -> list[dict[str, Any]] | None:
        """Returns the re-ranker's attributions. `None` if it has none for this input."""
        from keras_bert.insight import attributions

        classes = getattr(self.reranker, "num_classes", None)
        if classes not in _RELEVANT:
            return None
        text = text_with_title(passage.title, passage.text)
        try:
            words = attributions(self.reranker, (query, text), target=_RELEVANT[classes]).words
        except ValueError:  # The text is longer than the re-ranker's inputs.
            return None
        first = len(text) - len(passage.text)  # after the title
        return [
            {"start": word["start"] - first, "end": word["end"] - first, "score": word["score"]}
            for word in words
            if word["text"] == 1 and word["start"] >= first
        ]

    def _hits(
        self,
        query: str,
        pairs: Sequence[tuple[Passage, float]],
        ranks: Mapping[int, dict[str, int]],
    ) -> list[Hit]:
        answers: list[Any] = [None] * len(pairs)
        if self.answerer is not None and pairs:
            texts = [passage.text for passage, _ in pairs]
            answers = self.answerer.answer([query] * len(texts), texts)
        hits, rarities = [], self.index.rarities(query)
        for (passage, score), answer in zip(pairs, answers, strict=True):
            place, answer_score = best_sentence(rarities, passage.text), None
            if answer is not None:
                answer_score = float(answer["score"])
                if answer["answer"]:
                    place = int(answer["start"]), int(answer["end"])
            hits.append(Hit(*passage, score, place, ranks.get(passage.id, {}), answer_score))
        return hits


def fuse_scores(rankings: Iterable[Ranking], count: int) -> Ranking:
    """Fuses rankings by the mean of their scores, each scaled to [0, 1].

    In each ranking, the best passage has 1. The last one of `count` passages, and passages that
    are not in the ranking, have 0.

    Args:
        rankings: The rankings.
        count: Maximum number of passages in a ranking. In a shorter ranking, a score of 0 becomes
            0, because the method found no other passage.

    Example:

    >>> fuse_scores([[(7, 4.0), (8, 1.0)], [(8, 0.75), (9, 0.5), (6, 0.25)]], count=3)
    [(8, 0.625), (7, 0.5), (9, 0.25), (6, 0.0)]

    Reference:
        [An analysis of fusion functions for hybrid retrieval](https://arxiv.org/abs/2210.11934),
        section 3.
    """
    given = [*rankings]
    fused: dict[int, float] = {}
    for ranking in filter(None, given):
        highest, lowest = ranking[0][1], ranking[-1][1]
        if len(ranking) < count:
            lowest = min(lowest, 0.0)
        width = (highest - lowest) or 1.0
        for number, score in ranking:
            share = (score - lowest) / width if highest > lowest else 1.0
            fused[number] = fused.get(number, 0.0) + share / len(given)
    return sorted(fused.items(), key=lambda item: (-item[1], item[0]))


def best_sentence(rarities: Mapping[str, float], text: str) -> tuple[int, int]:
    """Returns the start and end of the sentence with the rarest terms of a query.

    Args:
        rarities: The terms with their weights, from `SearchIndex.rarities`.
        text: The text.
    """

    def weight(place: tuple[int, int]) -> float:
        return sum(rarities.get(term, 0.0) for term in {*terms(text[slice(*place)])})

    places = [(start, end) for start, end, _ in sentences(text)] or [(0, len(text))]
    return max(places, key=weight)

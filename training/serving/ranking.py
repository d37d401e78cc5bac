# SPDX-License-Identifier: Apache-2.0
"""Scores the relevance of texts to a query, for multiple protocols."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from starlette.requests import Request

from keras_bert.data.labels import sigmoid
from keras_bert.data.token_vectors import max_similarities
from keras_bert.tasks import ranking

from .json_fields import RequestError, check_not_empty
from .models import LoadedModel
from .server import ModelServer
from .signatures import (
    CHOICES,
    DEFAULT_SIGNATURE,
    PROMPT_NAME,
    QUERY,
    QUERY_SIGNATURE,
    TEXT_PAIR,
    Row,
)

# Number of texts whose token vectors are in memory
_TEXTS_AT_A_TIME = 64
# What a model must provide, for error messages
RANKING = (
    "one score per text pair (regression, one label or two classes, trained or exported with "
    "text_pair, or multiple choice) or late interaction"
)


@dataclasses.dataclass(frozen=True)
class RankingRequest:
    """A request to rank texts.

    Args:
        query: The query.
        texts: The texts.
        field: The request field that contains the texts, for error messages.
        raw_scores: Whether to return a regression model's scores without a sigmoid.
        truncate: Whether to truncate overlong texts instead of raising an error.
    """

    query: str
    texts: Sequence[str]
    field: str
    raw_scores: bool = False
    truncate: bool = False


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The ranking of the texts in a request.

    Args:
        documents: The `index` and `score` of each text, in descending order of score.
        num_tokens: Number of tokens in all pairs, including special tokens.
        truncated: The indices of truncated texts.
    """

    documents: Sequence[Row]
    num_tokens: int
    truncated: list[int]


def reason_against_ranking(model: LoadedModel) -> str:
    """Returns why a model cannot score the relevance of text pairs, or `""` if it can."""
    if model.predict_method == "choose" or model.embedding_kind == "multi_vector":
        return ""
    if model.predict_method != "classify":
        return f"has the method {model.predict_method}"
    if not model.text_pairs:
        return "accepts only single texts"
    # A regression has no class names.
    return ranking.reason_against_ranking(
        len(model.class_names) or 1, multi_label=model.multi_label
    )


async def rank(
    server: ModelServer, request: Request, model: LoadedModel, options: RankingRequest
) -> Ranking:
    """Ranks texts by their relevance to a query, like `rank` of a task.

    The score of a regression passes through a sigmoid unless `raw_scores` is true. For late
    interaction, it is then a mean over the query's vectors instead of a sum, so that it is at most
    1.

    Raises:
        RequestError: If a pair is empty, or too long and `truncate` is false, if the query is too
            long, or if `raw_scores` is true for a model that returns probabilities.
        RejectedRequestError: As in `ModelServer.compute`.
    """
    query, texts, field = options.query, options.texts, options.field
    check_raw_scores(model, options.raw_scores)
    check_not_empty([(query, text) for text in texts], field)
    if model.embedding_kind == "multi_vector":
        return await _rank_by_vectors(server, request, model, options)
    server.check_copies(len(query) * len(texts), "query")
    pairs = [{"text": query, TEXT_PAIR: text} for text in texts]
    counts, truncated = await server.count(model, pairs, field, options.truncate)
    if model.predict_method == "choose":
        row = {"text": query, CHOICES: texts}
        (answer,) = await server.answer_choices(request, model, [row])
        scores = np.array(answer["probabilities"])
    else:
        answers = await server.compute(request, model, DEFAULT_SIGNATURE, pairs)
        scores = np.array([answer_scores(answer, options.raw_scores)[-1] for answer in answers])
    num_tokens = sum(map(model.limits.read_tokens, counts))
    return Ranking(ranking.rank_documents(scores), num_tokens, truncated)


async def _rank_by_vectors(
    server: ModelServer, request: Request, model: LoadedModel, options: RankingRequest
) -> Ranking:
    """Ranks texts by their MaxSim scores."""
    query = {"text": options.query, PROMPT_NAME: QUERY}
    rows = [{"text": text} for text in options.texts]
    (first,), _ = await server.count(model, [query], "query", options.truncate)
    counts, truncated = await server.count(model, rows, options.field, options.truncate)
    (answer,) = await server.compute(request, model, QUERY_SIGNATURE, [query])
    vectors = np.array(answer["vectors"], "float32")
    scores: list[float] = []
    # The vectors of all texts would need too much memory.
    for start in range(0, len(rows), _TEXTS_AT_A_TIME):
        part = rows[start : start + _TEXTS_AT_A_TIME]
        answers = await server.compute(request, model, DEFAULT_SIGNATURE, part)
        texts = [np.array(each["vectors"], "float32") for each in answers]
        scores += max_similarities(vectors, texts).tolist()
    scale = 1 if options.raw_scores else len(vectors)
    num_tokens = sum(map(model.limits.read_tokens, [first, *counts]))
    ranked = ranking.rank_documents(np.array(scores) / scale)
    return Ranking(ranked, num_tokens, truncated)


def check_raw_scores(model: LoadedModel, raw_scores: bool) -> None:
    """Checks that a model returns a score rather than probabilities if `raw_scores` is true.

    Raises:
        RequestError: If the model returns probabilities.
    """
    has_scores = model.predict_method == "classify" or model.embedding_kind == "multi_vector"
    if raw_scores and (model.class_names or not has_scores):
        raise RequestError(
            "raw_scores must be false because the model returns probabilities. Received: true",
            "raw_scores",
        )


def answer_scores(answer: Row, raw_scores: bool = False) -> list[float]:
    """Returns an example's probabilities or score.

    A sigmoid is applied to a score unless `raw_scores` is true.
    """
    if "probabilities" in answer:
        probabilities: list[float] = answer["probabilities"]
        return probabilities
    score = answer["score"]
    return [score if raw_scores else float(sigmoid(np.float64(score)))]

# SPDX-License-Identifier: Apache-2.0
"""Classifies texts by the labels in a request, with an embedder or an entailment model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from starlette.requests import Request

from keras_bert.data.labels import rank_labels
from keras_bert.data.packing import num_special_tokens
from keras_bert.tasks.zero_shot import (
    ENTAILMENT_HYPOTHESIS,
    SIMILARITY_HYPOTHESIS,
    cosine_similarities,
    entailment_id,
    entailment_scores,
    label_hypotheses,
)

from .embeddings import EmbeddingRequest, embed, option_fields
from .json_fields import MAX_BYTES_OF_LABEL, RequestError, check_not_empty, read_fields
from .models import PAIR_SIGNATURE, LoadedModel
from .server import ModelServer
from .signatures import TEXT_PAIR

# What a model must provide, for error messages
ZERO_SHOT = "embeddings, or labels for text pairs among which one starts with entail"


@dataclasses.dataclass(frozen=True)
class ZeroShotRequest:
    """A request to classify texts by labels.

    Args:
        texts: The texts.
        labels: The labels.
        hypothesis: The hypothesis with `{}` in place of the label. `None` for the default of
            `classify_zero_shot`.
        multi_label: Whether any number of labels applies to a text. Similarities do not depend on
            it.
        truncate: Whether to truncate overlong texts instead of raising an error.
    """

    texts: Sequence[str]
    labels: Sequence[str]
    hypothesis: str | None = None
    multi_label: bool = False
    truncate: bool = False


def reason_against_zero_shot(model: LoadedModel) -> str:
    """Returns why a model cannot classify by any labels, or `""` if it can."""
    if model.embedding_kind == "dense":
        return ""
    if model.predict_method != "classify":
        return f"has the method {model.predict_method}"
    if not model.text_pairs:
        return "accepts only single texts"
    if model.pair_signature is None:
        return "splits long texts into windows"
    try:
        _entailment_id(model)
    except ValueError:
        return "has no entailment class"
    return ""


async def classify_zero_shot(
    server: ModelServer, request: Request, model: LoadedModel, options: ZeroShotRequest
) -> tuple[list[list[dict[str, Any]]], list[int]]:
    """Classifies texts like `classify_zero_shot` of a task.

    Returns:
        The labels of each text with their scores, in descending order of score, and the indices of
        truncated texts.

    Raises:
        RequestError: If a text is empty, or too long and `truncate` is false, if labels are not
            unique, if a label is too long, if the hypothesis has no `{}`, or if there are too many
            pairs.
        RejectedRequestError: As in `ModelServer.compute`, and if the response may be too large.
    """
    texts, is_embedder = options.texts, model.embedding_kind == "dense"
    check_not_empty([[text] for text in texts], "inputs")
    check_not_empty([[label] for label in options.labels], "candidate_labels")
    if len(set(options.labels)) != len(options.labels):
        raise RequestError(
            f"candidate_labels must be different. Received: {list(options.labels)!r:.200}",
            "candidate_labels",
        )
    # An embedder computes each text and each label, an entailment model each pair of them.
    limit = server.max_rows - len(texts) if is_embedder else server.max_rows // len(texts)
    if len(options.labels) > limit:
        raise RequestError(
            f"candidate_labels must have at most {limit} elements for {len(texts)} texts. "
            f"Received: {len(options.labels)}",
            "candidate_labels",
        )
    hypothesis = options.hypothesis
    if hypothesis is None:
        hypothesis = SIMILARITY_HYPOTHESIS if is_embedder else ENTAILMENT_HYPOTHESIS
    server.check_copies(len(hypothesis) * len(options.labels), "hypothesis_template")
    if not is_embedder:
        server.check_copies(sum(map(len, texts)) * len(options.labels), "inputs")
    try:
        labels = label_hypotheses(options.labels, hypothesis)
    except ValueError as error:
        raise RequestError(
            str(error).replace("hypothesis", "hypothesis_template"), "hypothesis_template"
        ) from error
    hypotheses = list(labels.values())
    per_label = MAX_BYTES_OF_LABEL + sum(len(label.encode()) for label in labels) // len(labels)
    server.check_size(len(texts) * len(labels), per_label)
    if is_embedder:
        rows = [{"text": text} for text in hypotheses]
        await server.count(model, rows, "candidate_labels", truncate=False)
        defaults = read_fields({}, option_fields(options.truncate))
        inputs = EmbeddingRequest([*texts, *hypotheses], "inputs", defaults, bytes_per_number=0)
        answer = await embed(server, request, model, inputs)
        scores = cosine_similarities(answer.values[: len(texts)], answer.values[len(texts) :])
        truncated = answer.truncated
    else:
        _check_hypotheses(model, hypotheses)
        pairs = [{"text": text, TEXT_PAIR: other} for text in texts for other in hypotheses]
        _, truncated_rows = await server.count(model, pairs, "inputs", options.truncate)
        truncated = sorted({row // len(labels) for row in truncated_rows})
        answers = await server.compute(request, model, PAIR_SIGNATURE, pairs)
        logits = np.array([answer["logits"] for answer in answers])
        scores = entailment_scores(
            logits.reshape(len(texts), len(labels), -1),
            _entailment_id(model),
            multi_label=options.multi_label,
        )
    return [rank_labels(list(labels), row) for row in scores], truncated


def _entailment_id(model: LoadedModel) -> int:
    return entailment_id(model.class_names, 0 if model.multi_label else len(model.class_names))


def _check_hypotheses(model: LoadedModel, hypotheses: Sequence[str]) -> None:
    """Checks that hypotheses are so short that only the texts are truncated.

    Raises:
        RequestError: If a hypothesis is too long.
    """
    if model.limits.sequence_length is None:
        return
    # Pairs are truncated at the end of the longer text.
    limit = (model.limits.sequence_length - num_special_tokens(model.tokenizer, 2)) // 2
    lengths = model.tokenizer.flat_ids(hypotheses)[1]
    if lengths.max() > limit:
        raise RequestError(
            f"candidate_labels must have at most {limit} tokens each, with the hypothesis. "
            f"Received: {lengths.max()} tokens ({hypotheses[lengths.argmax()]!r:.200})",
            "candidate_labels",
        )

# SPDX-License-Identifier: Apache-2.0
"""Implements the Text Embeddings Inference (TEI) and Hugging Face Inference APIs.

Endpoints, JSON and errors match TEI's `router/src/http`. An endpoint belongs to the only model that
supports it. With multiple such models, prefix the path with `/models/NAME`. `POST /` is Hugging
Face's Inference API, with options in `parameters`.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import keras_bert
from keras_bert.data.tagging_schemes import OUTSIDE, Entity, entities, typed_labels
from keras_bert.text.tokenizer import Tokenizer

from .embeddings import (
    EmbeddingRequest,
    check_direction,
    embed,
    embed_answers,
    kind_of_embeddings,
    option_fields,
    read_inputs,
    reason_against_embeddings,
    text_fields,
    truncation_fields,
)
from .json_fields import (
    MAX_BYTES_OF_LABEL,
    Field,
    RequestError,
    check_not_empty,
    check_number,
    describe_json,
    encode_json,
    one_of,
    read_boolean,
    read_count,
    read_fields,
    read_names,
    read_object,
    read_object_of,
    read_text,
    read_texts,
)
from .models import LoadedModel
from .ranking import (
    RANKING,
    RankingRequest,
    answer_scores,
    check_raw_scores,
    rank,
    reason_against_ranking,
)
from .server import ModelServer, Protocol, RejectedRequestError, respond, respond_with_error
from .signatures import BATCH_CHARACTERS, DEFAULT_SIGNATURE, TEXT_PAIR, Row
from .zero_shot import (
    ZERO_SHOT,
    ZeroShotRequest,
    classify_zero_shot,
    reason_against_zero_shot,
)

_EXAMPLE = '{"inputs": "a text"}'
# The label for regression, as in Hugging Face configs without labels
_ONLY_LABEL = "LABEL_0"
# Aggregation strategies. A word always has the label of its first token.
_STRATEGIES = ("none", "simple", "first")
# The prediction methods behind /predict
_PREDICTS = ("classify", "tag")
# The parameters of Hugging Face pipelines, by prediction method
_PARAMETERS = {
    "classify": {
        "top_k": Field(read_count),
        "function_to_apply": Field(one_of("softmax", "sigmoid", "none")),
    },
    "tag": {
        "aggregation_strategy": Field(one_of(*_STRATEGIES), "simple"),
        "ignore_labels": Field(read_names, [OUTSIDE]),
    },
}
_ROWS = "a string, a pair of strings, or a list whose elements are lists with one or two strings"
# Maximum number of tokens in a response. Each token's JSON has about 70 bytes.
_MAX_TOKENS = 1 << 18
# Maps status codes of this server to TEI's status codes and error types.
_ERRORS = {
    400: (422, "Validation"),
    413: (413, "Validation"),
    424: (424, "Backend"),
    500: (424, "Backend"),
    503: (429, "Overloaded"),
}


def _routes(server: ModelServer) -> list[Route]:
    api = _Api(server)
    answers = {
        "/embed": api.embed,
        "/embed_all": api.embed_all,
        "/embed_sparse": api.embed_sparse,
        "/similarity": api.similarity,
        "/predict": api.predict,
        "/rerank": api.rerank,
        "/tokenize": api.tokenize,
        "/decode": api.decode,
        "/": api.infer,
    }

    async def info(request: Request) -> Response:
        return await respond(lambda: encode_json(api.info(request)))

    async def health(request: Request) -> Response:
        return Response()

    def post(path: str, answer: Callable[[Request, Row], Awaitable[Response]]) -> Route:
        async def parse(request: Request, body: bytes) -> Response:
            return await answer(request, read_object(body, _EXAMPLE))

        return server.post(path, parse, _write_error)

    # Health checks: GET / in Hugging Face's Inference API, /ping in AWS SageMaker.
    routes = [Route(path, health) for path in ("/health", "/ping", "/")]
    for prefix in ("", "/models/{name:model}"):
        routes.append(Route(f"{prefix}/info", info))
        routes += [
            post(f"{prefix}{path}".removesuffix("/") or "/", answer)
            for path, answer in answers.items()
        ]
    return routes


class _Api:
    """The handlers of the endpoints."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._embedding_options = option_fields(server.auto_truncate)
        inputs = Field(read_inputs(server.max_rows), is_required=True)
        self._embed_fields = {"inputs": inputs, **self._embedding_options}
        self._sparse_fields = {"inputs": inputs, **text_fields(server.auto_truncate)}
        texts = Field(self._read_texts, is_required=True)
        self._token_fields = {**self._sparse_fields, "inputs": texts}
        scores = {
            **truncation_fields(server.auto_truncate),
            "raw_scores": Field(read_boolean, False),
        }
        self._predict_fields = {"inputs": Field(self._read_rows, is_required=True), **scores}
        self._rerank_fields = {
            "query": Field(read_text, is_required=True),
            "texts": Field(self._read_texts, is_required=True),
            "return_text": Field(read_boolean, False),
            **scores,
        }

    async def infer(self, request: Request, payload: Row) -> Response:
        """Handles `POST /` as the Inference API does, or as TEI does without `parameters`."""
        if "query" in payload:
            return await self.rerank(request, payload)
        parameters = payload.get("parameters")
        if isinstance(parameters, dict) and "candidate_labels" in parameters:
            return await self.classify_zero_shot(request, payload)
        model = self._server.model_for(
            request, "embeddings, labels or scores", _other_method(*_PREDICTS, "embed")
        )
        if model.embedding_kind == "sparse":
            return await self.embed_sparse(request, payload)
        if model.embedding_kind == "dense":
            is_similarity = isinstance(payload.get("inputs"), dict)
            return await (self.similarity if is_similarity else self.embed)(request, payload)
        if payload.get("parameters") is None:
            return await self.predict(request, payload)
        fields = {
            "inputs": Field(self._read_texts, is_required=True),
            "parameters": Field(
                read_object_of(_PARAMETERS[model.predict_method]), is_required=True
            ),
        }
        is_single = isinstance(payload.get("inputs"), str)
        texts, parameters = read_fields(payload, fields).values()
        top_k = parameters.pop("top_k", None)
        function = parameters.pop("function_to_apply", None)
        functions = ["softmax"] if model.class_names and not model.multi_label else ["sigmoid"]
        functions += [] if model.class_names else ["none"]
        if function not in (None, *functions):
            raise RequestError(
                f"function_to_apply must be {' or '.join(functions)}, because the model returns "
                f"{'probabilities' if model.class_names else 'a score'}. Received: {function}",
                "function_to_apply",
            )
        options = {
            "truncate": self._server.auto_truncate,
            "raw_scores": function == "none",
            **parameters,
        }
        rows = [{"text": text} for text in texts]
        answers, truncated = await self._predictions(request, model, rows, options)
        answers = [answer[:top_k] for answer in answers]
        # Pipelines return a nested list of classes even for a single text, but a flat list of
        # entities.
        is_flat = is_single and model.predict_method == "tag"
        return await respond(lambda: encode_json(answers[0] if is_flat else answers), truncated)

    async def embed(self, request: Request, payload: Row) -> Response:
        """Computes an embedding for each input."""
        model = self._embedder(request, "dense")
        embedding = _embedding_request(payload, self._embed_fields)
        answer = await embed(self._server, request, model, embedding)
        return await respond(lambda: encode_json(answer.values), answer.truncated)

    async def embed_all(self, request: Request, payload: Row) -> Response:
        """Computes the token vectors of each document or query."""
        model = self._embedder(request, "multi_vector")
        options = read_fields(payload, self._token_fields)
        embedding = EmbeddingRequest(options["inputs"], "inputs", options)
        size = model.embedding_dim * embedding.bytes_per_number
        self._server.check_size(len(embedding.inputs), size)
        answer = await embed_answers(self._server, request, model, embedding)
        vectors = [values["vectors"] for values in answer.values]
        return await respond(lambda: encode_json(vectors), answer.truncated)

    async def embed_sparse(self, request: Request, payload: Row) -> Response:
        """Computes the token ids and weights of each input."""
        model = self._embedder(request, "sparse")
        embedding = _embedding_request(payload, self._sparse_fields)
        answer = await embed_answers(self._server, request, model, embedding)
        return await respond(
            lambda: encode_json(list(map(_sparse_values, answer.values))), answer.truncated
        )

    async def similarity(self, request: Request, payload: Row) -> Response:
        """Computes the similarity between one sentence and other sentences."""
        model = self._embedder(request, "dense")
        sentences = {
            "source_sentence": Field(read_text, is_required=True),
            "sentences": Field(self._read_texts, is_required=True),
        }
        options = read_fields(
            payload,
            {
                "inputs": Field(read_object_of(sentences), is_required=True),
                "parameters": Field(
                    read_object_of(self._embedding_options),
                    read_fields({}, self._embedding_options),
                ),
            },
        )
        first, others = options["inputs"].values()
        embedding = EmbeddingRequest(
            [first, *others], "inputs", options["parameters"], bytes_per_number=0
        )
        answer = await embed(self._server, request, model, embedding)
        return await respond(
            lambda: encode_json(answer.values[1:] @ answer.values[0]),
            answer.truncated,
        )

    async def predict(self, request: Request, payload: Row) -> Response:
        """Classifies texts or extracts entities."""
        model = self._server.model_for(request, "labels or scores", _other_method(*_PREDICTS))
        tag_fields = _PARAMETERS["tag"] if model.predict_method == "tag" else {}
        options = read_fields(payload, {**self._predict_fields, **tag_fields})
        check_direction(options, model)
        rows, is_single = options["inputs"]
        answers, truncated = await self._predictions(request, model, rows, options)
        return await respond(lambda: encode_json(answers[0] if is_single else answers), truncated)

    async def rerank(self, request: Request, payload: Row) -> Response:
        """Sorts texts by their relevance to a query."""
        model = self._server.model_for(request, RANKING, reason_against_ranking)
        options = read_fields(payload, self._rerank_fields)
        check_direction(options, model)
        texts = options["texts"]
        ranking = await rank(
            self._server,
            request,
            model,
            RankingRequest(
                options["query"], texts, "texts", options["raw_scores"], options["truncate"]
            ),
        )
        ranks = [
            ranked | ({"text": texts[ranked["index"]]} if options["return_text"] else {})
            for ranked in ranking.documents
        ]
        return await respond(lambda: encode_json(ranks), ranking.truncated)

    async def classify_zero_shot(self, request: Request, payload: Row) -> Response:
        """Classifies texts by the labels in the request."""
        model = self._server.model_for(request, ZERO_SHOT, reason_against_zero_shot)
        labels = {
            "candidate_labels": Field(read_texts, is_required=True),
            "hypothesis_template": Field(read_text),
            "multi_label": Field(read_boolean, False),
        }
        fields = {
            "inputs": Field(self._read_texts, is_required=True),
            "parameters": Field(read_object_of(labels), is_required=True),
        }
        is_single = isinstance(payload.get("inputs"), str)
        texts, parameters = read_fields(payload, fields).values()
        options = ZeroShotRequest(texts, *parameters.values(), self._server.auto_truncate)
        answers, truncated = await classify_zero_shot(self._server, request, model, options)
        return await respond(lambda: encode_json(answers[0] if is_single else answers), truncated)

    async def tokenize(self, request: Request, payload: Row) -> Response:
        """Converts texts to tokens."""
        fields = {
            "inputs": Field(self._read_texts, is_required=True),
            "add_special_tokens": Field(read_boolean, True),
        }
        model = self._server.model_for(request, "tokens")
        texts, adds_special_tokens = read_fields(payload, fields).values()
        tokens = await asyncio.to_thread(_tokens, model.tokenizer, texts, adds_special_tokens)
        return await respond(lambda: encode_json(tokens))

    async def decode(self, request: Request, payload: Row) -> Response:
        """Converts token ids to texts."""
        fields = {
            "ids": Field(read_inputs(self._server.max_rows), is_required=True),
            "skip_special_tokens": Field(read_boolean, True),
        }
        model = self._server.model_for(request, "tokens")
        (ids, _), skips = read_fields(payload, fields).values()
        if any(isinstance(row, str) for row in ids):
            raise RequestError("ids must be token ids or lists of them. Received: a string", "ids")
        try:
            texts = await asyncio.to_thread(model.tokenizer.decode, ids, skips)
        except ValueError as error:
            raise RequestError(f"ids: {error}", "ids") from error
        return await respond(lambda: encode_json(texts))

    def info(self, request: Request) -> dict[str, Any]:
        """Describes the model and the server's limits."""
        model = self._server.model_for(request, "a description")
        labels = dict(enumerate(model.class_names or [_ONLY_LABEL]))
        label_names = {"id2label": labels, "label2id": {label: id for id, label in labels.items()}}
        # TEI's name of the pooling for sparse embeddings
        poolings = {"sparse": "splade", "multi_vector": "none"}
        pooling = {"pooling": poolings.get(model.embedding_kind, model.pooling)}
        kinds = {
            "embed": {"embedding": pooling},
            "embed_documents": {"embedding": pooling},
            "classify": {"classifier" if model.class_names else "reranker": label_names},
            "tag": {"classifier": label_names},
        }
        return {
            "model_id": model.name,
            "model_sha": None,
            "model_dtype": model.dtype,
            "served_model_name": model.name,
            "model_type": kinds.get(model.predict_method, {model.predict_method: {}}),
            # Taggers and question answerers split long texts into windows.
            "max_input_length": model.limits.sequence_length or self._server.max_bytes,
            "max_client_batch_size": self._server.max_rows,
            "max_concurrent_requests": model.batcher.max_waiting,
            # A token has at least one character.
            "max_batch_tokens": BATCH_CHARACTERS,
            "max_batch_requests": model.batcher.batch_size,
            "tokenization_workers": model.batcher.num_threads,
            "auto_truncate": self._server.auto_truncate,
            "version": keras_bert.__version__,
            "sha": None,
            "docker_label": None,
        }

    def _embedder(self, request: Request, kind: str) -> LoadedModel:
        """Returns the model that computes embeddings of this kind for a request."""
        return self._server.model_for(
            request, kind_of_embeddings(kind), reason_against_embeddings(kind)
        )

    # === Fields ===

    def _read_texts(self, value: Any, name: str) -> list[str]:
        """Reads a string or a list of strings."""
        values = [value] if isinstance(value, str) else value
        if isinstance(values, list):
            check_number(len(values), self._server.max_rows, name)
        return read_texts(values, name)

    def _read_rows(self, value: Any, name: str) -> tuple[list[Row], bool]:
        """Reads one text or pair, or a list of them. Also returns whether the input was single."""
        if isinstance(value, str):
            return [{"text": read_text(value, name)}], True
        if not isinstance(value, list) or not value:
            raise RequestError(f"{name} must be {_ROWS}. Received: {describe_json(value)}", name)
        is_single = isinstance(value[0], str)
        lists = [value] if is_single else value
        check_number(len(lists), self._server.max_rows, name)
        rows = []
        for index, texts in enumerate(lists):
            where = name if is_single else f"{name}[{index}]"
            if not isinstance(texts, list) or len(texts) not in (1, 2):
                raise RequestError(
                    f"{where} must be {_ROWS}. Received: {describe_json(texts)}", name
                )
            rows.append(dict(zip(("text", TEXT_PAIR), read_texts(texts, where), strict=False)))
        return rows, is_single

    # === Predictions ===

    async def _predictions(
        self, request: Request, model: LoadedModel, rows: Sequence[Row], options: Row
    ) -> tuple[list[Any], list[int]]:
        """Returns each example's classes or entities, and the indices of truncated examples."""
        check_not_empty([row.values() for row in rows], "inputs")
        for index, row in enumerate(rows):
            is_pair = TEXT_PAIR in row
            if is_pair != (model.text_pairs == "required") and model.text_pairs != "optional":
                raise RequestError(
                    f"inputs must have {2 - is_pair} texts each for this model ({_ROWS}). "
                    f"Received: {len(row)} (inputs[{index}])",
                    "inputs",
                )
        per_class = sum(len(label.encode()) + MAX_BYTES_OF_LABEL for label in model.class_names)
        self._server.check_size(len(rows), per_class if model.predict_method == "classify" else 0)
        check_raw_scores(model, options["raw_scores"])
        _, truncated = await self._server.count(model, rows, "inputs", options["truncate"])
        answers = await self._server.compute(request, model, DEFAULT_SIGNATURE, rows)
        if model.predict_method == "tag":
            texts = [row["text"] for row in rows]
            return [
                _entity_records(answer, text, model.class_names, options)
                for answer, text in zip(answers, texts, strict=True)
            ], truncated
        labels = model.class_names or (_ONLY_LABEL,)
        predictions = []
        for answer in answers:
            scores = zip(answer_scores(answer, options["raw_scores"]), labels, strict=True)
            classes = [{"score": score, "label": label} for score, label in scores]
            predictions.append(sorted(classes, key=lambda one: -one["score"]))
        return predictions, truncated


def _embedding_request(payload: Row, fields: Mapping[str, Field]) -> EmbeddingRequest:
    options = read_fields(payload, fields)
    inputs, _ = options["inputs"]
    return EmbeddingRequest(inputs, "inputs", options)


def _sparse_values(answer: Row) -> list[dict[str, Any]]:
    """Returns an embedding's token ids and weights, in ascending order of id as in TEI."""
    weights = zip(answer["token_ids"], answer["weights"], strict=True)
    return [{"index": token_id, "value": weight} for token_id, weight in sorted(weights)]


def _other_method(*verbs: str) -> Callable[[LoadedModel], str]:
    """Returns a function that returns why a model does not have one of these methods."""
    return lambda model: (
        "" if model.predict_method in verbs else f"has the method {model.predict_method}"
    )


def _entity_records(
    answer: Row, text: str, class_names: Sequence[str], options: Row
) -> list[dict[str, Any]]:
    """Returns the entities in a text or, without aggregation, its words, with their offsets."""
    labels, scores, starts, ends = (answer[name] for name in ("labels", "scores", "starts", "ends"))
    is_grouped = options["aggregation_strategy"] != "none"
    if is_grouped:
        # As in pipelines, O is an entity type like any other, unless `ignore_labels` excludes it.
        spans = entities(typed_labels(labels, class_names, outside=""))
    else:
        spans = [Entity(label, index, index + 1) for index, label in enumerate(labels)]
    return [
        {
            "entity_group" if is_grouped else "entity": kind,
            "score": sum(scores[first:last]) / (last - first),
            "word": text[starts[first] : ends[last - 1]],
            "start": starts[first],
            "end": ends[last - 1],
        }
        for kind, first, last in spans
        if kind not in options["ignore_labels"]
    ]


def _tokens(
    tokenizer: Tokenizer, texts: Sequence[str], adds_special_tokens: bool
) -> list[list[dict[str, Any]]]:
    ids, starts, ends, lengths = tokenizer.flat_tokens(texts)
    if len(ids) > _MAX_TOKENS:
        raise RequestError(
            f"inputs must have at most {_MAX_TOKENS} tokens in total. Received: {len(ids)}",
            "inputs",
        )

    def special(token_id: int) -> dict[str, Any]:
        token = tokenizer.id_to_token(token_id)
        return {"id": token_id, "text": token, "special": True, "start": None, "stop": None}

    tokens = zip(ids.tolist(), starts.tolist(), ends.tolist(), strict=True)
    first, *_, last = tokenizer.row_format()
    rows = []
    for text, length in zip(texts, lengths.tolist(), strict=True):
        # TEI's offsets count UTF-8 bytes.
        sizes = (len(character.encode()) for character in text)
        offsets = [0, *itertools.accumulate(sizes)]
        row = [
            {
                "id": id,
                "text": text[start:stop],
                "special": False,
                "start": offsets[start],
                "stop": offsets[stop],
            }
            for id, start, stop in itertools.islice(tokens, length)
        ]
        rows.append([special(first), *row, special(last)] if adds_special_tokens else row)
    return rows


def _write_error(error: RejectedRequestError) -> Response:
    status, kind = _ERRORS.get(error.status_code, (error.status_code, "Validation"))
    if error.is_empty:
        status, kind = 400, "Empty"
    return respond_with_error({"error": error.detail, "error_type": kind}, error, status)


# Errors for unknown paths also have this format. It includes TensorFlow Serving's fields.
PROTOCOL = Protocol(_routes, re.compile(""), _write_error, "POST /embed, /predict or /rerank")

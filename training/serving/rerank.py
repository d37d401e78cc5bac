# SPDX-License-Identifier: Apache-2.0
"""Implements the rerank APIs of Cohere (v1 and v2) and Jina."""

from __future__ import annotations

import re
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .json_fields import (
    Field,
    RequestError,
    check_number,
    encode_json,
    read_boolean,
    read_count,
    read_fields,
    read_object,
    read_text,
    read_texts,
)
from .ranking import RANKING, RankingRequest, rank, reason_against_ranking
from .server import ModelServer, Protocol, RejectedRequestError, respond, respond_with_error

_EXAMPLE = '{"model": "model", "query": "a question", "documents": ["a text"]}'


def _routes(server: ModelServer) -> list[Route]:
    def read_documents(value: Any, name: str) -> list[str]:
        """Reads a list of strings or of objects with a `text`."""
        if isinstance(value, list):
            check_number(len(value), server.max_rows, name)
            value = [
                one["text"] if isinstance(one, dict) and one.keys() == {"text"} else one
                for one in value
            ]
        return read_texts(value, name)

    fields = {
        "model": Field(read_text, is_required=True),
        "query": Field(read_text, is_required=True),
        "documents": Field(read_documents, is_required=True),
        "top_n": Field(read_count),
        "return_documents": Field(read_boolean, False),
    }

    async def rerank(request: Request, body: bytes) -> Response:
        options = read_fields(read_object(body, _EXAMPLE), fields)
        model = server.model(request, options["model"])
        if reason := reason_against_ranking(model):
            raise RequestError(
                f"model must provide {RANKING}. Received: {model.name}, which {reason}", "model"
            )
        documents = options["documents"]
        ranking = await rank(
            server,
            request,
            model,
            RankingRequest(options["query"], documents, "documents", truncate=server.auto_truncate),
        )
        results = [
            {"index": ranked["index"], "relevance_score": ranked["score"]}
            | (
                {"document": {"text": documents[ranked["index"]]}}
                if options["return_documents"]
                else {}
            )
            for ranked in ranking.documents[: options["top_n"]]
        ]
        content = {
            "id": str(uuid.uuid4()),
            "model": model.name,
            "results": results,
            "usage": {"total_tokens": ranking.num_tokens},
        }
        return await respond(lambda: encode_json(content), ranking.truncated)

    return [server.post(f"/{version}/rerank", rerank, _write_error) for version in ("v1", "v2")]


def _write_error(error: RejectedRequestError) -> Response:
    # Cohere's errors have a `message`, Jina's a `detail`.
    return respond_with_error(dict.fromkeys(("message", "detail"), error.detail), error)


PROTOCOL = Protocol(_routes, re.compile("/v[12]/rerank$"), _write_error, "POST /v1/rerank")

# SPDX-License-Identifier: Apache-2.0
"""Implements OpenAI's embeddings and models APIs."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .embeddings import (
    EmbeddingRequest,
    embed,
    option_fields,
    read_inputs,
    reason_against_embeddings,
)
from .json_fields import Field, encode_json, one_of, read_fields, read_object, read_text
from .models import LoadedModel
from .server import JSON, ModelServer, Protocol, RejectedRequestError, respond, respond_with_error

_EXAMPLE = '{"model": "model", "input": ["a text"]}'


def _routes(server: ModelServer) -> list[Route]:
    fields = {
        "model": Field(read_text, is_required=True),
        "input": Field(read_inputs(server.max_rows), is_required=True),
        "encoding_format": Field(one_of("float", "base64"), "float"),
        "user": Field(read_text),
        **option_fields(server.auto_truncate),
    }

    async def embeddings(request: Request, body: bytes) -> Response:
        request_fields = read_fields(read_object(body, _EXAMPLE), fields)
        model = server.model(request, request_fields["model"])
        if reason := reason_against_embeddings("dense")(model):
            raise RejectedRequestError(
                400,
                f"model must be a dense embedder. Received: {model.name}, which {reason}",
                field="model",
            )
        inputs, _ = request_fields["input"]
        options = EmbeddingRequest(inputs, "input", request_fields)
        is_base64 = request_fields["encoding_format"] == "base64"
        if is_base64:  # base64 has 4 characters for 3 bytes.
            options = dataclasses.replace(options, bytes_per_number=6)
        answer = await embed(server, request, model, options)
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(vector).decode() if is_base64 else vector,
            }
            for index, vector in enumerate(answer.values)
        ]
        usage = {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens}
        content = {"object": "list", "data": data, "model": model.name, "usage": usage}
        return await respond(lambda: encode_json(content), answer.truncated)

    async def models(request: Request) -> Response:
        data = [described_model(model) for model in server.models.values()]
        return Response(json.dumps({"object": "list", "data": data}), media_type=JSON)

    return [
        *(
            server.post(path, embeddings, _write_error)
            for path in ("/v1/embeddings", "/embeddings")
        ),
        Route("/v1/models", models),
    ]


def described_model(model: LoadedModel) -> dict[str, Any]:
    """Returns a model's entry in OpenAI's list of models."""
    return {
        "id": model.name,
        "object": "model",
        "created": model.since,
        "owned_by": "keras-bert",
    }


def _write_error(error: RejectedRequestError) -> Response:
    kind = "invalid_request_error" if error.status_code < 500 else "server_error"
    is_unknown = error.status_code == 404 and error.field == "model"
    content = {
        "message": error.detail,
        "type": kind,
        "param": error.field or None,
        "code": "model_not_found" if is_unknown else None,
    }
    return respond_with_error({"error": content}, error)


PROTOCOL = Protocol(
    _routes, re.compile("/v1(/|$)|/embeddings$"), _write_error, "POST /v1/embeddings"
)

# SPDX-License-Identifier: Apache-2.0
"""Implements TensorFlow Serving's REST API.

Paths, JSON, errors and status codes match `http_rest_api_handler.cc` and `json_tensor.cc` in
TensorFlow Serving.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .json_fields import MAX_BYTES_OF_NUMBER
from .models import LoadedModel
from .openai import described_model
from .requests import read_request, write_answer
from .server import JSON, ModelServer, Protocol, RejectedRequestError, respond, respond_with_error
from .signatures import CHOICES, DEFAULT_SIGNATURE, Signature, Tensor


def _routes(server: ModelServer) -> list[Route]:
    async def predict(request: Request, body: bytes) -> Response:
        model = _model(server, request)
        content = read_request(body, model.signatures, server.max_rows)
        numbers = model.embedding_dim or len(model.class_names)
        server.check_size(len(content.rows), numbers * MAX_BYTES_OF_NUMBER)
        inputs = model.signatures[content.signature].inputs
        is_default = content.signature == DEFAULT_SIGNATURE
        if is_default and inputs.keys() == {"text", CHOICES}:
            answers = await server.answer_choices(request, model, content.rows)
        else:
            answers = await server.compute(request, model, content.signature, content.rows)
        return await respond(lambda: write_answer(content, answers))

    async def status(request: Request) -> Response:
        model = _model(server, request)
        available = {"error_code": "OK", "error_message": ""}
        version = {"version": model.version, "state": "AVAILABLE", "status": available}
        # OpenAI clients request the same path to retrieve a model.
        return _json({"model_version_status": [version], **described_model(model)})

    async def metadata(request: Request) -> Response:
        model = _model(server, request)
        spec = {"name": model.name, "signature_name": "", "version": model.version}
        signatures = {name: _metadata(value) for name, value in model.signatures.items()}
        return _json(
            {"model_spec": spec, "metadata": {"signature_def": {"signature_def": signatures}}}
        )

    model = "/v1/models/{name:model}"
    return [
        route
        for prefix in (f"{model}/versions/{{version}}", model)
        for route in (
            server.post(f"{prefix}:predict", predict, write_error),
            Route(f"{prefix}/metadata", metadata),
            Route(prefix, status),
        )
    ]


def _model(server: ModelServer, request: Request) -> LoadedModel:
    """Returns the model named in the path. Raises an error if the path has another version."""
    model = server.model(request, request.path_params["name"])
    if request.path_params.get("version", model.version) != model.version:
        path = request.url.path
        raise RejectedRequestError(
            404, f"the path must be for version {model.version} of {model.name}. Received: {path}"
        )
    return model


def write_error(error: HTTPException) -> Response:
    """Formats an error as TensorFlow Serving does."""
    return respond_with_error({"error": error.detail}, error)


def _metadata(signature: Signature) -> dict[str, Any]:
    def tensors(specs: Mapping[str, Tensor]) -> dict[str, Any]:
        return {
            name: {
                "dtype": tensor.dtype,
                "tensor_shape": {
                    "dim": [{"size": str(size), "name": ""} for size in tensor.shape],
                    "unknown_rank": False,
                },
                "name": name,
            }
            for name, tensor in specs.items()
        }

    return {
        "inputs": tensors(signature.inputs),
        "outputs": tensors(signature.outputs),
        "method_name": "tensorflow/serving/predict",
    }


def _json(content: Any) -> Response:
    return Response(json.dumps(content, indent=1), media_type=JSON)


# Errors for a model's status are in OpenAI's format, because OpenAI clients request the same path.
PROTOCOL = Protocol(
    _routes,
    re.compile("/v1/models/.+(:|/versions/|/metadata$)"),
    write_error,
    "POST /v1/models/NAME:predict",
)

# SPDX-License-Identifier: Apache-2.0
"""The protocols of the server, health and metrics, as an ASGI application."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import prometheus_client
from absl import logging
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from . import openai, rest, tei
from .rest import write_error
from .server import JSON, ModelServer, RefusedError

PROTOCOLS = (rest.PROTOCOL, openai.PROTOCOL, tei.PROTOCOL)


def application(server: ModelServer) -> Starlette:
    """Returns the ASGI application of a server."""

    async def metrics(request: Request) -> Response:
        content_type = {"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
        return Response(server.metrics.text(), headers=content_type)

    return Starlette(
        routes=[
            *(route for protocol in PROTOCOLS for route in protocol.routes(server)),
            # As in the protocol V2 of KServe and Triton
            Route("/v2/health/live", _health("live")),
            Route("/v2/health/ready", _health("ready")),
            Route("/metrics", metrics),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _internal_error},
    )


def _health(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response(json.dumps({name: True}), media_type=JSON)

    return answer


async def _http_error(request: Request, error: HTTPException) -> Response:
    message = error.detail
    if error.status_code == 404 and message == "Not Found":
        examples = ", ".join(protocol.example for protocol in PROTOCOLS)
        message = (
            f"received {request.method} {request.url.path}; expected {examples}, GET /v1/models, "
            "/v2/health/ready or /metrics"
        )
    if error.status_code == 405:
        allowed = (error.headers or {})["Allow"]
        message = f"received {request.method} for {request.url.path}; expected {allowed}"
    return write_error(RefusedError(error.status_code, message, error.headers))


async def _internal_error(request: Request, error: Exception) -> Response:
    logging.error("%s: %r", request.url.path, error)
    return write_error(RefusedError(500, f"{type(error).__name__}: {error}"))

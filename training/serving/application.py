# SPDX-License-Identifier: Apache-2.0
"""The protocols of the server, health and metrics, as an ASGI application."""

from __future__ import annotations

import hmac
import ipaddress
import json
import urllib.parse
from collections.abc import Awaitable, Callable

import prometheus_client
from absl import logging
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from . import openai, rest, tei
from .server import JSON, ModelServer, RejectedRequestError

# In the order in which an address is looked for
PROTOCOLS = (rest.PROTOCOL, openai.PROTOCOL, tei.PROTOCOL)
# What load balancers and Prometheus ask for without a key, as in TEI
_WITHOUT_KEY = {"/", "/health", "/ping", "/metrics", "/v2/health/live", "/v2/health/ready"}


def application(server: ModelServer, *, is_local: bool = True, api_key: str = "") -> ASGIApp:
    """Returns the ASGI application of a server.

    Args:
        server: The server.
        is_local: Whether it listens to this machine only.
        api_key: The bearer token that requests must have; empty for none.
    """

    async def metrics(request: Request) -> Response:
        content_type = {"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
        return Response(server.metrics.text(), headers=content_type)

    routes = [
        *(route for protocol in PROTOCOLS for route in protocol.routes(server)),
        # As in the protocol V2 of KServe and Triton
        Route("/v2/health/live", _health("live")),
        Route("/v2/health/ready", _health("ready")),
        Route("/metrics", metrics),
    ]
    handlers = {HTTPException: _http_error, Exception: _internal_error}
    answer = Starlette(routes=routes, exception_handlers=handlers)

    async def answer_own_clients(scope: Scope, receive: Receive, send: Send) -> None:
        error = _refusal(scope, is_local, api_key) if scope["type"] == "http" else None
        own = answer if error is None else _write_error(scope["path"], error)
        await own(scope, receive, send)

    return answer_own_clients


def _refusal(scope: Scope, is_local: bool, api_key: str) -> RejectedRequestError | None:
    """Returns the error of a request from a page of another site, or without the key."""
    if reason := _reason_against_page(scope, is_local):
        return RejectedRequestError(403, reason)
    is_public = scope["method"] == "GET" and scope["path"] in _WITHOUT_KEY
    scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
    is_key = scheme.lower() == "bearer" and hmac.compare_digest(key.encode(), api_key.encode())
    if not api_key or is_public or is_key:
        return None
    message = "the request needs the header Authorization: Bearer, with the API key of this server"
    return RejectedRequestError(401, message, {"WWW-Authenticate": "Bearer"})


def _reason_against_page(scope: Scope, is_local: bool) -> str:
    """Returns why a request comes from a page of another site; empty if it does not.

    Browsers let every page send requests to this machine. They name its site in `Origin`; or, if
    the page lets its own name point to this machine, in `Host`.
    """
    headers = Headers(scope=scope)
    host, origin = headers.get("host", ""), headers.get("origin")
    if origin is not None and _site(origin.rpartition("//")[2]) != _site(host):
        return f"the request is from a page of {origin[:200]}; expected none of another site"
    if is_local and host and not _is_local(host):
        return (
            f"Host is {host[:200]!r}; the server listens to this machine only, and expects "
            "localhost or an IP address. A proxy must send one of these as Host"
        )
    return ""


def _site(host: str) -> tuple[str, int | None]:
    """Returns the name and the port of a host, empty if malformed; of this machine `localhost`."""
    try:
        parts = urllib.parse.urlsplit(f"//{host}")
        name = (parts.hostname or "").removesuffix(".")
        return ("localhost" if _is_loopback(name) else name), parts.port
    except ValueError:
        return "", None


def _is_loopback(name: str) -> bool:
    if name.rpartition(".")[2] == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_local(host: str) -> bool:
    """Returns whether a host, with or without its port, cannot be the name of a page's site."""
    name, _ = _site(host)
    # The latter is what containers call the machine that runs them.
    if name == "localhost" or name.endswith(".docker.internal"):
        return True
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


def _health(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return Response(json.dumps({name: True}), media_type=JSON)

    return answer


async def _http_error(request: Request, error: HTTPException) -> Response:
    if isinstance(error, RejectedRequestError):
        return _write_error(request.url.path, error)
    message = error.detail
    if error.status_code == 404:
        examples = ", ".join(protocol.example for protocol in PROTOCOLS)
        message = (
            f"received {request.method} {request.url.path}; expected {examples}, GET /v1/models, "
            "/v2/health/ready or /metrics"
        )
    if error.status_code == 405:
        allowed = (error.headers or {})["Allow"]
        message = f"received {request.method} for {request.url.path}; expected {allowed}"
    return _write_error(
        request.url.path, RejectedRequestError(error.status_code, message, error.headers)
    )


async def _internal_error(request: Request, error: Exception) -> Response:
    logging.error("%s: %r", request.url.path, error)
    message = f"{type(error).__name__}: {error}"
    return _write_error(request.url.path, RejectedRequestError(500, message))


def _write_error(path: str, error: RejectedRequestError) -> Response:
    """Writes an error in the format of the protocol that has the address."""
    protocol = next(each for each in PROTOCOLS if each.addresses.match(path))
    return protocol.write_error(error)

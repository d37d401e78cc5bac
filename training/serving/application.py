# SPDX-License-Identifier: Apache-2.0
"""Builds the ASGI application from all protocols, health checks and metrics."""

from __future__ import annotations

import hmac
import ipaddress
import json
import urllib.parse
from collections.abc import Awaitable, Callable, Collection
from typing import IO

import prometheus_client
from absl import logging
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from . import openai, rerank, rest, tei
from .access_log import AccessLog
from .server import JSON, TRUNCATED_HEADERS, ModelServer, RejectedRequestError

# The first protocol that matches a path formats its errors.
PROTOCOLS = (rerank.PROTOCOL, rest.PROTOCOL, openai.PROTOCOL, tei.PROTOCOL)
# Load balancers and Prometheus request these paths without a key, as in TEI.
_WITHOUT_KEY = {"/", "/health", "/ping", "/metrics", "/v2/health/live", "/v2/health/ready"}
_READING_METHODS = ("GET", "HEAD")
# Returns the response for an error, given the path
WriteError = Callable[[str, RejectedRequestError], Response]


def application(
    server: ModelServer,
    *,
    is_local: bool = True,
    api_key: str = "",
    allowed_origins: Collection[str] = (),
    access_log: IO[str] | None = None,
) -> ASGIApp:
    """Returns a server's ASGI application.

    Args:
        server: The server.
        is_local: Whether the server accepts connections only from this machine.
        api_key: The bearer token that requests must have. Empty disables authentication.
        allowed_origins: The other sites whose pages may send requests, for example
            `https://app.example`.
        access_log: The file for `AccessLog`, if any.
    """

    async def metrics(request: Request) -> Response:
        content_type = {"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
        return Response(server.metrics.text(), headers=content_type)

    routes = [
        *(route for protocol in PROTOCOLS for route in protocol.routes(server)),
        # The health checks of the Open Inference Protocol (V2), as in KServe and Triton
        Route("/v2/health/live", _health("live")),
        Route("/v2/health/ready", _health("ready")),
        Route("/metrics", metrics),
    ]
    handlers = {HTTPException: _http_error, Exception: _internal_error}
    return protected(
        Starlette(routes=routes, exception_handlers=handlers),
        _write_error,
        is_local=is_local,
        api_key=api_key,
        allowed_origins=allowed_origins,
        access_log=access_log,
    )


def protected(
    answer: ASGIApp,
    write_error: WriteError,
    *,
    is_local: bool,
    api_key: str,
    allowed_origins: Collection[str],
    access_log: IO[str] | None,
) -> ASGIApp:
    """Returns an application that rejects requests without the key and from other sites' pages.

    Args:
        answer: The application for all other requests.
        write_error: Returns the response for an error, given the path.
        is_local: See `application`.
        api_key: See `application`.
        allowed_origins: See `application`.
        access_log: See `application`.
    """
    answer = _checked(answer, lambda scope: _error_without_key(scope, api_key), write_error)
    if allowed_origins:
        # Browsers send preflight requests without the key, and pages should be able to read errors.
        answer = CORSMiddleware(
            answer,
            allow_origins=allowed_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=TRUNCATED_HEADERS,
        )
    answer = _checked(
        answer, lambda scope: _error_for_page(scope, is_local, allowed_origins), write_error
    )
    return answer if access_log is None else AccessLog(answer, access_log)


def _checked(
    answer: ASGIApp,
    find_error: Callable[[Scope], RejectedRequestError | None],
    write_error: WriteError,
) -> ASGIApp:
    """Returns an application that responds with the error that `find_error` finds, if any."""

    async def answer_valid(scope: Scope, receive: Receive, send: Send) -> None:
        error = find_error(scope) if scope["type"] == "http" else None
        own = answer if error is None else write_error(scope["path"], error)
        await own(scope, receive, send)

    return answer_valid


def _error_without_key(scope: Scope, api_key: str) -> RejectedRequestError | None:
    is_public = scope["method"] in _READING_METHODS and scope["path"] in _WITHOUT_KEY
    scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
    # Starlette decodes headers as Latin-1.
    is_key = hmac.compare_digest(key.encode("latin-1"), api_key.encode())
    if not api_key or is_public or (is_key and scheme.lower() == "bearer"):
        return None
    message = "the request must have the header Authorization: Bearer with the server's API key"
    return RejectedRequestError(401, message, {"WWW-Authenticate": "Bearer"})


def _error_for_page(
    scope: Scope, is_local: bool, allowed_origins: Collection[str]
) -> RejectedRequestError | None:
    """Returns the error for a request from another site's page, or `None` for allowed requests.

    Browsers let any page send requests to this machine. They include the page's site in `Origin`,
    which some proxies remove, and its relation to the server in `Sec-Fetch-Site`. If a page
    resolves its own name to this machine (DNS rebinding), the name is in `Host`.
    """
    headers = Headers(scope=scope)
    host, origin = headers.get("host", ""), headers.get("origin")
    fetch_site = headers.get("sec-fetch-site", "none")
    if origin is not None:
        is_foreign = _site(origin.rpartition("//")[2]) != _site(host)
    else:  # A link in another site's page may lead to this server, but pages cannot read it.
        is_foreign = fetch_site not in ("none", "same-origin")
        is_foreign &= scope["method"] not in _READING_METHODS
    if is_foreign and origin not in allowed_origins:
        return RejectedRequestError(
            403,
            "requests from other sites' pages are not allowed, unless --allowed_origins has the "
            f"site. Received: {fetch_site if origin is None else origin[:200]}",
        )
    if is_local and host and not _is_local(host):
        return RejectedRequestError(
            403,
            "Host must be localhost or an IP address, because the server accepts connections only "
            f"from this machine. Received: {host[:200]!r}. A proxy must set Host accordingly",
        )
    return None


def _site(host: str) -> tuple[str, int | None]:
    """Returns a host's name and port. Loopback hosts become `localhost`, invalid hosts empty."""
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
    """Returns whether a host, with or without a port, cannot be a web page's domain."""
    name, _ = _site(host)
    # Containers reach the host machine under a name such as host.docker.internal.
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
            f"the path must be one of {examples}, GET /v1/models, /v2/health/ready and /metrics. "
            f"Received: {request.method} {request.url.path}"
        )
    if error.status_code == 405:
        allowed = (error.headers or {})["Allow"]
        message = f"the method must be {allowed}. Received: {request.method} {request.url.path}"
    return _write_error(
        request.url.path, RejectedRequestError(error.status_code, message, error.headers)
    )


async def _internal_error(request: Request, error: Exception) -> Response:
    logging.error("%s: %r", request.url.path, error)
    message = f"{type(error).__name__}: {error}"
    return _write_error(request.url.path, RejectedRequestError(500, message))


def _write_error(path: str, error: RejectedRequestError) -> Response:
    """Formats an error as the first protocol that matches the path does."""
    protocol = next(each for each in PROTOCOLS if each.addresses.match(path))
    return protocol.write_error(error)

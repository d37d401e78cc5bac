# SPDX-License-Identifier: Apache-2.0
"""Answers search queries over HTTP, and serves a page to type them into."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from absl import logging
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from keras_bert.search import Searcher
from keras_bert.search.index import FUSED

from .application import protected
from .server import JSON

_PAGE = Path(__file__).with_name("search.html")
_MODES = "<!-- modes -->"
# What the page calls the modes
_LABELS = {
    "fused": "all methods",
    "words": "words",
    "vectors": "meaning",
    "sparse": "related words",
    "late": "meaning of each word",
}
# The page has no other content than its own, and shows documents only as text.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
}
_MAX_RESULTS = 100
_MAX_QUERY = 2000
_FIELDS = ("query", "top_k", "mode")


def search_application(
    searcher: Searcher,
    *,
    candidates: int,
    is_local: bool = True,
    api_key: str = "",
    allowed_origins: Collection[str] = (),
    access_log: IO[str] | None = None,
) -> ASGIApp:
    """Returns the ASGI application of a search server.

    - `GET /` is a page to type queries into.
    - `GET /search?query=…&top_k=10&mode=fused` returns `{"hits": [{"document", "title", "text",
      "start", "page", "score", "snippet", …}]}`, see `keras_bert.search.Hit`.
    - `GET /explain?query=…&id=17` returns `{"words": [{"start", "end", "score"}]}`, see
      `Searcher.explain`.

    Args:
        searcher: The searcher.
        candidates: See `Searcher.search`.
        is_local: See `application`.
        api_key: See `application`.
        allowed_origins: See `application`.
        access_log: See `application`.
    """
    one_at_a_time = asyncio.Lock()
    modes = FUSED, *searcher.index.methods
    options = "\n    ".join(
        f'<option value="{mode}">{_LABELS.get(mode, mode)}</option>' for mode in modes
    )
    content = _PAGE.read_text("utf-8").replace(_MODES, options)

    async def page(request: Request) -> Response:
        return Response(content, media_type="text/html", headers=_PAGE_HEADERS)

    async def search(request: Request) -> Response:
        hits = await run(searcher.search, candidates=candidates, **_options(request, _FIELDS))
        return _json({"hits": [dataclasses.asdict(hit) for hit in hits]})

    async def explain(request: Request) -> Response:
        return _json({"words": await run(searcher.explain, **_options(request, ("query", "id")))})

    async def run(function: Callable[..., Any], **options: Any) -> Any:
        async with one_at_a_time:
            try:
                return await run_in_threadpool(function, **options)
            except ValueError as error:
                raise HTTPException(400, str(error)) from error

    return protected(
        Starlette(
            routes=[Route("/", page), Route("/search", search), Route("/explain", explain)],
            exception_handlers={HTTPException: _http_error, Exception: _internal_error},
        ),
        _write_error,
        is_local=is_local,
        api_key=api_key,
        allowed_origins=allowed_origins,
        access_log=access_log,
    )


def _options(request: Request, names: Sequence[str]) -> dict[str, Any]:
    given = dict(request.query_params)
    if unknown := given.keys() - set(names):
        raise HTTPException(
            400, f"fields must be among {', '.join(names)}. Received: {min(unknown)[:100]}"
        )
    query = given.get("query", "")
    if not query.strip() or len(query) > _MAX_QUERY:
        raise HTTPException(
            400, f"query must have 1 to {_MAX_QUERY} characters. Received: {len(query)} characters"
        )
    options: dict[str, Any] = {"query": query}
    if "top_k" in names:
        options["top_k"] = _number(given, "top_k", "10", _MAX_RESULTS)
    if "id" in names:
        options["id"] = _number(given, "id", "", 2**63 - 1)
    return options | {name: given[name] for name in ("mode",) if name in given}


def _number(given: Mapping[str, str], name: str, default: str, largest: int) -> int:
    text = given.get(name, default)
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:20]) <= largest):
        raise HTTPException(
            400, f"{name} must be a number from 1 to {largest}. Received: {text[:100]}"
        )
    return int(text)


def _json(content: Any) -> Response:
    return Response(json.dumps(content, ensure_ascii=False), media_type=JSON)


async def _http_error(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404:
        error = HTTPException(
            404, f"the path must be /, /search or /explain. Received: {request.url.path}"
        )
    return _write_error(request.url.path, error)


async def _internal_error(request: Request, error: Exception) -> Response:
    logging.error("%s: %r", request.url.path, error)
    return _write_error(request.url.path, HTTPException(500, f"{type(error).__name__}: {error}"))


def _write_error(path: str, error: HTTPException) -> Response:
    content = json.dumps({"error": error.detail}, ensure_ascii=False)
    return Response(content, error.status_code, error.headers, media_type=JSON)

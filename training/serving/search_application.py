# SPDX-License-Identifier: Apache-2.0
"""Answers search queries over HTTP, and serves a page to type them into."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Collection
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

from .application import protected
from .server import JSON

_PAGE = Path(__file__).with_name("search.html")
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
      "start", "page", "score", "snippet", "answer_score"}]}`, see `keras_bert.search.Hit`.

    Args:
        searcher: The searcher.
        candidates: See `Searcher.search`.
        is_local: See `application`.
        api_key: See `application`.
        allowed_origins: See `application`.
        access_log: See `application`.
    """
    one_at_a_time = asyncio.Lock()

    async def page(request: Request) -> Response:
        return Response(_PAGE.read_bytes(), media_type="text/html", headers=_PAGE_HEADERS)

    async def search(request: Request) -> Response:
        options = _options(request)
        async with one_at_a_time:
            try:
                hits = await run_in_threadpool(searcher.search, candidates=candidates, **options)
            except ValueError as error:
                raise HTTPException(400, str(error)) from error
        content = {"hits": [dataclasses.asdict(hit) for hit in hits]}
        return Response(json.dumps(content, ensure_ascii=False), media_type=JSON)

    return protected(
        Starlette(
            routes=[Route("/", page), Route("/search", search)],
            exception_handlers={HTTPException: _http_error, Exception: _internal_error},
        ),
        _write_error,
        is_local=is_local,
        api_key=api_key,
        allowed_origins=allowed_origins,
        access_log=access_log,
    )


def _options(request: Request) -> dict[str, Any]:
    given = dict(request.query_params)
    if unknown := given.keys() - set(_FIELDS):
        raise HTTPException(
            400, f"fields must be among {', '.join(_FIELDS)}. Received: {min(unknown)[:100]}"
        )
    query, top_k = given.get("query", ""), given.get("top_k", "10")
    if not query.strip() or len(query) > _MAX_QUERY:
        raise HTTPException(
            400, f"query must have 1 to {_MAX_QUERY} characters. Received: {len(query)} characters"
        )
    if not (top_k.isascii() and top_k.isdecimal() and 1 <= int(top_k[:9]) <= _MAX_RESULTS):
        raise HTTPException(
            400, f"top_k must be a number from 1 to {_MAX_RESULTS}. Received: {top_k[:100]}"
        )
    mode = {"mode": given["mode"]} if "mode" in given else {}
    return {"query": query, "top_k": int(top_k), **mode}


async def _http_error(request: Request, error: HTTPException) -> Response:
    if error.status_code == 404:
        error = HTTPException(404, f"the path must be / or /search. Received: {request.url.path}")
    return _write_error(request.url.path, error)


async def _internal_error(request: Request, error: Exception) -> Response:
    logging.error("%s: %r", request.url.path, error)
    return _write_error(request.url.path, HTTPException(500, f"{type(error).__name__}: {error}"))


def _write_error(path: str, error: HTTPException) -> Response:
    content = json.dumps({"error": error.detail}, ensure_ascii=False)
    return Response(content, error.status_code, error.headers, media_type=JSON)

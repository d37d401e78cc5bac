# SPDX-License-Identifier: Apache-2.0
"""Answers search queries over HTTP, and serves a page to type them into."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import IO, Any

from absl import logging
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from keras_bert.search import Searcher
from keras_bert.search.index import FUSED

from ..readers.row_values import excerpt
from . import rest
from .application import protected
from .batching import Batcher
from .json_fields import Field, RequestError, encode_json, one_of, read_fields, read_text
from .server import compute, respond
from .signatures import Row

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
_MAX_ID = 2**63 - 1
_NUMBER = re.compile("[1-9][0-9]{,18}")
# Maximum number of waiting queries. Further queries get status 503.
_MAX_WAITING = 64


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
    modes = FUSED, *searcher.index.methods
    options = "\n    ".join(
        f'<option value="{mode}">{_LABELS.get(mode, mode)}</option>' for mode in modes
    )
    content = _PAGE.read_text("utf-8").replace(_MODES, options)
    query = Field(_read_query, is_required=True)
    fields = {
        "search": {
            "query": query,
            "top_k": Field(_read_number(_MAX_RESULTS), 10),
            "mode": Field(one_of(*modes), FUSED),
        },
        "explain": {"query": query, "id": Field(_read_number(_MAX_ID), is_required=True)},
    }

    def find(verb: str, rows: Sequence[Row]) -> list[Any]:
        if verb == "explain":
            return [{"words": searcher.explain(**row)} for row in rows]
        hits = (searcher.search(**row, candidates=candidates) for row in rows)
        return [{"hits": list(map(dataclasses.asdict, each))} for each in hits]

    # A search uses all cores. More searches at a time would only take turns, and need more memory.
    batcher = Batcher(find, threads=1, batch_size=1, max_waiting=_MAX_WAITING)

    async def page(request: Request) -> Response:
        return Response(content, media_type="text/html", headers=_PAGE_HEADERS)

    def route(verb: str) -> Route:
        async def answer(request: Request) -> Response:
            try:
                row = read_fields(request.query_params, fields[verb])
            except RequestError as error:
                raise HTTPException(400, str(error)) from error
            (found,) = await compute(request, batcher, verb, [row])
            return await respond(lambda: encode_json(found))

        return Route(f"/{verb}", answer)

    return protected(
        Starlette(
            routes=[Route("/", page), *map(route, fields)],
            exception_handlers={HTTPException: _http_error, Exception: _internal_error},
        ),
        _write_error,
        is_local=is_local,
        api_key=api_key,
        allowed_origins=allowed_origins,
        access_log=access_log,
    )


def _read_query(value: Any, name: str) -> str:
    if not value.strip() or len(value) > _MAX_QUERY:
        raise RequestError(
            f"{name} must have 1 to {_MAX_QUERY} characters. Received: {len(value)} characters"
        )
    return read_text(value, name)


def _read_number(largest: int) -> Callable[[Any, str], int]:
    def read(value: Any, name: str) -> int:
        if not _NUMBER.fullmatch(value) or int(value) > largest:
            raise RequestError(
                f"{name} must be a number from 1 to {largest}. Received: {excerpt(value)}"
            )
        return int(value)

    return read


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
    return rest.write_error(error)

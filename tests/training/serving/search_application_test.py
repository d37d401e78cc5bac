# SPDX-License-Identifier: Apache-2.0
"""Searches an index over HTTP."""

import urllib.parse
import urllib.request

import pytest

pytest.importorskip("uvicorn")

from keras_bert.search import Document, Searcher, SearchIndex
from tests.search.search_test import TEXTS, make_embedder
from tests.training.serving.model_server import run_application, send_request
from training.serving.search_application import search_application

pytestmark = pytest.mark.on_torch


def test_queries_return_hits_or_errors(tmp_path):
    index = SearchIndex(tmp_path / "index", make_embedder())
    index.add(Document(name, text, "x <b>") for name, text in TEXTS.items())
    searcher = Searcher(index)
    application = search_application(searcher, candidates=10, api_key="secret")
    key = {"Authorization": "Bearer secret"}
    with run_application(application) as port:

        def get(path="/search", headers=key, **parameters):
            query = urllib.parse.urlencode(parameters)
            return send_request(port, f"{path}?{query}" if query else path, headers=headers)

        status, _, content = get(query="비자", mode="words", top_k=1)
        (hit,) = content["hits"]
        assert (status, hit["document"], hit["text"]) == (200, "c", TEXTS["c"])
        assert hit["snippet"] == [0, len(TEXTS["c"])]
        hits = [hit.document for hit in searcher.search("dog mat", 3)]
        assert [hit["document"] for hit in get(query="dog mat", top_k=3)[2]["hits"]] == hits
        for parameters, message in (
            ({}, "query must have 1 to 2000 characters. Received: 0"),
            ({"query": "a", "top_k": "0"}, "top_k must be a number from 1 to 100. Received: 0"),
            ({"query": "a", "top_k": "9" * 5000}, "top_k must be a number"),
            ({"query": "a", "mode": "x"}, "mode must be"),
            ({"query": "a", "q": "b"}, "fields must be among query, top_k, mode. Received: q"),
        ):
            status, _, content = get(**parameters)
            assert status == 400
            assert content["error"].startswith(message)
        assert get(headers={}, query="dog")[0] == 401
        assert get(headers={**key, "Origin": "https://a.example"}, query="dog")[0] == 403
        assert get("/searches")[2]["error"] == (
            "the path must be /, /search or /explain. Received: /searches"
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
            assert page.headers["Content-Type"] == "text/html; charset=utf-8"
            assert "default-src 'none'" in page.headers["Content-Security-Policy"]
            assert b'<option value="vectors">meaning</option>\n  </select>' in page.read()

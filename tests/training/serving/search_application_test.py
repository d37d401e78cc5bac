# SPDX-License-Identifier: Apache-2.0
"""Searches an index over HTTP."""

import concurrent.futures
import contextlib
import http.client
import shutil
import socket
import struct
import subprocess
import threading
import time
import urllib.parse
import urllib.request

import pytest

pytest.importorskip("uvicorn")

from keras_bert.search import Document, Searcher, SearchIndex
from tests.search.search_test import TEXTS, make_embedder
from tests.training.serving.model_server import run_application, send_request
from training.serving import search_application as module
from training.serving.batching import Batcher
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
            ({}, "query is missing"),
            ({"query": " "}, "query must have 1 to 2000 characters. Received: 1"),
            *(
                ({"query": "a", "top_k": number}, "top_k must be a number from 1 to 100. Received")
                for number in ("0", "-1", "1.0", "101", "９", "9" * 5000, f"{'0' * 19}1000000")
            ),
            ({"query": "a", "mode": "x"}, "mode must be fused or words or vectors. Received"),
            ({"query": "a", "q": "b"}, "fields must be among query, top_k, mode. Received: 'q'"),
        ):
            status, _, content = get(**parameters)
            assert status == 400, parameters
            assert content["error"].startswith(message)
        for id, message in ((str(2**63), "id must be a number from 1 to"), (None, "id is missing")):
            status, _, content = get("/explain", query="a", **({"id": id} if id else {}))
            assert status == 400
            assert content["error"].startswith(message)
        assert get("/explain", query="visa", id=hit["id"])[2] == {"words": []}
        assert get(headers={}, query="dog")[0] == 401
        assert get(headers={**key, "Origin": "https://a.example"}, query="dog")[0] == 403
        assert get("/searches")[2]["error"] == (
            "the path must be /, /search or /explain. Received: /searches"
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
            assert page.headers["Content-Type"] == "text/html; charset=utf-8"
            assert "default-src 'none'" in page.headers["Content-Security-Policy"]
            assert b'<option value="vectors">meaning</option>\n  </select>' in page.read()


@pytest.fixture
def index(tmp_path):
    with contextlib.closing(SearchIndex(tmp_path / "index", make_embedder())) as index:
        index.add(Document(name, text) for name, text in TEXTS.items())
        yield index


def wait_until(is_done):
    end = time.monotonic() + 20
    while not is_done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_waiting_queries_are_limited(index, monkeypatch):
    """A query whose connection was reset is not computed and makes room for another query."""
    batchers, queries, may_continue = [], [], threading.Event()

    class SlowSearcher(Searcher):
        def search(self, query, *arguments, **options):
            queries.append(query)
            may_continue.wait(20)
            return super().search(query, *arguments, **options)

    class RecordedBatcher(Batcher):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            batchers.append(self)

    monkeypatch.setattr(module, "Batcher", RecordedBatcher)
    monkeypatch.setattr(module, "_MAX_WAITING", 1)
    application = search_application(SlowSearcher(index), candidates=10)
    (batcher,) = batchers
    with run_application(application) as port, concurrent.futures.ThreadPoolExecutor(2) as clients:
        first = clients.submit(send_request, port, "/search?query=first")
        wait_until(lambda: queries)
        gone = http.client.HTTPConnection("127.0.0.1", port)
        gone.request("GET", "/search?query=gone")
        wait_until(lambda: batcher.waiting)
        status, headers, _ = send_request(port, "/search?query=rejected")
        assert (status, headers["Retry-After"]) == (503, "1")
        # With this option, close resets the connection instead of only ending the request.
        gone.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()
        wait_until(lambda: not batcher.waiting)
        last = clients.submit(send_request, port, "/search?query=last")
        wait_until(lambda: batcher.waiting)
        may_continue.set()
        assert first.result()[0] == last.result()[0] == 200
    batcher.close()
    assert queries == ["first", "last"]


# What a user does on the page. The password field appears after the first response with 401.
_ACTIONS = """
<script>
const pause = async (isDone) => {
  while (!isDone()) await new Promise((next) => setTimeout(next, 20));
};
const passage = () => document.querySelector("li").lastChild;
const button = () => document.querySelector("button.why");
(async () => {
  byId("query").value = "visa";
  byId("form").requestSubmit();
  await pause(() => !byId("key").hidden);
  byId("key").value = "secret";
  byId("form").requestSubmit();
  await pause(button);
  byId("key").value = "wrong";
  button().click();
  await pause(() => passage().textContent.includes("API key"));
  byId("key").value = "secret";
  button().click();
  await pause(() => passage().querySelector("mark"));
  document.title = "done";
})();
</script>
"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_page_continues_after_wrong_key(index, tmp_path, monkeypatch):
    page = tmp_path / "search.html"
    page.write_text(module._PAGE.read_text("utf-8").replace("</body>", f"{_ACTIONS}</body>"))
    monkeypatch.setattr(module, "_PAGE", page)
    application = search_application(Searcher(index), candidates=10, api_key="secret")
    with run_application(application) as port:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        flags = [
            f"--user-data-dir={tmp_path}",
            "--virtual-time-budget=5000",
            f"http://127.0.0.1:{port}/",
        ]
        done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=60)
    assert "<title>done</title>" in done.stdout

# SPDX-License-Identifier: Apache-2.0
"""Runs a model server in a thread."""

import asyncio
import contextlib
import http.client
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from training.serving import connections
from training.serving.address import ServerConfig, listening
from training.serving.application import application
from training.serving.batching import Batcher
from training.serving.metrics import Metrics
from training.serving.models import (
    LoadedModel,
    ModelPredictions,
    answers_of_saved_model,
    answers_of_task,
)
from training.serving.server import ModelServer


@contextlib.contextmanager
def serve_models(
    models: Mapping[str, LoadedModel],
    max_rows: int,
    max_bytes: int,
    limits: Mapping[str, Any] | None = None,
    **options: Any,
) -> Iterator[int]:
    """Serves models by name, and yields the local port.

    Args:
        models: The models by name.
        max_rows: Maximum number of rows per request.
        max_bytes: Maximum size of a request.
        limits: Other arguments of `ModelServer`.
        **options: Arguments of `application`.
    """
    server = ModelServer(models, Metrics(), max_rows, max_bytes, **(limits or {}))
    with run_server(server, **options) as port:
        yield port


@contextlib.contextmanager
def run_server(server: ModelServer, **options: Any) -> Iterator[int]:
    """Runs a server with options of `application`, and yields the local port."""
    try:
        with run_application(application(server, **options)) as port:
            yield port
    finally:
        server.close()


@contextlib.contextmanager
def run_application(own: Any) -> Iterator[int]:
    """Serves an ASGI application, and yields the local port."""
    uvicorn = connections.server(own, seconds_to_end=5)
    with listening(ServerConfig(port=0)) as listener:
        sockets = [listener.socket]
        thread = threading.Thread(target=lambda: asyncio.run(uvicorn.serve(sockets=sockets)))
        thread.start()
        try:
            yield listener.socket.getsockname()[1]
        finally:
            uvicorn.should_exit = True
            thread.join()


def load_model(name: str, answers: ModelPredictions, batch_size: int = 8) -> LoadedModel:
    """Returns a model that a server can use for predictions."""
    batcher = Batcher(answers.compute, threads=1, batch_size=batch_size, max_waiting=20)
    return LoadedModel(**vars(answers), name=name, version="1", batcher=batcher)


def send_request(
    port: int, path: str, request: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any, Any]:
    """Returns the response's status, headers and content."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        body = request if request is None or isinstance(request, bytes) else json.dumps(request)
        connection.request("GET" if body is None else "POST", path, body, dict(headers or {}))
        response = connection.getresponse()
        content = response.read()
        return response.status, response.headers, json.loads(content) if content else None


def check_task_matches_export(task: Any, served: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Compares the responses for a task and its export on every server route.

    Args:
        task: The task.
        served: The `ServedModel` of its export.
        rows: Rows of text. All lists in a field must have the same length.
    """
    task_predictions = answers_of_task(task, served.fields, optional_fields=())
    answers = {"own_task": task_predictions, "own_export": answers_of_saved_model(served)}
    models = {name: load_model(name, predictions) for name, predictions in answers.items()}
    texts = [row["text"] if "text" in row else row["question"] for row in rows]
    columns = {name: [row[name] for row in rows] for name in served.fields}
    pairs = [
        [text, *([row["text_pair"]] if "text_pair" in row else [])]
        for text, row in zip(texts, rows, strict=True)
    ]
    requests = [
        *(("/v1/models/NAME:predict", {"instances": part}) for part in (rows, rows[:1], rows[-1:])),
        ("/v1/models/NAME:predict", {"inputs": columns}),
        ("/models/NAME/predict", {"inputs": pairs}),
        ("/models/NAME/predict", {"inputs": pairs, "aggregation_strategy": "none"}),
        *(("/models/NAME/predict", {"inputs": pair}) for pair in (pairs[0], texts[0])),
        ("/models/NAME/rerank", {"query": texts[0], "texts": texts}),
        ("/models/NAME/rerank", {"query": texts[0], "texts": [*filter(None, texts)]}),
        ("/models/NAME/embed", {"inputs": [*texts, [5, 6]], "truncate": True}),
        ("/models/NAME/embed", {"inputs": texts, "prompt_name": "query"}),
        ("/models/NAME/embed_sparse", {"inputs": [*filter(None, texts), [5, 6]], "truncate": True}),
        ("/models/NAME/embed_sparse", {"inputs": texts[0], "prompt_name": "query"}),
        ("/models/NAME/embed_all", {"inputs": texts, "truncate": True}),
        ("/models/NAME/embed_all", {"inputs": texts, "truncate": True, "input_type": "query"}),
        ("/v1/embeddings", {"model": "NAME", "input": texts}),
        ("/models/NAME/tokenize", {"inputs": texts}),
        *(("/models/NAME", {"inputs": text, "parameters": {}}) for text in texts[:2]),
        ("/models/NAME/info", None),
    ]
    with serve_models(models, max_rows=100, max_bytes=100_000) as port:
        for path, request in requests:
            results = []
            for name in models:
                body = None if request is None else json.dumps(request).replace("NAME", name)
                response = send_request(port, path.replace("NAME", name), body and body.encode())
                results.append(json.loads(json.dumps(response[::2]).replace(name, "NAME")))
            assert results[0] == _approximately(results[1]), path


def _approximately(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _approximately(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(_approximately, value))
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value

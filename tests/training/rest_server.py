# SPDX-License-Identifier: Apache-2.0
"""A small server that answers as TensorFlow Serving's REST does, from an exported model."""

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any


def predictions(outputs: dict[str, Any]) -> list[Any]:
    """Rows of outputs; those of a model with one output are bare values."""
    columns = {
        name: [_plain(value) for value in values.numpy().tolist()]
        for name, values in outputs.items()
    }
    if len(columns) == 1:
        return next(iter(columns.values()))
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@contextlib.contextmanager
def serving(signatures: Any, model: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serves signatures whose only input is `text` on a port of this machine.

    Yields:
        The URL, and the requests as they come in.
    """
    import tensorflow as tf

    requests: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(request)
            rows = request["instances"]
            texts = [row["text"] if isinstance(row, dict) else row for row in rows]
            if self.path != f"/v1/models/{model}:predict":
                self._answer(404, {"error": f"Servable not found for {self.path}"})
            elif "bad" in texts:
                self._answer(400, {"error": "a bad text"})
            else:
                signature = signatures[request["signature_name"]]
                outputs = signature(text=tf.constant(texts))
                self._answer(200, {"predictions": predictions(outputs)})

        def _answer(self, status: int, value: Any) -> None:
            content = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value

# SPDX-License-Identifier: Apache-2.0
"""Runs the nginx proxy of docs/serving/proxy in front of a server that records requests."""

import gzip
import http.client
import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

DIRECTORY = Path(__file__).parents[2] / "docs" / "serving" / "proxy"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MODULE = Path(NGINX or "/usr/sbin/nginx").parents[1] / "lib/nginx/modules/ngx_http_js_module.so"
PREDICT = "/v1/models/sst2:predict"
# Directories that nginx needs
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")

pytestmark = [
    pytest.mark.backend_independent,
    pytest.mark.skipif(
        NGINX is None or not MODULE.is_file(),
        reason="nginx and libnginx-mod-http-js are not installed",
    ),
]
# Requests that reached the server
RECEIVED = []


class RecordingServer(http.server.BaseHTTPRequestHandler):
    """Records the path, headers and body of each request."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        RECEIVED.append((self.path, dict(self.headers), body.decode()))
        self.send_response(418)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"predictions": ["\xc3\xa4"]}')

    def do_GET(self):
        RECEIVED.append((self.path, dict(self.headers), ""))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """The port of the proxy."""
    directory = tmp_path_factory.mktemp("nginx")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RecordingServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = (DIRECTORY / "nginx.conf").read_text()
    paths = "".join(f"{name}_temp_path {name};" for name in TEMPORARY)
    for documented, replacement in (
        (
            "load_module modules/ngx_http_js_module.so;",
            f"load_module {MODULE}; pid {directory}/pid;",
        ),
        ("http {", f"http {{ access_log off; {paths}"),
        ("server 127.0.0.1:8501;", f"server 127.0.0.1:{server.server_address[1]};"),
        ("listen 8080;", f"listen 127.0.0.1:{port};"),
    ):
        assert config.count(documented) == 1, documented
        config = config.replace(documented, replacement)
    (directory / "nginx.conf").write_text(config)
    shutil.copy(DIRECTORY / "predict.js", directory)
    log = directory / "error.log"
    proxy = subprocess.Popen(
        [NGINX, "-p", directory, "-c", directory / "nginx.conf", "-e", log, "-g", "daemon off;"]
    )
    try:
        for _ in range(200):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert proxy.poll() is None, log.read_text()
            time.sleep(0.05)
        yield port
    finally:
        proxy.terminate()
        proxy.wait()
        server.shutdown()
        server.server_close()


@pytest.fixture
def send(port):
    """Sends a request through the proxy. Returns the status, the body and the recorded requests."""

    def send(body, path=PREDICT, method="POST", **headers):
        RECEIVED.clear()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        chunked = not isinstance(body, (str, bytes, type(None)))
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, headers, encode_chunked=chunked)
        response = connection.getresponse()
        result = response.status, response.read().decode(), list(RECEIVED)
        connection.close()
        return result

    return send


@pytest.mark.parametrize(
    "request_",
    [
        {"instances": ["a gripping film", "größer \U0001f600", {"b64": "/w=="}]},
        {"signature_name": "serve_ids", "instances": [[101, 102], [101, -1]]},
        {"signature_name": "serve_words", "instances": [["a", ""], ["b", {"b64": "/w=="}]]},
        {"instances": [{"question": "?", "context": "a b"}]},
        {"instances": [{"text": "a", "choices": ["b", "b"], "num_choices": 2}]},
    ],
)
def test_requests_reach_the_server(send, request_):
    status, body, received = send(json.dumps(request_), accept_encoding="gzip", x_secret="a")
    assert (status, json.loads(body)) == (418, {"predictions": ["ä"]})
    ((path, headers, content),) = received
    assert path == PREDICT
    assert headers.keys() == {"Host", "Connection", "Content-Length", "Content-Type"}
    assert json.loads(content) == {"signature_name": "serving_default", **request_}


def test_versions_and_labels_reach_the_server(send):
    for path in ("/v1/models/a/versions/3:classify", "/v1/models/a/labels/stable:regress"):
        ((reached, _, body),) = send('{"examples": [{"text": "a"}]}', path)[2]
        assert reached == path
        assert json.loads(body)["examples"] == [{"text": "a"}]
    for path in ("/v1/models/a", "/v1/models/a/versions/3/metadata"):
        ((reached, _, body),) = send(None, path, "GET")[2]
        assert (reached, body) == (path, "")


def test_proxy_reserializes_requests(send):
    """Different parsers may read different values from the same text."""
    ((_, _, body),) = send('{"instances": [], "inst\\u0061nces": ["\\u0061", "\\ud800"]}')[2]
    assert body == '{"signature_name":"serving_default","instances":["a","\ufffd"]}'


UNKNOWN_FIELD = "expected instances and signature_name alone"
ROW_COUNT = "instances: expected a list of 1 to 1024 rows"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"inputs": []}', UNKNOWN_FIELD),
        ('{"in\\u0070uts": []}', UNKNOWN_FIELD),
        ('{"instances": ["a"], "inputs": []}', UNKNOWN_FIELD),
        ('{"instances": ["a"], "instances": []}', ROW_COUNT),
        ('{"instances": []}', ROW_COUNT),
        (json.dumps({"instances": ["a"] * 1025}), ROW_COUNT),
        ('{"instances": [["a"]]}', "instances[0]: text: expected string"),
        ('{"instances": ["a", [["a"]]]}', "instances[1]: text: expected string"),
        ('{"instances": [{"text": ["a"]}]}', "instances[0]: text: expected string"),
        ('{"instances": [{"text": "a", "choices": []}]}', "choices: expected a list of strings"),
        ('{"instances": [{"__proto__": "a"}]}', "the name of an input is unknown"),
        ('{"instances": [null]}', "instances[0]: text: expected string"),
        (
            '{"signature_name": "serve_ids", "instances": [101, 102]}',
            "instances[0]: token_ids: expected a list of numbers",
        ),
        ('{"signature_name": "serve_ids", "instances": [[[101]]]}', "a list of numbers"),
        ('{"signature_name": 1, "instances": ["a"]}', "signature_name: expected a string"),
        (
            '{"signature_name": "serve_examples", "instances": [{"b64": "/w=="}]}',
            "serve_examples: expected :classify or :regress",
        ),
        ("[" * 60_000, "Nested too deep"),
        ('{"a":' * 60_000, "Nested too deep"),
        (f'{{"instances": {"[" * 60_000}{"]" * 60_000}}}', "Nested too deep"),
        ('["a"]', "must be an object"),
        ("null", "must be an object"),
        ("", "Unexpected end of input"),
        ('{"instances": [NaN]}', "Unexpected token"),
        (gzip.compress(b'{"inputs": []}', mtime=0), "Unexpected"),
    ],
    ids=range(24),
)
def test_dangerous_requests_are_rejected(send, body, reason):
    status, response, received = send(body)
    assert (status, received) == (400, [])
    assert reason in json.loads(response)["error"]


def test_compressed_and_large_requests_are_rejected(send):
    compressed = gzip.compress(b'{"instances": ["a"]}')
    assert send(compressed, content_encoding="gzip")[::2] == (415, [])
    huge = b'{"instances": ["' + b"a" * 1_100_000 + b'"]}'
    assert send(huge)[::2] == (413, [])
    assert send(iter([huge[:50_000], huge[50_000:]]), transfer_encoding="chunked")[::2] == (413, [])
    large = b'{"instances": ["' + b"a" * 1_000_000 + b'"]}'
    assert len(send(large)[2][0][2]) > len(large)


def test_unlisted_paths_are_rejected(send):
    for path in ("/monitoring/prometheus/metrics", "/checked" + PREDICT, "/v1/models/a/b:predict"):
        assert send('{"inputs": []}', path)[::2] == (404, [])
    assert send('{"inputs": []}', "/v1/models/sst2")[::2] == (403, [])
    assert send(None, PREDICT, "GET")[::2] == (400, [])

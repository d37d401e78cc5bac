# SPDX-License-Identifier: Apache-2.0
"""Starts a server process, and checks its responses, errors and shutdown."""

import concurrent.futures
import contextlib
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import keras_bert
from keras_bert.data import TextClassifierPreprocessor
from tests.checkpoints.small_models import small_config
from tests.small_tasks import make_text_task
from tests.text.small_tokenizers import LETTER_TOKENS, make_tokenizer
from training.serve import ServeConfig, named_models
from training.serving.address import ServerConfig, listening
from training.serving.signatures import task_signatures, warm_up

pytestmark = [pytest.mark.on_tensorflow, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
TEXTS = ["a film", "", "naïve é", "plot " * 20, "b"]


@pytest.fixture(scope="module")
def classifier():
    config = small_config(vocabulary_size=len(LETTER_TOKENS), num_layers=1, max_sequence_length=32)
    return keras_bert.TextClassifier(
        keras_bert.Backbone(config),
        preprocessor=TextClassifierPreprocessor(make_tokenizer(*LETTER_TOKENS), sequence_length=16),
        class_names=["bad", "good"],
    )


@contextlib.contextmanager
def start_server(model, *flags):
    """Starts a server, and yields the process, its first output lines and its port."""
    command = [sys.executable, "-m", "training.serve", f"--model={model}", "--port=0", *flags]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            lines = [process.stdout.readline() for _ in range(3)]
            assert lines[-1].startswith("curl "), (lines, process.stderr.read())
            yield process, lines, int(re.search(r":(\d+)/", lines[0])[1])
        finally:
            process.kill()


@pytest.fixture(scope="module")
def server(classifier, tmp_path_factory):
    """A server that serves the versions of an export."""
    directory = tmp_path_factory.mktemp("models")
    classifier.export(directory / "7", warm_up=False)
    with start_server(directory, "--max_rows=100") as running_server:
        yield running_server


def send_request(port, path, body=None, headers=()):
    """Returns the response's status and content."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read()


def predict(port, request, path="/v1/models/model:predict", **options):
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    status, content = send_request(port, path, body, **options)
    return status, json.loads(content)


def approximate_predictions(answers):
    return [
        {
            "label": answer["label"],
            "score": pytest.approx(answer["score"], abs=1e-4),
            "probabilities": pytest.approx(answer["probabilities"], abs=1e-4),
        }
        for answer in answers
    ]


def test_served_predictions_match_the_task(server, classifier):
    _, lines, port = server
    assert lines[0].endswith("/v1/models/model (version 7); ready, press Ctrl-C to stop\n")
    expected = approximate_predictions(
        classifier.serving_answers([{"text": text} for text in TEXTS])
    )
    assert predict(port, {"instances": TEXTS}) == (200, {"predictions": expected})
    assert predict(port, {"instances": [{"text": text} for text in TEXTS]})[1] == {
        "predictions": expected
    }
    _, columns = predict(port, {"inputs": TEXTS, "signature_name": "serving_default"})
    assert columns["outputs"]["label"] == [answer["label"] for answer in expected]
    # The printed curl command also returns a prediction.
    path, body = re.fullmatch(r"curl http://\S+?(/\S+) -d '(.*)'\n", lines[-1]).groups()
    assert predict(port, body.encode(), path)[0] == 200


def test_concurrent_clients_get_own_predictions(server, classifier):
    *_, port = server
    requests = [TEXTS[:size] for size in range(1, 6)] * 8
    rows = [{"text": text} for text in TEXTS]
    expected = approximate_predictions(classifier.serving_answers(rows))
    with concurrent.futures.ThreadPoolExecutor(8) as clients:
        answers = clients.map(lambda texts: predict(port, {"instances": texts}), requests)
        for texts, answer in zip(requests, answers, strict=True):
            assert answer == (200, {"predictions": expected[: len(texts)]})


def test_invalid_request_does_not_affect_others(server):
    *_, port = server
    stop = threading.Event()

    def send_valid_requests():
        statuses = set()
        while not stop.is_set():
            statuses.add(predict(port, {"instances": ["a film"]})[0])
        return statuses

    cases = [
        (b"", 400, "the body must be JSON. Received: an empty body"),
        ({"instances": [["a"]]}, 400, "must be a string"),
        ({"instances": ["a"] * 10_000}, 400, "at most 100 examples. Received: 10000"),
        (
            {"signature_name": "serve_ids", "instances": [[]]},
            400,
            "token_ids must have at least one element",
        ),
        (b'{"instances": ["' + b"a" * 5_000_000 + b'"]}', 413, "at most 4000000 bytes"),
    ]
    with concurrent.futures.ThreadPoolExecutor(1) as clients:
        statuses = clients.submit(send_valid_requests)
        try:
            for request, expected, message in cases:
                status, answer = predict(port, request)
                assert (status, list(answer)) == (expected, ["error"])
                assert message in answer["error"]
        finally:
            stop.set()
        assert statuses.result() == {200}
    # An invalid row has an error instead of a prediction. The other rows have predictions.
    request = {"signature_name": "serve_ids", "instances": [[2, 5, 3], [2, -5, 3]]}
    _, answer = predict(port, request)
    assert [bool(row["error"]) for row in answer["predictions"]] == [False, True]
    identity, gzip = ({"Content-Encoding": coding}.items() for coding in ("Identity", "gzip"))
    assert predict(port, {"instances": ["a"]}, headers=identity)[0] == 200
    status, answer = predict(port, {"instances": ["a"]}, headers=gzip)
    assert (status, answer["error"]) == (415, "the body must not be compressed. Received: gzip")


def test_server_survives_disconnected_clients(server):
    *_, port = server
    body = json.dumps({"instances": ["plot " * 200] * 100}).encode()
    header = b"POST /v1/models/model:predict HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    for sent in (body, body[:50], b"no HTTP\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(header % len(body) + sent if sent in body else sent)
    assert predict(port, {"instances": ["a film"]})[0] == 200


def test_model_endpoints_health_and_metrics(server):
    *_, port = server
    status, content = send_request(port, "/v1/models/model")
    available = {"error_code": "OK", "error_message": ""}
    version = {"version": "7", "state": "AVAILABLE", "status": available}
    assert (status, json.loads(content)["model_version_status"]) == (200, [version])
    assert send_request(port, "/v1/models/model/versions/7")[0] == 200
    assert predict(port, {"instances": ["a"]}, "/v1/models/model/versions/7:predict")[0] == 200
    metadata = json.loads(send_request(port, "/v1/models/model/metadata")[1])["metadata"]
    signature = metadata["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["text"]["dtype"] == "DT_STRING"
    assert set(signature["outputs"]) == {"label", "score", "probabilities"}
    assert [send_request(port, f"/v2/health/{name}")[0] for name in ("live", "ready")] == [200, 200]
    for path, expected in {
        "/v1/models/other/metadata": "model must be one of model. Received: 'other'",
        "/v1/models/model/versions/8": "must be for version 7 of model",
        "/nothing": "the path must be one of POST /v1/rerank, POST /v1/models/NAME:predict",
    }.items():
        status, content = send_request(port, path)
        assert status == 404
        assert expected in json.loads(content)["error"]
    status, content = send_request(port, "/v1/models/model:predict")
    assert (status, json.loads(content)["error"]) == (
        405,
        "the method must be POST. Received: GET /v1/models/model:predict",
    )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("DELETE", "/v1/models/model/versions/7:predict")
        assert connection.getresponse().headers["Allow"] == "POST"
    metrics = send_request(port, "/metrics")[1].decode()
    assert re.search(
        r'^keras_bert_requests_total\{model="model",status="200"\} [1-9]', metrics, re.M
    )
    assert re.search(r'^keras_bert_batch_rows_sum\{model="model"\} [1-9]', metrics, re.M)
    assert re.search(r'^keras_bert_waiting_rows\{model="model"\} 0', metrics, re.M)


def test_newest_version_is_served(server):
    """Requests do not fail while versions are added and removed."""
    _, lines, port = server
    directory = Path(re.match(r"serving (.*) at http", lines[0])[1])

    def wait_for_version(version):
        end = time.monotonic() + 60
        while send_request(port, f"/v1/models/model/versions/{version}")[0] != 200:
            assert time.monotonic() < end
            assert predict(port, {"instances": TEXTS})[0] == 200

    shutil.copytree(directory / "7", directory / "copy")
    (directory / "copy").rename(directory / "8")
    wait_for_version(8)
    shutil.rmtree(directory / "8")
    wait_for_version(7)


def test_sigterm_finishes_requests_in_flight(classifier, tmp_path):
    classifier.save(tmp_path / "model.keras")
    with start_server(tmp_path / "model.keras", "--batch_size=1") as (process, _, port):
        with concurrent.futures.ThreadPoolExecutor(1) as clients:
            texts = ["plot " * 20] * 100
            answer = clients.submit(predict, port, {"instances": texts})
            while b'keras_bert_rows_total{model="model"} 0.0' in send_request(port, "/metrics")[1]:
                time.sleep(0.01)
            metrics = send_request(port, "/metrics")[1].decode()
            assert re.search(
                r'^keras_bert_truncated_rows_total\{model="model"\} [1-9]', metrics, re.M
            )
            assert not answer.done()
            process.send_signal(signal.SIGTERM)
            status, answers = answer.result()
        assert (status, len(answers["predictions"])) == (200, 100)
        assert process.wait(60) == 0
        assert process.stdout.read() == "stopped\n"
        # The warning is logged only once, for the first row.
        assert re.fullmatch("warning: 1 of 1 rows is truncated: .*\n", process.stderr.read())


@pytest.mark.on_each_backend
def test_masked_lm_warm_up_has_a_mask_token():
    """The warm-up text contains a mask token. On JAX, three rows are padded to four."""
    masked_lm = make_text_task("MaskedLM")
    (signature,) = task_signatures(masked_lm, masked_lm.fields).values()
    warm_up(signature, [1], longest=50, compiles=False)
    answers = signature.answer([{"text": "a [MASK]"}] * 3)
    assert [len(answer["answers"]) for answer in answers] == [5, 5, 5]


def test_named_models_parses_names_and_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for rate in ("1", "2"):
        Path(f"runs/lr={rate}").mkdir(parents=True)
        Path(f"runs/lr={rate}/model.keras").touch()
    wildcards, files = "runs/lr=*/model.keras", "runs/lr=1/model.keras,runs/lr=2/model.keras"
    for model, expected in {
        "org/mini-lm=a.keras": {"org/mini-lm": "a.keras"},
        wildcards: {"model": wildcards},
        f"org/a={wildcards},b={files}": {"org/a": wildcards, "b": files},
        "/missing/lr=1/a.keras": {"model": "/missing/lr=1/a.keras"},
        "감성/1=../a=b.keras": {"감성/1": "../a=b.keras"},
        # The text before "=" may be an existing directory, or belong to a mistyped path.
        "runs/lr=0.1/seed_1/model.keras": {"model": "runs/lr=0.1/seed_1/model.keras"},
        "runs/a=runs/lr=1/model.keras": {"runs/a": "runs/lr=1/model.keras"},
        "C:/m=1/x.keras": {"model": "C:/m=1/x.keras"},
        "minilm,hf://org/a@b": {"minilm": "minilm", "org/a": "hf://org/a@b"},
        "small=minilm,large=minilm": {"small": "minilm", "large": "minilm"},
    }.items():
        assert named_models(model) == expected


def test_listening_rejects_used_port():
    with listening(ServerConfig(port=0)) as listener:
        port = listener.socket.getsockname()[1]
        assert listener.address == f"http://127.0.0.1:{port}"
        # Otherwise asyncio does not set TCP_NODELAY, and each response takes 40 ms longer.
        assert listener.socket.proto == socket.IPPROTO_TCP
        with (
            pytest.raises(OSError, match=f"--port={port}: Address already in use. Pass --port=0"),
            listening(ServerConfig(port=port)),
        ):
            pass


def test_environment_variable_sets_api_key(monkeypatch):
    monkeypatch.setenv("KERAS_BERT_API_KEY", "secret")
    assert ServerConfig().key == "secret"
    assert ServerConfig(api_key="other").key == "other"
    monkeypatch.setenv("KERAS_BERT_API_KEY", "")
    with pytest.raises(ValueError, match=r"KERAS_BERT_API_KEY must be a key\. Received: an empty"):
        ServerConfig()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"port": 70_000}, "--port must be a number below 65536"),
        ({"model": "a=b.keras,a=c.keras"}, "unique name without : ? # %. Received: 'a'"),
        ({"model": "a/=b.keras"}, "unique name without : ? # %. Received: 'a/'"),
        ({"allowed_origins": ("https://a.b/",)}, "without a path. Received: 'https://a.b/'"),
        ({"unix_socket": "s", "port": 1}, "--unix_socket is given"),
        ({"tls_key": "key.pem"}, "--tls_certificate is not given"),
        ({"max_waiting_rows": 10}, "--max_waiting_rows must be at least --max_rows, 2048"),
    ],
)
def test_invalid_flags_raise(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ServeConfig(**options)

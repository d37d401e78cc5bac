# SPDX-License-Identifier: Apache-2.0
"""Benchmarks a local server with TensorFlow Serving's REST API, under load from locust."""

import dataclasses
import errno
import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("tensorflow_text")
pytest.importorskip("uvicorn")

from keras_bert.export import ServedModel
from tests.export.small_classifier import make_classifier
from tests.training.serving.model_server import serve_models
from training.benchmarks import benchmark
from training.benchmarks.report import format_table
from training.benchmarks.server import LOCUSTFILE
from training.serving.batching import Batcher
from training.serving.models import LoadedModel, answers_of_saved_model

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

TEXTS = ["the cat", "a mat?", "unbelievable words " * 9]


@pytest.fixture(scope="module")
def classifier():
    return make_classifier(class_names=["bad", "good"])


@pytest.fixture(scope="module")
def server(classifier, tmp_path_factory):
    """The URL of a served model, and the list of all rows that it has received."""
    directory = tmp_path_factory.mktemp("exported") / "1"
    classifier.export(directory, warm_up=False)
    answers, answered_rows = answers_of_saved_model(ServedModel(directory)), []

    def compute(signature, rows):
        answered_rows.extend(rows)
        return answers.compute(signature, rows)

    batcher = Batcher(compute, threads=1, batch_size=8, max_waiting=100)
    model = LoadedModel(**vars(answers), name="small", version="1", batcher=batcher)
    with serve_models({"small": model}, max_rows=8, max_bytes=10_000) as port:
        yield f"http://127.0.0.1:{port}/v1/models/small", answered_rows


def make_config(server, **changes):
    fast = {"seconds": 1, "rounds": 1, "batch_size": 1, "timeout": 20.0}
    return benchmark.BenchmarkConfig(what="serve", subjects=(server[0],), **{**fast, **changes})


def test_loads_are_measured_and_predictions_checked(classifier, server, tmp_path):
    texts, expected = tmp_path / "texts.txt", tmp_path / "answers.jsonl"
    texts.write_text("\n".join(TEXTS) + "\n")
    answers = classifier.classify(TEXTS)
    answers[1]["label"] = "neither"
    expected.write_text("".join(json.dumps({"id": 7, **answer}) + "\n" for answer in answers))
    server[1].clear()
    rows = benchmark.run(
        make_config(server, texts=str(texts), expected=str(expected), clients=("3",), rates=("20",))
    )
    assert [str(row.load) for row in rows] == ["3 at a time", "20 requests/s"]
    for row in rows:
        assert row.unavailable == ""
        # The second text has a wrong expected label. Each text is sent before any is sent again.
        assert row.requests // 3 <= row.errors <= (row.requests + 2) // 3, row
        assert row.most_frequent_error == "1 of 1 predictions are not as expected"
        assert 0 < row.p50 <= row.p99
    assert rows[1].requests <= 45  # The requests arrive at random, 20 per second.
    # The warm-up also sends rows.
    assert len(server[1]) >= sum(row.requests for row in rows)
    assert {row["text"] for row in server[1]} == set(TEXTS)
    assert f"{rows[0].errors} of {rows[0].requests}" in format_table(rows)


def test_server_benchmark_writes_results(server, tmp_path, capsys):
    texts, results, plot = tmp_path / "rows.jsonl", tmp_path / "load.json", tmp_path / "load.png"
    texts.write_text('{"text": "the cat"}\n{"text": "a mat?"}\n{"text": 1}\n')
    server[1].clear()
    # Even a busy machine has time for three requests. One of three is invalid.
    files = {"texts": str(texts), "json": str(results), "plot": str(plot)}
    benchmark.main(make_config(server, seconds=3, **files))
    assert {"text": "the cat"} in server[1]
    heading, columns, row, error = capsys.readouterr().out.splitlines()
    assert heading == "serve, batches of 1, rounds: 1 x 3 s"
    assert columns.split()[:3] == ["subject", "load", "ms/step"]
    assert row.split()[0] == server[0]
    assert 'HTTP 400: {"error": "instances[0].text must be a string. Received: a number' in error
    written = json.loads(results.read_text())
    assert written["config"]["clients"] == ["1"]
    (row,) = written["rows"]
    assert row["requests"] // 3 <= row["errors"] <= (row["requests"] + 2) // 3, row
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_unavailable_servers_are_reported(server, tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(b"a\nb\xff\n")
    url = server[0].replace("small", "other")
    (missing, unreachable) = benchmark.run(
        dataclasses.replace(
            make_config(server), subjects=(url, "http://127.0.0.1:9/v1/models/small")
        )
    )
    assert missing.unavailable.startswith("the server did not respond: HTTP 404")
    reason = f"[Errno {errno.ECONNREFUSED}] {os.strerror(errno.ECONNREFUSED)}"
    assert unreachable.unavailable == f"the server did not respond: {reason}"
    unreadable = make_config(server, texts=str(rows))
    (row,) = benchmark.run(unreadable)
    assert f"error: {rows}, line 2: 'utf-8' codec can't decode byte 0xff" in row.unavailable
    with pytest.raises(ValueError, match="no subject could be measured"):
        benchmark.main(unreadable)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clients": ("1", "x")}, "--clients must be positive numbers"),
        ({"expected": "answers.jsonl"}, "--expected=answers.jsonl .* --texts, .* is not given"),
    ],
)
def test_invalid_options_raise(server, fields, message):
    with pytest.raises(ValueError, match=message):
        benchmark.run(dataclasses.replace(make_config(server), **fields))


def test_predictions_match_within_tolerance():
    # Importing locust patches Python, so this runs in a separate process.
    script = f"""
import sys
sys.path.insert(0, {str(LOCUSTFILE.parent)!r})
from locustfile import find_error, is_as_expected

for prediction, expected, is_same in [
    ({{"label": "a", "score": 0.5004, "more": 1}}, {{"id": 3, "label": "a", "score": 0.5}}, True),
    ({{"label": "a", "score": 0.6}}, {{"label": "a", "score": 0.5}}, False),
    ([0.1, 0.2], {{"vector": [0.1, 0.2001]}}, True),
    ([0.1], [0.1, 0.2], False),
    ("a", "b", False),
    ({{"label": "a"}}, {{"score": 0.5}}, False),
]:
    assert is_as_expected(prediction, expected, 1e-3) == is_same, (prediction, expected)
assert find_error(200, '{{"predictions": ["a"]}}', 1, ["a"], 0.0) == ""
assert find_error(200, '{{"predictions": []}}', 1, None, 0.0).startswith("the response must have 1")
embedded = '{{"data": [{{"embedding": [0.1]}}, {{"embedding": [0.2]}}]}}'
assert find_error(200, embedded, 2, [[0.1], {{"embedding": [0.2]}}], 0.0) == ""
assert find_error(200, embedded, 2, [[0.1], [0.3]], 0.0) == "1 of 2 predictions are not as expected"
assert find_error(200, "<html>", 1, None, 0.0).startswith("no predictions in the response")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

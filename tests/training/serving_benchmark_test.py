# SPDX-License-Identifier: Apache-2.0
"""The load test, against a server on this machine that runs an exported model."""

import json

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")

from tests.export.small_classifier import make_classifier  # noqa: E402
from tests.training.rest_server import serving  # noqa: E402
from training import serving_benchmark  # noqa: E402
from training.benchmarks.serving_load import is_as_expected, make_result  # noqa: E402
from training.engine.config_flags import define_flags  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

TEXTS = ["the cat", "a mat?", "unbelievable words " * 9]


@pytest.fixture(scope="module")
def classifier():
    return make_classifier(class_names=["bad", "good"])


@pytest.fixture(scope="module")
def server(classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "1"
    classifier.export(folder, warm_up=False)
    with serving(tf.saved_model.load(str(folder)).signatures, "small") as (url, requests):
        yield url, requests


def config(server, **changes):
    fast = {"clients": ("1", "3"), "seconds": 0.5, "max_requests": 12, "timeout": 20.0}
    return serving_benchmark.ServingBenchmarkConfig(
        url=server[0], model="small", **{**fast, **changes}
    )


def test_closed_and_open_loops_give_numbers_and_check_answers(classifier, server, tmp_path, capsys):
    texts, expected = tmp_path / "texts.txt", tmp_path / "answers.jsonl"
    texts.write_text("\n".join(TEXTS) + "\n")
    answers = classifier.classify(TEXTS)
    answers[1]["label"] = "neither"
    expected.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    server[1].clear()
    results = serving_benchmark.run(
        config(server, input=str(texts), expected=str(expected), rows=3, rates=("40",))
    )
    assert [(result.loop, result.load) for result in results] == [
        ("closed", 1), ("closed", 3), ("open", 40.0)
    ]  # fmt: skip
    for result in results:
        assert 1 <= result.requests <= 12
        assert result.errors == 0
        assert 0 < result.p50 <= result.p99
        assert result.qps == pytest.approx(result.requests / result.seconds)
        assert result.rows == 3 * result.requests
        assert result.correct_rows == 2 * result.requests  # One of three expects another label
    # And one before, which is not counted
    assert len(server[1]) == 1 + sum(result.requests for result in results)
    assert {tuple(sorted(r["instances"])) for r in server[1]} == {tuple(sorted(TEXTS))}
    assert f"{2 * results[0].requests} of {results[0].rows}" in capsys.readouterr().out


def test_errors_are_counted_and_the_commonest_is_shown(server, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat\n" * 9 + "bad\n")
    (result,) = serving_benchmark.run(
        config(server, input=str(texts), clients=("2",), max_requests=10, seconds=20)
    )
    assert (result.requests, result.errors, result.rows) == (10, 1, 9)
    assert result.most_frequent_error == 'HTTP 400: {"error": "a bad text"}'
    assert result.correct_rows is None


def test_the_program_writes_a_table_json_and_a_picture(server, tmp_path, monkeypatch, capsys):
    from absl import flags

    flag_values = flags.FlagValues()
    define_flags(serving_benchmark.ServingBenchmarkConfig, flag_values)
    json_file, plot = tmp_path / "load.json", tmp_path / "load.png"
    flag_values(
        ["program", f"--url={server[0]}", "--model=small", "--clients=1", "--seconds=0.2",
         "--rates=20", f"--json={json_file}", f"--plot={plot}"]
    )  # fmt: skip
    monkeypatch.setattr(serving_benchmark, "read_flags", lambda kind: READ_FLAGS(kind, flag_values))
    serving_benchmark.main(["program"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:3] == ["loop", "load", "requests"]
    assert [line.split()[0] for line in lines[2:]] == ["closed", "open"]
    written = json.loads(json_file.read_text())
    assert written["config"]["clients"] == ["1"]
    assert [row["loop"] for row in written["results"]] == ["closed", "open"]
    assert plot.read_bytes().startswith(b"\x89PNG")


READ_FLAGS = serving_benchmark.read_flags


def test_what_cannot_be_measured_is_said(server, tmp_path):
    with pytest.raises(ValueError, match=r"models/other:predict does not answer: HTTP 404"):
        serving_benchmark.run(
            serving_benchmark.ServingBenchmarkConfig(url=server[0], model="other")
        )
    with pytest.raises(ValueError, match="does not answer: ConnectionRefusedError"):
        serving_benchmark.run(config(("http://127.0.0.1:9", None)))
    with pytest.raises(ValueError, match="--url is 'file:///etc/passwd', expected http"):
        serving_benchmark.run(config(("file:///etc/passwd", None)))
    with pytest.raises(ValueError, match="--clients is '1,x', expected positive numbers"):
        serving_benchmark.run(config(server, clients=("1", "x")))
    with pytest.raises(ValueError, match="--model is empty"):
        serving_benchmark.ServingBenchmarkConfig()
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "a"}\n{"text"\n')
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: not JSON"):
        serving_benchmark.run(config(server, input=str(rows)))
    rows.write_bytes(b"a\nb\xff\n")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 2: expected UTF-8, found byte 0xff"):
        serving_benchmark.run(config(server, input=str(rows)))


@pytest.mark.parametrize(
    ("prediction", "expected", "same"),
    [
        ({"label": "a", "score": 0.5004, "more": 1}, {"label": "a", "score": 0.5}, True),
        ({"label": "a", "score": 0.6}, {"label": "a", "score": 0.5}, False),
        ([0.1, 0.2], {"vector": [0.1, 0.2001]}, True),
        ([0.1], [0.1, 0.2], False),
        ("a", "b", False),
        ({"label": "a"}, {"score": 0.5}, False),
    ],
)
def test_predictions_are_compared_up_to_the_tolerance(prediction, expected, same):
    assert is_as_expected(prediction, expected, 1e-3) == same


def test_a_setting_without_answers_has_no_times():
    result = make_result("open", 5.0, [], 1.0)
    assert (result.qps, result.p50, result.p99, result.errors) == (0, 0, 0, 0)

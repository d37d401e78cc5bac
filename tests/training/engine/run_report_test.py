# SPDX-License-Identifier: Apache-2.0
"""Checks the report that a run prints when it finishes."""

import json
import re
import shlex

import pytest

from training.engine.run_report import duration, report

pytestmark = pytest.mark.backend_independent


@pytest.fixture
def results(tmp_path):
    for name in ("seed_1/model.keras", "seed_1/curves.png", "results.json", "export/1/x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return {
        "config": {"output_dir": str(tmp_path), "export": True},
        "runs": [{}],
        "summary": {"dev": {"accuracy": {"mean": 60.0, "interval_95": None}}},
        "kept": {
            "seed": 1,
            "epoch": 2,
            "epochs": 3,
            "by": "dev",
            "scores": {"dev": {"accuracy": 81.0}},
            "model": str(tmp_path / "seed_1" / "model.keras"),
        },
        "baselines": {},
        "seconds": {"training": 100.0, "scoring": 7.0},
        "by_class": {"neg": {"f1": 80.0, "rows": 40}, "pos": {"f1": 82.0, "rows": 40}},
    }


def test_best_epoch_is_compared_with_baselines(results, tmp_path):
    dev_baselines = {"majority": {"accuracy": 50.0}, "bag_of_words": {"accuracy": 73.5}}
    results["baselines"] = {"dev": dev_baselines}
    text = report(results, {"reading": 1.0}, "texts.txt")
    assert "Best model: epoch 2 of 3, selected on dev" in text
    assert "on dev: accuracy 81.00, bag of words 73.50 (+7.50)." in text
    assert "60.00" not in text  # The accuracy of the last epoch
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("dev (validation)  "))
    assert [line.split() for line in lines[first : first + 4]] == [
        ["dev", "(validation)", "accuracy"],
        ["this", "model", "81.00"],
        ["majority", "50.00"],
        ["bag", "of", "words", "73.50"],
    ]
    assert re.search(r"^pos +82\.00 +40$", text, re.M)
    assert "Time: 1 min 48 s. The slowest part was training: 1 min 40 s" in text
    for name in ("seed_1/model.keras", "seed_1/curves.png", "results.json", "export/1"):
        assert str(tmp_path / name) in text
    model = f"--model={tmp_path / 'export/1'}"
    assert text.endswith(
        f"Next: python -m training.serve {model}\n"
        "      curl http://127.0.0.1:8501/v1/models/model:predict -d "
        """'{"instances": ["A gripping film, and a moving one."]}'\n"""
        f"  or: python -m training.predict {model} --input=texts.txt"
    )


def test_next_commands_can_be_pasted(results, tmp_path):
    directory = tmp_path / "mrpc 1x32x1, 10 steps"
    (directory / "export" / "1").mkdir(parents=True)
    results["config"]["output_dir"] = str(directory)
    results["kept"]["model"] = str(directory / "seed_1" / "model.keras")
    fields = ("question", "context")
    results["example"] = {"question": "Qui l'a écrit ?"}
    commands = report(results, {}, "my texts.txt", fields).rpartition("Next: ")[2]
    serve, curl, predict = map(shlex.split, commands.splitlines())
    model = f"--model={directory / 'export/1'}"
    assert serve[2:] == ["training.serve", model]
    assert "écrit" in curl[-1]
    (instance,) = json.loads(curl[-1])["instances"]
    assert set(instance) == set(fields)
    assert instance["question"] == "Qui l'a écrit ?"
    assert predict[1:] == ["python", "-m", "training.predict", model, "--input=my texts.txt"]


def test_report_shows_the_test_set(results):
    results["kept"]["scores"]["test"] = {"accuracy": 75.0}
    results["baselines"] = {
        name: {"bag_of_words": {"accuracy": accuracy}, "majority": {"accuracy": 50.0}}
        for name, accuracy in (("dev", 70.0), ("test", 75.0))
    }
    text = report(results)
    assert "selected on dev (accuracy 81.00)" in text
    assert "dev (validation)" not in text
    assert re.search(r"^test +accuracy\nthis model +75\.00\nbag of words +75\.00$", text, re.M)
    assert "test, by class" in text
    assert "not beat the best baseline on test: accuracy 75.00, bag of words 75.00 (+0.00)" in text


def test_multiple_seeds_have_mean_and_interval(results):
    results["runs"] = [{}, {}]
    results["summary"]["dev"]["accuracy"]["interval_95"] = 1.5
    text = report(results)
    assert "Best model: seed 1, epoch 2 of 3" in text
    assert "  dev accuracy 60.00 ± 1.50" in text
    assert "Next" not in text


def test_duration_is_readable():
    assert [duration(s) for s in (4.21, 42, 200, 7500)] == [
        "4.2 s",
        "42 s",
        "3 min 20 s",
        "2 h 05 min",
    ]

# SPDX-License-Identifier: Apache-2.0
"""Multiple models for `--model` form an ensemble, in each command with this flag."""

import json

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from tests.small_tasks import make_text_task  # noqa: E402
from training import evaluate, export, predict  # noqa: E402
from training.engine.saved_models import load_task, model_files  # noqa: E402

TEXTS = ["a", "b b", "a b"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run's directory with two seeds."""
    directory = tmp_path_factory.mktemp("run")
    for seed in (1, 2):
        task = make_text_task("TextClassifier", 2)
        task.class_names = ("no", "yes")
        kernel = task.head.dense.kernel
        kernel.assign(np.random.default_rng(seed).normal(0, 1, kernel.shape))
        (directory / f"seed_{seed}").mkdir()
        task.save(directory / f"seed_{seed}" / "model.keras")
    return directory


def test_model_files_expands_lists_and_patterns(run, tmp_path):
    files = [run / f"seed_{seed}" / "model.keras" for seed in (1, 2)]
    assert model_files(str(files[0])) == files[:1]
    assert model_files(f"{files[0]},{files[1]}") == files
    assert model_files(str(run / "seed_*" / "model.keras")) == files
    comma = tmp_path / "a,b*.keras"
    comma.touch()
    assert model_files(str(comma)) == [comma]
    with pytest.raises(FileNotFoundError, match=r"none_\*\.keras must match"):
        model_files(str(run / "none_*.keras"))
    with pytest.raises(FileNotFoundError, match=r"b\.keras, which does not exist.*Did you mean"):
        model_files(f"{files[0]},{run}/b.keras")


def test_commands_accept_multiple_models(run, tmp_path):
    model = str(run / "seed_*" / "model.keras")
    ensemble = load_task(model_files(model))
    expected = ensemble.classify(TEXTS)

    data = tmp_path / "dev.tsv"
    labels = ["no", "yes", "no"]
    rows = [f"{text}\t{label}" for text, label in zip(TEXTS, labels, strict=True)]
    data.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    config = evaluate.EvaluateConfig(data_file=str(data), model=model)
    scores = evaluate.evaluate(config)
    is_correct = [answer["label"] == label for answer, label in zip(expected, labels, strict=True)]
    assert scores["ensemble"]["accuracy"] == pytest.approx(100 * np.mean(is_correct))
    member_scores = [scores["models"][str(file)]["accuracy"] for file in model_files(model)]
    for file, score in zip(model_files(model), member_scores, strict=True):
        single = evaluate.EvaluateConfig(data_file=str(data), model=str(file))
        assert evaluate.evaluate(single)["accuracy"] == score
    assert scores["mean"]["accuracy"] == pytest.approx(np.mean(member_scores))

    exported = str(tmp_path / "export" / "1")
    assert "TextClassifierEnsemble" in export.export(
        export.ExportConfig(model=model, output=exported)
    )
    for path in (model, exported):
        output = tmp_path / "answers.jsonl"
        predict.predict(predict.PredictConfig(path, str(data), str(output), overwrite=True))
        answers = [json.loads(line) for line in output.read_text().splitlines()]
        assert [answer["label"] for answer in answers] == [row["label"] for row in expected]
        scores_received = [answer["score"] for answer in answers]
        assert scores_received == pytest.approx([row["score"] for row in expected], rel=1e-5)
    with pytest.raises(ValueError, match=r"must be the \.keras.* is an exported SavedModel"):
        predict.load_model(f"{exported},{exported}")


def test_incompatible_models_raise(run, tmp_path):
    first = run / "seed_1" / "model.keras"
    make_text_task("TextClassifier", 3).save(tmp_path / "other.keras")
    with pytest.raises(ValueError, match=r"and 3 in members\[1\] .*members\[1\] .*other\.keras"):
        load_task([first, tmp_path / "other.keras"])
    config = export.ExportConfig(
        model=f"{first},{first}", output=str(tmp_path / "x"), export_format="hugging_face"
    )
    with pytest.raises(
        ValueError, match="--model must be a single model for the format hugging_face"
    ):
        export.export(config)

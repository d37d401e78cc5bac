# SPDX-License-Identifier: Apache-2.0

import json

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from training.classifier_plots import calibration  # noqa: E402
from training.evaluate import EvaluateConfig, evaluate  # noqa: E402

REVIEWS = "text\tlabel\na\tgood\nb\tbad\nc\tgood\nd\tgood\n"
ANSWERS = [("good", 0.9), ("bad", 0.8), ("bad", 0.6), ("good", 0.7)]


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.tsv"
    path.write_text(REVIEWS)
    return str(path)


def write_answers(path, rows):
    if path.suffix == ".tsv":
        lines = ["label\tscore", *(f"{label}\t{score}" for label, score in rows)]
    else:
        lines = [json.dumps({"label": label, "score": score}) for label, score in rows]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("name", ["answers.tsv", "answers.jsonl"])
def test_answers_to_texts_with_pictures(reviews, tmp_path, name):
    answers = write_answers(tmp_path / name, ANSWERS)
    plots = tmp_path / "plots"
    config = EvaluateConfig(data_file=reviews, answers=answers, plots_dir=str(plots))
    assert evaluate(config)["accuracy"] == 75.0
    for picture in ("confusion.png", "calibration.png"):
        assert (plots / picture).stat().st_size > 1000


def test_answers_that_do_not_belong_to_the_file(reviews, tmp_path):
    answers = write_answers(tmp_path / "answers.tsv", ANSWERS[:3])
    with pytest.raises(ValueError, match=r"answers\.tsv has 3 answers for 4 rows"):
        evaluate(EvaluateConfig(data_file=reviews, answers=answers))
    answers = write_answers(tmp_path / "answers.tsv", [("great", 1.0), *ANSWERS[1:]])
    with pytest.raises(ValueError, match="answers 'great'; the labels are bad, good"):
        evaluate(EvaluateConfig(data_file=reviews, answers=answers))


def test_squad(tmp_path):
    question = {
        "id": "1",
        "question": "Who?",
        "answers": [{"text": "Goethe", "answer_start": 3}],
    }
    paragraph = {"context": "By Goethe.", "qas": [question]}
    data = {"version": "1.1", "data": [{"title": "t", "paragraphs": [paragraph]}]}
    (tmp_path / "dev.json").write_text(json.dumps(data))
    (tmp_path / "predictions.json").write_text(json.dumps({"1": "the Goethe!"}))
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.json"), answers=str(tmp_path / "predictions.json")
    )
    assert evaluate(config)["exact_match"] == 100.0


def test_tagging(tmp_path):
    (tmp_path / "dev.conll").write_text("Ann B-PER\nin O\nParis B-LOC\n")
    (tmp_path / "answers.conll").write_text("Ann B-PER\nin O\nParis O\n")
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.conll"), answers=str(tmp_path / "answers.conll")
    )
    found = evaluate(config)
    assert found["precision"] == 100.0
    assert found["recall"] == 50.0
    (tmp_path / "answers.conll").write_text("Ann B-PER\n")
    with pytest.raises(ValueError, match="has other words than"):
        evaluate(config)


def test_choices(tmp_path):
    rows = [{"text": "a", "choices": ["b", "c"], "label": label} for label in (0, 1)]
    (tmp_path / "dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    answers = [{"answers": [{"choice": 0}, {"choice": 1}]}] * 2
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)))
    config = EvaluateConfig(
        data_file=str(tmp_path / "dev.jsonl"),
        kind="choice",
        answers=str(tmp_path / "answers.jsonl"),
    )
    assert evaluate(config) == {"accuracy": 50.0}


def test_what_is_asked_for(reviews, tmp_path):
    with pytest.raises(ValueError, match="either a model or answers"):
        evaluate(EvaluateConfig(data_file=reviews))
    with pytest.raises(FileNotFoundError, match="none is not there"):
        evaluate(EvaluateConfig(data_file=reviews, model=str(tmp_path / "none")))
    (tmp_path / "test.annotated").write_text("Ann B-PER\n")
    with pytest.raises(ValueError, match=r"what it holds, expected .* or --kind: text, squad"):
        evaluate(EvaluateConfig(data_file=str(tmp_path / "test.annotated"), answers=reviews))


def test_calibration_by_bins():
    confidence, accuracy, share = calibration([True, False, True], [0.91, 0.97, 1.0])
    assert confidence.tolist() == pytest.approx([0.96])
    assert accuracy.tolist() == pytest.approx([2 / 3])
    assert share.tolist() == [1.0]

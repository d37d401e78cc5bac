# SPDX-License-Identifier: Apache-2.0
"""Exports of one classifier side by side."""

import csv
import json

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]

pytest.importorskip("tensorflow_text")

import keras_bert  # noqa: E402
from tests.export.small_classifier import make_classifier  # noqa: E402
from training.compare_exports import CompareExportsConfig, compare  # noqa: E402

TEXTS = ["0 1 2", "3 4", "5 6 7 8 9", "a b", "c d 0 0", "1", "2 2 2", "9 8 7 6"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports")
    classifier = make_classifier(folder / "vocab.txt", class_names=["bad", "fair", "good"])
    classifier.save(folder / "model.keras")
    labels = [answer["label"] for answer in classifier.classify(TEXTS)]
    labels[0] = next(name for name in classifier.class_names if name != labels[0])
    with open(folder / "dev.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *zip(TEXTS, labels, strict=True)])
    return folder


def test_exports_are_scored_and_timed(files, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("tf2onnx")
    config = CompareExportsConfig(
        model=str(files / "model.keras"),
        data_file=str(files / "dev.csv"),
        exports=("tf_saved_model:float32", "onnx:float32", "onnx:int8"),
        batches=("1", "3", "2x6"),
        rounds=1,
        seconds=0.0,
        output_dir=str(files / "out"),
    )
    rows = compare(config)
    assert [row.name for row in rows] == list(config.exports)
    for row in rows:
        assert set(row.milliseconds) == {"1", "3", "2x6"}
        assert min(row.milliseconds.values()) > 0
        assert row.megabytes > 0
    saved_model, onnx, int8 = rows
    assert saved_model.speed == {"1": 1.0, "3": 1.0, "2x6": 1.0}
    assert saved_model.scores["accuracy"] == pytest.approx(100 * 7 / 8)
    for exact in (saved_model, onnx):
        assert exact.changed == 0
        assert exact.largest_move < 1e-5
    assert 1e-5 < int8.largest_move < 0.2
    assert onnx.speed["1"] == saved_model.milliseconds["1"] / onnx.milliseconds["1"]
    table = capsys.readouterr().out
    assert "| times as fast: 1 row / 3 rows / 2 x 6 tokens | accuracy |" in table
    written = json.loads((files / "out" / "compare_exports.json").read_text())
    assert [row["name"] for row in written["exports"]] == list(config.exports)
    # Once more, exports are not written again
    model = files / "out" / "onnx_int8" / "1.onnx"
    before = model.stat().st_mtime_ns
    compare(config)
    assert model.stat().st_mtime_ns == before


def test_a_regression(files, tmp_path):
    regression = keras_bert.TextClassifier(
        keras_bert.load_model(files / "model.keras").backbone, 1, make_preprocessor(files)
    )
    regression.save(tmp_path / "model.keras")
    scores = np.linspace(0, 1, len(TEXTS))
    with open(tmp_path / "dev.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *zip(TEXTS, scores, strict=True)])
    (row,) = compare(
        CompareExportsConfig(
            model=str(tmp_path / "model.keras"),
            data_file=str(tmp_path / "dev.csv"),
            exports=("tf_saved_model:float32",),
            batches=("2",),
            rounds=1,
            seconds=0.0,
            output_dir=str(tmp_path),
        )
    )
    assert row.changed is None
    assert row.largest_move < 1e-5
    assert set(row.scores) == {"pearson", "spearman", "mse"}


def make_preprocessor(files):
    return keras_bert.load_model(files / "model.keras").preprocessor


def test_what_is_asked_for(files, tmp_path):
    with pytest.raises(ValueError, match=r"--exports has 'onnx:bfloat16', expected some of tf_sav"):
        CompareExportsConfig(exports=("onnx:bfloat16",))
    with pytest.raises(ValueError, match="--batches has '8x', expected rows, or rows x tokens"):
        CompareExportsConfig(batches=("8x",))
    with pytest.raises(FileNotFoundError, match="--model=none does not exist"):
        compare(CompareExportsConfig(model="none"))
    model, data = str(files / "model.keras"), str(files / "dev.csv")
    with pytest.raises(FileNotFoundError, match="openvino:int8 needs texts like those"):
        compare(CompareExportsConfig(model=model, data_file=data))

# SPDX-License-Identifier: Apache-2.0
"""An export describes its task and returns the task's predictions."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow_text")
pytest.importorskip("uvicorn")

from keras_bert.export import ServedModel
from tests.export import served_tasks
from tests.export.small_classifier import make_classifier
from tests.training.serving.model_server import check_task_matches_export

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

TASK_FILE = Path("assets.extra", "task.json")
# Hangul as one and as multiple code points, a multi-code-point emoji, marks, right-to-left text
TEXT = "한\u1112\u1161\u11ab the 👩\u200d💻 cat e\u0301 ﷺ mat \u202eשלום 🏔"
ROWS = {
    "pairs": [
        {"text": "the cat sat", "text_pair": "sat on"},
        {"text": "", "text_pair": "a mat"},
        {"text": TEXT, "text_pair": TEXT},
    ],
    "regression": [{"text": "the cat sat"}, {"text": ""}, {"text": TEXT}],
    "tagger": [
        *({"text": "the cat sat, unable."}, {"text": ["a", "mat"]}, {"text": ""}),
        *({"text": ["the"]}, {"text": "\x00 \u200b"}),
        {"text": "naïve 🏔 café, ÉTÉ? 中 able " * 9},  # windows
        {"text": TEXT},
    ],
    "answerer": [
        {"question": "the cat", "context": "sat on the mat"},
        {"question": "the cat", "context": TEXT},
    ],
    "chooser": [
        {"text": "the cat", "choices": ["a", "mat"]},
        {"text": "a", "choices": ["b"]},
        {"text": TEXT, "choices": ["", TEXT]},
    ],
    "embedder": [{"text": "the cat sat"}, {"text": TEXT}],
    "sparse": [{"text": "the cat sat"}, {"text": ""}, {"text": TEXT}],
    "late": [{"text": "the cat, sat"}, {"text": ""}, {"text": TEXT}],
}


def to_comparable(prediction):
    """Returns a prediction with approximate numbers, without the outputs that an export adds."""
    if isinstance(prediction, dict):
        # Without class names, an export has the ids as strings.
        prediction = (
            {**prediction, "label": str(prediction["label"])}
            if "label" in prediction
            else prediction
        )
        return {
            key: to_comparable(value) for key, value in prediction.items() if key != "probabilities"
        }
    if isinstance(prediction, list):
        return list(map(to_comparable, prediction))
    return pytest.approx(prediction, abs=1e-4) if isinstance(prediction, float) else prediction


def test_missing_signature_raises(tmp_path):
    tf = pytest.importorskip("tensorflow")
    tf.saved_model.save(tf.Module(), str(tmp_path))
    with pytest.raises(
        ValueError,
        match=r"must have the signature serving_default, as written by `export`. Received: \[\]",
    ):
        ServedModel(tmp_path)


@pytest.mark.parametrize("kind", ROWS)
def test_export_describes_and_matches_task(kind, tmp_path):
    task, rows = served_tasks.make_served_task(kind).task, ROWS[kind]
    task.export(tmp_path / "1", warm_up=False, pair=kind == "pairs")
    description = json.loads((tmp_path / "1" / TASK_FILE).read_text())
    assert (description["task"], description["predict_method"]) == (
        type(task).__name__,
        task.predict_method,
    )
    optional_fields = task.optional_fields if kind == "pairs" else ()
    assert description["fields"] == [*task.fields, *optional_fields]
    assert description["list_fields"] == list(task.list_fields)
    # Rows are predicted one by one because the tagger itself accepts either texts or words.
    expected = [
        to_comparable(prediction) for row in rows for prediction in task.predict_rows([row])
    ]
    served = ServedModel(tmp_path / "1")
    texts = [row for row in rows if all(isinstance(row[name], str) for name in task.fields[:1])]
    num_choices = len(rows[0].get("choices", ()))
    check_task_matches_export(
        task, served, [row for row in texts if len(row.get("choices", ())) == num_choices]
    )
    assert to_comparable(served.predict_rows([{**row, "id": 7} for row in rows])) == expected
    assert served.predict_rows([]) == []
    assert served.tokenizer.get_config() == task.preprocessor.tokenizer.get_config()
    (tmp_path / "1" / TASK_FILE).write_text('{"task": "TextClassifier"}')
    with pytest.raises(ValueError, match=r"task\.json is invalid: KeyError\('requests'\)"):
        ServedModel(tmp_path / "1")
    (tmp_path / "1" / TASK_FILE).unlink()
    with pytest.raises(
        ValueError,
        match=r"filepath must be a directory written by `export`: .*task\.json is missing",
    ):
        ServedModel(tmp_path / "1")
    if kind == "pairs":
        with pytest.raises(
            ValueError, match=r"must be strings or lists of strings, .* Received: {.*} \(row 0\)"
        ):
            served.predict_rows([{"text": ["a"], "text_pair": "b"}])
        with pytest.raises(ValueError, match=r"Row 1 must have text_pair\. Received: text"):
            served.predict_rows([rows[0], {"text": "a"}])


def test_multi_label_predictions_match_task(tmp_path):
    """Includes pairs, labels sorted by probability, and predictions without labels."""
    task = make_classifier(class_names=["a", "b", "größer"], multi_label=True)
    texts = ["the cat sat", "a mat", "", "the", "7 9", "c a t", "on the mat", "z"]
    rows = [{"text": text, "text_pair": pair} for text in texts for pair in texts[:3]]
    probabilities = [row["probabilities"] for row in task.serving_answers(rows)]
    task.thresholds = tuple(np.median(probabilities, axis=0).tolist())
    task.export(tmp_path / "1", warm_up=False, pair=True)
    served = ServedModel(tmp_path / "1")
    predictions = task.predict_rows(rows)
    assert {len(prediction) for prediction in predictions} >= {0, 1, 2}
    assert served.predict_rows(rows) == list(map(to_comparable, predictions))
    check_task_matches_export(task, served, rows[:9])

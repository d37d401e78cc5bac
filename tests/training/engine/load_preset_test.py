# SPDX-License-Identifier: Apache-2.0
"""Loads checkpoints for prediction as the task that they contain."""

import pytest

from tests.small_tasks import make_text_task
from training.engine.saved_models import is_preset, load_preset
from training.predict import load_model

pytestmark = pytest.mark.on_torch


@pytest.mark.parametrize("method", ["save_to_preset", "save_hugging_face"])
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("LateInteractionEmbedder", ()),
        ("MaskedLM", ()),
        ("MultipleChoice", ()),
        ("QuestionAnswerer", ()),
        ("SparseEmbedder", ()),
        ("TextClassifier", (2,)),
        ("TextEmbedder", ()),
        ("TokenClassifier", (3,)),
    ],
)
def test_load_preset_finds_the_task(name, arguments, method, tmp_path):
    task = make_text_task(name, *arguments)
    getattr(task, method)(tmp_path / "preset")
    assert is_preset(str(tmp_path / "preset"))
    loaded, fields = load_model(str(tmp_path / "preset"))
    assert type(loaded).__name__ == name
    assert fields.names == task.fields
    assert fields.optional == task.optional_fields
    assert loaded.predict_method == task.predict_method


def test_only_checkpoints_are_presets(tmp_path):
    task = make_text_task("TextEmbedder")
    task.save(tmp_path / "model.keras")
    task.save(tmp_path / "model", zipped=False)
    task.backbone.save_to_preset(tmp_path / "encoder")
    for name in ("model.keras", "model", "missing"):
        assert not is_preset(str(tmp_path / name))
    assert is_preset("minilm")
    assert is_preset("hf://google-bert/bert-base-uncased")
    with pytest.raises(ValueError, match="encoder has no vocabulary"):
        load_preset(str(tmp_path / "encoder"))

# SPDX-License-Identifier: Apache-2.0

import json
from pathlib import Path

import pytest

from training.engine import output_folder

pytestmark = pytest.mark.backend_independent


def test_results_are_found_from_any_folder(tmp_path, monkeypatch):
    model = tmp_path / "run" / "seed_1" / "model.keras"
    model.parent.mkdir(parents=True)
    (tmp_path / "run" / "results.json").write_text(json.dumps({"pairs": True}))
    (tmp_path / "results.json").write_text(json.dumps({"pairs": False}))
    monkeypatch.chdir(model.parent)
    for path in (model, Path("model.keras"), Path("../export/1")):
        assert output_folder.results_of(path) == {"pairs": True}
    # Another run's, and those of no run
    assert output_folder.results_file(tmp_path / "run" / "model.keras") is None
    assert output_folder.results_file(tmp_path / "copies" / "model.keras") is None


def test_models_of_pairs_need_a_second_column(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"pairs": True}))
    models = [tmp_path / "seed_1" / "model.keras", Path("elsewhere.keras")]
    with pytest.raises(ValueError, match=r"--text_pair must name the column .* trained on pairs"):
        output_folder.check_pairs(models, "")
    output_folder.check_pairs(models, "text_pair")
    output_folder.check_pairs(models[1:], "")

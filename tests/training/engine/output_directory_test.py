# SPDX-License-Identifier: Apache-2.0

import json
from pathlib import Path

import pytest

from training.engine import output_directory

pytestmark = pytest.mark.backend_independent


def test_load_results_from_any_directory(tmp_path, monkeypatch):
    model = tmp_path / "run" / "seed_1" / "model.keras"
    model.parent.mkdir(parents=True)
    (tmp_path / "run" / "results.json").write_text(json.dumps({"pairs": True}))
    (tmp_path / "results.json").write_text(json.dumps({"pairs": False}))
    monkeypatch.chdir(model.parent)
    for path in (model, Path("model.keras"), Path("../export/1")):
        assert output_directory.load_results(path) == {"pairs": True}
    # The results may also be next to the model, for example after ranking.
    assert output_directory.load_results(tmp_path / "run" / "model.keras") == {"pairs": True}
    # This model does not belong to a run.
    assert output_directory.results_file(tmp_path / "copies" / "model.keras") is None


def test_text_pair_models_require_second_column(tmp_path):
    (tmp_path / "results.json").write_text(json.dumps({"pairs": True}))
    models = [tmp_path / "seed_1" / "model.keras", Path("elsewhere.keras")]
    with pytest.raises(
        ValueError, match=r"--text_pair must be the column .* trained on text pairs"
    ):
        output_directory.check_pairs(models, "")
    output_directory.check_pairs(models, "text_pair")
    output_directory.check_pairs(models[1:], "")


def test_hidden_files_are_not_needed_to_resume(tmp_path):
    settings = {"seed": 1, "epochs": 2}

    def start(**settings):
        with output_directory.lock_output_dir(tmp_path, settings, command="finetune"):
            (tmp_path / "seed_1" / "checkpoints" / "step_000000010").mkdir(
                parents=True, exist_ok=True
            )

    start(**settings)
    for path in tmp_path.glob(".keras*"):
        path.unlink()
    start(**settings | {"seed": 2})
    (tmp_path / "predictions.tsv").write_text("from elsewhere")
    with pytest.raises(FileExistsError, match=r"Received: .*predictions\.tsv\. Choose"):
        start(**settings)
    (tmp_path / "settings.json").write_text("[")
    with pytest.raises(ValueError, match=r"settings\.json must contain a JSON object"):
        output_directory.check_same_settings(tmp_path, settings)


def test_reports_replace_only_their_own_files(tmp_path):
    for name in ("curves.png", "cat.png", "scores.md", "settings.json"):
        (tmp_path / name).touch()
    with output_directory.lock_output_dir(tmp_path, command="report", flag="report_dir"):
        pass
    (tmp_path / "report.html").touch()  # The command did not write this file.
    with (
        pytest.raises(FileExistsError, match=r"Received: .*report\.html"),
        output_directory.lock_output_dir(tmp_path, command="report", flag="report_dir"),
    ):
        pass
    names = ("null_odds.json", "predictions.json", "head_next.png", "confusion.png")
    assert all(output_directory.is_own(name, "report") for name in names)


def test_killed_command_owns_what_it_wrote(tmp_path):
    killed = output_directory.lock_output_dir(tmp_path, command="finetune")
    killed.__enter__()
    (tmp_path / "predictions.tsv").touch()
    with output_directory.lock_output_dir(tmp_path, command="finetune"):
        pass

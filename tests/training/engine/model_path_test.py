# SPDX-License-Identifier: Apache-2.0
"""Checks model paths, and the suggestions for wrong paths."""

import pytest

from training.engine.saved_models import check_model

pytestmark = pytest.mark.backend_independent


@pytest.fixture
def run(tmp_path):
    """A run's directory with three exports and two seeds, like `finetune` and `export` write it."""
    for file in (
        *(f"export/{version}/saved_model.pb" for version in (1, 2, 10)),
        *(f"seed_{seed}/model.keras" for seed in (1, 2)),
        "export/11/variables/unfinished",
    ):
        path = tmp_path / "run" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "run"


def test_check_model_returns_models(run):
    saved, exported = run / "seed_1/model.keras", run / "export/2"
    assert check_model(str(saved)) == check_model(str(saved), exported=True) == saved
    assert check_model(str(exported), exported=True) == exported


@pytest.mark.parametrize(
    ("path", "exported", "problem", "suggestion"),
    [
        ("export", True, "is a directory of exported versions", "export/10"),
        ("export/3", True, "does not exist", "export/10"),
        ("", False, "is a directory without a model", "seed_1/model.keras"),
        ("export/1", False, "is an exported SavedModel", "seed_1/model.keras"),
    ],
)
def test_error_suggests_a_model(run, path, exported, problem, suggestion):
    is_missing = problem == "does not exist"
    with pytest.raises(FileNotFoundError if is_missing else ValueError) as error:
        check_model(str(run / path), exported=exported)
    message = str(error.value)
    assert message.startswith("--model must be ")
    assert f" Received: {run / path}, which {problem}." in message
    assert message.endswith(f" Did you mean --model={run / suggestion}?")


def test_error_suggests_nothing_without_models(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"^--compare_with must be the \.keras file of a task\. Received: no --compare_with$",
    ):
        check_model("", flag="compare_with")
    (tmp_path / "a/b/c").mkdir(parents=True)
    with pytest.raises(
        ValueError,
        match=r"^--model must be the \.keras file of a task\. Received: .* without a model$",
    ):
        check_model(str(tmp_path / "a/b/c"))

# SPDX-License-Identifier: Apache-2.0

import dataclasses
import importlib
import re

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from tests.source_imports import ROOT  # noqa: E402
from training.jobs.classification import FinetuneConfig  # noqa: E402
from training.paper import recipes  # noqa: E402
from training.pretraining.config import PretrainConfig  # noqa: E402


@pytest.mark.parametrize("name", recipes.names())
def test_recipe_docstring_has_command_and_score(name):
    module = importlib.import_module(f"training.paper.recipes.{name}")
    program = re.search(rf"python -m (training[.\w]+) --recipe={name}\b", module.__doc__)
    assert importlib.util.find_spec(program[1])
    assert dataclasses.is_dataclass(recipes.load(name, object))
    # The docstring has the hardware, the time and the score, or a note that the recipe was not run.
    words = " ".join(module.__doc__.split())
    if not re.search(r"[Nn]ot run here", words):
        assert re.search(r"Time: \d+ (?:minutes|s)\b", words)
        assert re.search(r"Recorded: \d+ \w+ 20\d\d, commit [0-9a-f]{7}\.", words)
    assert "README" not in words


def test_mentioned_recipes_exist():
    # The pages in docs/extend write the recipes that they mention.
    docs = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "extend"]
    pages = [ROOT / "README.md", *docs]
    files = [*pages, *(ROOT / "training").rglob("*.py")]
    mentioned = {
        name
        for path in files
        for name in re.findall(r"--recipe=([a-z]\w+)", path.read_text(encoding="utf-8"))
    }
    assert mentioned <= set(recipes.names())
    assert len(mentioned) > 10


def test_unknown_recipe_error_lists_recipes():
    with pytest.raises(ValueError, match=r"--recipe must be one of .*minilm_cola.* Received: x"):
        recipes.load("x", FinetuneConfig)


def test_recipe_for_another_command_raises():
    with pytest.raises(ValueError, match=r"must have a PretrainConfig .* a FinetuneConfig"):
        recipes.load("minilm_cola", PretrainConfig)

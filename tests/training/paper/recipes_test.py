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
def test_every_recipe_is_a_config_whose_docstring_has_its_command(name):
    module = importlib.import_module(f"training.paper.recipes.{name}")
    program = re.search(rf"python -m (training[.\w]+) --recipe={name}\b", module.__doc__)
    assert importlib.util.find_spec(program[1])
    assert dataclasses.is_dataclass(recipes.load(name, object))
    # The recipe itself states hardware, time and score, or that it was not run
    words = " ".join(module.__doc__.split())
    if not re.search(r"[Nn]ot run here", words):
        assert re.search(r"\d minutes|\d s on", words)
        assert re.search(r"Recorded: \d+ \w+ 20\d\d, commit [0-9a-f]{7}\.", words)
    assert "README" not in words


def test_a_recipe_that_a_docstring_or_a_page_names_is_there():
    # The pages on extensions write the recipes that they name.
    docs = [page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "extend"]
    pages = [ROOT / "README.md", *docs]
    files = [*pages, *(ROOT / "training").rglob("*.py")]
    named = {
        name
        for path in files
        for name in re.findall(r"--recipe=([a-z]\w+)", path.read_text(encoding="utf-8"))
    }
    assert named <= set(recipes.names())
    assert len(named) > 10


def test_an_unknown_recipe_names_those_there_are():
    with pytest.raises(ValueError, match=r"--recipe=x does not exist. Expected .*minilm_cola"):
        recipes.load("x", FinetuneConfig)


def test_a_recipe_for_another_program_is_an_error():
    with pytest.raises(ValueError, match="has a FinetuneConfig, expected a PretrainConfig"):
        recipes.load("minilm_cola", PretrainConfig)

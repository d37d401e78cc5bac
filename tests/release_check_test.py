# SPDX-License-Identifier: Apache-2.0
"""Tests that the checks before a release leave nothing out that users install."""

import tomllib

import pytest

from tests.release_check import CHECKS
from tests.source_imports import ROOT

pytestmark = pytest.mark.backend_independent


def test_each_extra_is_checked_in_an_environment_of_its_own():
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = set(pyproject["project"]["optional-dependencies"])
    # The README's second command installs what the tests need, and runs them all
    assert extras - {"test"} == set(CHECKS) - {"wheel", "readme", "suite"}


def test_commands_of_the_readme_are_run_as_written():
    assert "python -m training.quickstart" in CHECKS["readme"].commands[0]
    assert "&& nox" in CHECKS["suite"].commands[0]

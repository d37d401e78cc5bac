# SPDX-License-Identifier: Apache-2.0
"""Where a checkpoint is looked for, and what is said when nothing is found."""

import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import keras_hub
import pytest

from keras_bert import checkpoints
from keras_bert.checkpoints import CheckpointError
from keras_bert.models import Backbone
from tests.checkpoints.small_models import VOCABULARY, small_backbone

COMMIT = "0123456789abcdef0123456789abcdef01234567"

# A process of its own: both libraries read their environment when they are imported.
LOAD = """
import sys
import keras_bert
checkpoint = keras_bert.checkpoints.open_checkpoint(sys.argv[1])
backbone = keras_bert.Backbone.from_preset(sys.argv[1])
print("layers:", backbone.config.num_layers, checkpoint.format)
"""


def load_in_a_process(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LOAD, source],
        env=os.environ | environment,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


def hub_cache_with(write, root: Path) -> None:
    """A model in the layout of Hugging Face's cache, as a download leaves it."""
    model = root / "models--org--tiny"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text(COMMIT)
    write(model / "snapshots" / COMMIT)


def test_an_address_of_the_hub_is_found_in_its_cache(tmp_path):
    hub_cache_with(lambda path: checkpoints.save_hugging_face(small_backbone(), path), tmp_path)
    run = load_in_a_process("hf://org/tiny", HF_HUB_CACHE=str(tmp_path), HF_HUB_OFFLINE="1")
    assert "layers: 2 hugging_face" in run.stdout, run.stderr
    run = load_in_a_process("hf://org/other", HF_HUB_CACHE=str(tmp_path), HF_HUB_OFFLINE="1")
    assert "CheckpointError: hf://org/other could not be fetched" in run.stderr


def test_a_name_that_keras_hub_knows_is_found_in_its_cache(tmp_path):
    handle = keras_hub.src.utils.preset_utils.BUILTIN_PRESETS["bert_tiny_en_uncased"][
        "kaggle_handle"
    ]
    organisation, model, *variant = handle.removeprefix("kaggle://").split("/")
    files = tmp_path / "models" / "/".join([organisation, model, *variant])
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
    markers = files.parent / ".complete" / files.name
    for path in [path for path in files.rglob("*") if path.is_file()]:
        marker = markers / f"{path.relative_to(files)}.complete"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    run = load_in_a_process(
        "bert_tiny_en_uncased", KAGGLEHUB_CACHE=str(tmp_path), HTTPS_PROXY="http://127.0.0.1:9"
    )
    assert "layers: 3 keras_hub" in run.stdout, run.stderr


def test_a_malformed_address_is_an_error():
    with pytest.raises(CheckpointError, match=r"hf://a/b/c could not be fetched"):
        Backbone.from_preset("hf://a/b/c")


def test_the_downloads_name_no_pickle():
    from keras_bert.checkpoints import hub

    patterns = (*hub._SMALL_FILES, *hub._WEIGHT_FILES)
    files = ["model.safetensors", "pytorch_model.bin", "a.pt", "a.pkl", "config.json", "vocab.txt"]
    kept = huggingface_hub.utils.filter_repo_objects(files, allow_patterns=patterns)
    assert list(kept) == ["model.safetensors", "config.json", "vocab.txt"]


def test_a_folder_comes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small_backbone().save_to_preset("bert_tiny_en_uncased")
    assert Backbone.from_preset("bert_tiny_en_uncased").config.hidden_dim == 8


def test_an_unknown_name_says_what_was_looked_for():
    with pytest.raises(CheckpointError) as raised:
        Backbone.from_preset("bert_gigantic")
    message = str(raised.value)
    assert "no checkpoint 'bert_gigantic'" in message
    assert "no folder" in message
    assert "hf://organisation/model" in message
    assert "bert_base_en_uncased" in message


def test_a_path_that_is_missing_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="it is no folder"):
        Backbone.from_preset(tmp_path / "missing")


def test_a_file_is_told_from_a_folder(tmp_path):
    small_backbone().save_to_preset(tmp_path)
    with pytest.raises(CheckpointError, match="is a file; give the folder it lies in"):
        Backbone.from_preset(tmp_path / "config.json")


def test_a_folder_without_a_checkpoint_says_what_it_holds(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(CheckpointError, match=r"looked for config\.json .* found notes\.txt"):
        Backbone.from_preset(tmp_path)


def test_a_subclass_of_the_backbone_is_what_it_loads(tmp_path):
    class Encoder(Backbone):
        pass

    small_backbone().save_to_preset(tmp_path)
    assert type(Encoder.from_preset(tmp_path)) is Encoder

# SPDX-License-Identifier: Apache-2.0
"""Saving an encoder: round trips, full disks and invalid paths."""

import errno
import resource

import keras
import numpy as np
import pytest

from keras_bert.checkpoints import save_hugging_face
from keras_bert.models import Backbone
from tests.models.small_backbone import SMALL, features, random_weights, to_numpy
from tests.small_tasks import CONFIG, TASKS, make_task


def assert_same_outputs(loaded: Backbone, backbone: Backbone) -> None:
    expected, outputs = backbone(features()), loaded(features())
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_array_equal(to_numpy(outputs[name]), to_numpy(expected[name]))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "bfloat16"])
def test_keras_file_round_trip(policy, tmp_path):
    backbone = Backbone(SMALL.replace(activation="gelu_tanh"), dtype=policy, name="encoder")
    random_weights(backbone)
    backbone.blocks[0].trainable = False
    backbone.save(tmp_path / "encoder.keras")
    loaded = keras.saving.load_model(tmp_path / "encoder.keras")
    assert type(loaded) is Backbone
    assert (loaded.name, loaded.config) == ("encoder", backbone.config)
    assert loaded.dtype_policy.name == policy
    assert {block.dtype_policy.name for block in loaded.blocks} == {policy}
    assert len(loaded.trainable_variables) == len(backbone.trainable_variables)
    assert_same_outputs(loaded, backbone)


@pytest.mark.on_torch
@pytest.mark.parametrize(
    "kind", list(TASKS)[1:5]
)  # Tasks with layers other than the encoder and a head
def test_from_config_ignores_global_dtype_policy(kind):
    task = make_task(kind, CONFIG.replace(pooling="mean", token_pooler=False))
    keras.config.set_dtype_policy("mixed_bfloat16")
    loaded = type(task).from_config(task.get_config())
    loaded.set_weights(task.get_weights())
    features = TASKS[kind]()[0][0]
    for one, other in zip(*(keras.tree.flatten(x(features)) for x in (task, loaded)), strict=True):
        np.testing.assert_array_equal(to_numpy(other), to_numpy(one))


def test_load_ignores_global_dtype_policy(tmp_path):
    Backbone(SMALL, dtype="float32").save(tmp_path / "encoder.keras")
    keras.config.set_dtype_policy("mixed_bfloat16")
    loaded = keras.saving.load_model(tmp_path / "encoder.keras")
    assert {block.dtype_policy.name for block in loaded.blocks} == {"float32"}


def save_file(backbone, directory):
    backbone.save(directory / "encoder.keras")


def save_preset(backbone, directory):
    backbone.save_to_preset(directory)


def save_on_full_disk(save, backbone, directory):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A file can grow to half the size of the weights. Then writing fails, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * backbone.count_params(), limits[1]))
    try:
        with pytest.raises((OSError, RuntimeError)) as raised:
            save(backbone, directory)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return raised.value


@pytest.mark.on_torch
@pytest.mark.parametrize("save", [save_file, save_preset])
def test_full_disk_keeps_existing_files(save, tmp_path):
    backbone = Backbone(SMALL)
    save(backbone, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    save_on_full_disk(save, backbone, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.on_torch
@pytest.mark.parametrize("save", [save_preset, save_hugging_face])
def test_full_disk_leaves_no_new_directory(save, tmp_path):
    error = save_on_full_disk(save, Backbone(SMALL), tmp_path / "new")
    assert (error.errno, error.filename) == (errno.EFBIG, str(tmp_path / "new"))
    assert not list(tmp_path.iterdir())


@pytest.mark.on_torch
def test_save_needs_directory_and_preset_creates_it(tmp_path):
    backbone = Backbone(SMALL)
    directory = tmp_path / "no" / "such"
    for save, name in ((backbone.save, "x.keras"), (backbone.save_weights, "x.weights.h5")):
        with pytest.raises(FileNotFoundError) as raised:
            save(directory / name)
        assert str(raised.value) == (
            f"{directory / name} cannot be written: the directory {directory} does not exist."
        )
    assert not (tmp_path / "no").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file is not a directory"):
        backbone.save(tmp_path / "file" / "x.keras")
    backbone.save_to_preset(directory)
    assert Backbone.from_preset(directory).config == SMALL


@pytest.mark.on_torch
def test_copies_by_config_and_clone_model_match():
    """`clone_model` copies the graph, and returns a plain functional model."""
    backbone = Backbone(SMALL, dtype="mixed_bfloat16")
    random_weights(backbone)
    copy, clone = Backbone.from_config(backbone.get_config()), keras.models.clone_model(backbone)
    assert not isinstance(clone, Backbone)
    inputs = {name: keras.ops.convert_to_tensor(value) for name, value in features().items()}
    for model in (copy, clone):
        model.set_weights(backbone.get_weights())
        np.testing.assert_array_equal(
            to_numpy(model(inputs)["sequence_output"]),
            to_numpy(backbone(inputs)["sequence_output"]),
        )


@pytest.mark.on_torch
def test_save_to_preset_over_file_raises(tmp_path):
    (tmp_path / "preset").write_text("")
    with pytest.raises(NotADirectoryError, match=r"cannot be a directory: .*preset is a file"):
        Backbone(SMALL).save_to_preset(tmp_path / "preset")
    assert (tmp_path / "preset").read_text() == ""

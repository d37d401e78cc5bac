# SPDX-License-Identifier: Apache-2.0
"""Saves and loads keras_bert presets. A failed save must not change any file."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from keras_bert import checkpoints
from keras_bert.checkpoints import CheckpointError
from keras_bert.checkpoints.weights import to_numpy
from keras_bert.models import Backbone
from tests.checkpoints.small_models import (
    VOCABULARY,
    classification_head,
    compute_outputs,
    edit_json,
    get_weights,
    pretraining_heads,
    random_inputs,
    small_backbone,
)

pytestmark = pytest.mark.on_torch


def test_backbone_round_trip(tmp_path):
    backbone = small_backbone(dropout=0.2, num_segments=3, activation="silu")
    backbone.save_to_preset(tmp_path / "new" / "preset")
    restored = Backbone.from_preset(tmp_path / "new" / "preset")
    assert restored.config == backbone.config
    for old, new in zip(get_weights(backbone), get_weights(restored), strict=True):
        np.testing.assert_array_equal(old, new)
    names = sorted(path.name for path in (tmp_path / "new" / "preset").iterdir())
    assert names == ["config.json", "model.safetensors"]


def test_task_round_trip(tmp_path):
    backbone = small_backbone()
    heads, _ = pretraining_heads(backbone)
    heads["classifier"] = classification_head(8, 2)
    checkpoints.save_preset(
        backbone,
        tmp_path,
        heads=heads,
        tokenizer={"vocabulary": VOCABULARY, "lowercase": False},
        class_names=["negative", "positive"],
        task={"class_name": "TextClassifier", "sequence_length": 128},
    )
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    assert checkpoint.format == "keras_bert"
    assert checkpoint.config == backbone.config
    assert checkpoint.vocabulary == VOCABULARY
    assert checkpoint.tokenizer["lowercase"] is False
    assert checkpoint.class_names == ("negative", "positive")
    assert checkpoint.task == {"class_name": "TextClassifier", "sequence_length": 128}
    assert set(checkpoint.heads) == {"masked_lm", "next_sentence", "classifier"}
    assert checkpoint.num_classes() == 2

    restored = Backbone(checkpoint.config)
    checkpoint.load_into(restored)
    new_heads, _ = pretraining_heads(restored)
    new_heads["classifier"] = classification_head(8, 2)
    for name, head in new_heads.items():
        assert checkpoint.load_head(name, head)
    assert checkpoint.unused() == []
    for old, new in zip(heads["masked_lm"], new_heads["masked_lm"], strict=True):
        for expected, actual in zip(get_weights(old), get_weights(new), strict=True):
            np.testing.assert_array_equal(expected, actual)
    np.testing.assert_array_equal(
        to_numpy(new_heads["classifier"].dense.kernel), to_numpy(heads["classifier"].dense.kernel)
    )


def test_half_precision_weights_are_kept(tmp_path):
    backbone = Backbone(small_backbone().config, dtype="bfloat16")
    backbone.save_to_preset(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["blocks.0.feed_forward.intermediate.kernel"].dtype == ml_dtypes.bfloat16
    restored = Backbone.from_preset(tmp_path, dtype="bfloat16")
    np.testing.assert_array_equal(
        to_numpy(restored.token_embedding_table), to_numpy(backbone.token_embedding_table)
    )


def test_lora_is_merged_into_saved_kernel(tmp_path):
    backbone = small_backbone()
    backbone.enable_lora(2)
    for block in backbone.blocks:
        block.attention.query_key_value.lora_kernel_b.assign_add(np.full((2, 24), 0.1))
    backbone.save_to_preset(tmp_path)
    inputs = random_inputs(backbone.config)
    np.testing.assert_allclose(
        compute_outputs(Backbone.from_preset(tmp_path), inputs)["pooled_output"],
        compute_outputs(backbone, inputs)["pooled_output"],
        atol=1e-6,
    )
    with pytest.raises(CheckpointError, match="Load the checkpoint before `enable_lora`"):
        checkpoints.open_checkpoint(tmp_path).load_into(backbone)


def test_save_replaces_previous_files(tmp_path):
    heads = {"classifier": classification_head(8, 2)}
    checkpoints.save_preset(
        small_backbone(),
        tmp_path,
        heads=heads,
        tokenizer={"vocabulary": VOCABULARY},
        task={"class_name": "TextClassifier"},
    )
    small_backbone(num_layers=1).save_to_preset(tmp_path)
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    assert (checkpoint.task, checkpoint.vocabulary, checkpoint.heads) == (None, None, ())
    assert Backbone.from_preset(tmp_path).config.num_layers == 1


def test_failed_save_keeps_previous_files(tmp_path):
    backbone = small_backbone()
    backbone.save_to_preset(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match="Received: 'a"):
        checkpoints.save_preset(
            small_backbone(num_layers=1), tmp_path, tokenizer={"vocabulary": ["[PAD]", "a\n"]}
        )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format_version": 3},
            "format_version must be 1 for this version of keras_bert. Received: 3",
        ),
        ({"config": {"depth": 3}}, "no field 'depth'"),
        ({"config": []}, "config must be an object"),
        (
            {"heads": {"classifier": "kernel"}},
            "heads must map each head to a list of weights. Received: {'classifier': 'kernel'}",
        ),
        ({"class_names": [1]}, r"class_names must be null or a list of strings. Received: \[1\]"),
    ],
)
def test_invalid_config_error_includes_field(changes, message, tmp_path):
    small_backbone().save_to_preset(tmp_path)
    edit_json(tmp_path / "config.json", **changes)
    with pytest.raises(CheckpointError, match=message) as raised:
        Backbone.from_preset(tmp_path)
    assert str(tmp_path / "config.json") in str(raised.value)


def test_incomplete_head_raises(tmp_path):
    checkpoints.save_preset(
        small_backbone(), tmp_path, heads={"classifier": classification_head(8, 2)}
    )
    fields = json.loads((tmp_path / "config.json").read_text())
    fields["heads"]["classifier"] = ["kernel", "scale"]
    (tmp_path / "config.json").write_text(json.dumps(fields))
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="does not have bias"):
        checkpoint.load_head("classifier", classification_head(8, 2))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "a task's settings must not be empty"),
        ({"sequence_length": "128"}, "sequence_length must be an integer above 0"),
        ({"sequence_length": 8, "overlap": 0}, "overlap must be an integer above 0. Received: 0"),
        ({"head_options": {"lstm": 3}}, "head_options must be an object with bilstm_units"),
        (
            {"head_options": {"bilstm_units": "many"}},
            r"head_options must be an object with bilstm_units and bilstm_layers \(integers "
            r"above 0\)",
        ),
    ],
)
def test_invalid_task_error_includes_field(fields, message, tmp_path):
    checkpoints.save_preset(small_backbone(), tmp_path, task={"sequence_length": 8})
    (tmp_path / "task.json").write_text(json.dumps(fields))
    with pytest.raises(CheckpointError, match=rf"task\.json: {message}"):
        Backbone.from_preset(tmp_path)


def test_truncated_vocabulary_raises(tmp_path):
    checkpoints.save_preset(small_backbone(), tmp_path, tokenizer={"vocabulary": VOCABULARY})
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY[:8]))
    with pytest.raises(
        CheckpointError, match=r"vocabulary must have 20 tokens, as when it was saved. Received: 8"
    ):
        _ = checkpoints.open_checkpoint(tmp_path).tokenizer

# SPDX-License-Identifier: Apache-2.0
"""Reads TF1 files of ALBERT and ELECTRA that contain the weights of transformers models."""

import json
import re

import numpy as np
import pytest

from keras_bert import checkpoints
from keras_bert.checkpoints import CheckpointError
from keras_bert.layers import ReplacedTokenHead
from keras_bert.models import Backbone
from keras_bert.tasks import Pretrainer
from tests.checkpoints.families_test import (
    CONFIGS,
    reference_outputs,
    save_with_transformers,
)
from tests.checkpoints.small_models import (
    compute_outputs,
    random_inputs,
    randomize,
    read_task,
    small_config,
)

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]
tf = pytest.importorskip("tensorflow")

from tests.text import small_tokenizers  # noqa: E402

# Replacements in tensor names, applied in this order after dots were replaced by slashes
ALBERT_NAMES = [
    (r"^albert/", "bert/"),
    (r"albert_layer_groups/(\d+)/albert_layers/(\d+)/", r"transformer/group_\1/inner_group_\2/"),
    (r"attention/LayerNorm", "LayerNorm"),
    (r"full_layer_layer_norm", "LayerNorm_1"),
    (r"attention/(query|key|value)", r"attention_1/self/\1"),
    (r"attention/dense", "attention_1/output/dense"),
    (r"ffn_output", "ffn_1/intermediate/output/dense"),
    (r"ffn/", "ffn_1/intermediate/dense/"),
    (r"pooler/(?!dense)", "pooler/dense/"),
    (r"^predictions/(dense|LayerNorm)", r"cls/predictions/transform/\1"),
    (r"^predictions/bias", "cls/predictions/output_bias"),
    (r"^sop_classifier/classifier/(\w+)$", r"cls/seq_relationship/output_\1s"),
    (r"output_biass", "output_bias"),
]
ELECTRA_NAMES = [
    (r"layer/(\d+)/", r"layer_\1/"),
    (r"dense_prediction", "dense_1"),
]


def save_as_tf1(model, names, prefix):
    variables = {}
    for name, tensor in model.state_dict().items():
        if "position_ids" in name or "decoder" in name or "token_type_ids" in name:
            continue
        value, name = tensor.numpy(), name.replace(".", "/")
        for pattern, replacement in names:
            name = re.sub(pattern, replacement, name)
        if "LayerNorm" in name:
            name = name.replace("/weight", "/gamma").replace("/bias", "/beta")
        elif name.endswith("embeddings/weight"):
            name = name.removesuffix("/weight")
        elif name.endswith("/weight"):
            name, value = name.removesuffix("weight") + "kernel", value.T
        variables[name] = np.ascontiguousarray(value)
    variables["global_step"] = np.int64(3)
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(variables),
        shape_and_slices=[""] * len(variables),
        tensors=list(variables.values()),
    )


def test_albert_matches_transformers(tmp_path):
    sizes = {**CONFIGS["albert"]["plain"], "num_hidden_layers": 4, "num_hidden_groups": 2}
    model = save_with_transformers(
        "albert", "plain", "ForPreTraining", tmp_path / "transformers", **sizes
    )
    directory = tmp_path / "tf1"
    directory.mkdir()
    save_as_tf1(model, ALBERT_NAMES, directory / "model.ckpt-best")
    fields = {**sizes, "hidden_act": "gelu", "inner_group_num": 1, "hidden_dropout_prob": 0}
    (directory / "albert_config.json").write_text(json.dumps({**fields, "type_vocab_size": 2}))

    task = read_task(Pretrainer, directory)
    assert task.config.activation == "gelu_tanh"
    inputs = random_inputs(task.config)
    positions = np.array([[0, 3]] * 3)
    outputs = compute_outputs(task, {**inputs, "mask_positions": positions})
    expected = reference_outputs(model, inputs)
    np.testing.assert_allclose(outputs["next_sentence_logits"], expected.sop_logits, atol=1e-5)
    expected_logits = np.take_along_axis(
        expected.prediction_logits.numpy(), positions[..., None], 1
    )
    np.testing.assert_allclose(outputs["masked_lm_logits"], expected_logits, atol=1e-5)


def test_albert_round_trip(tmp_path):
    backbone = Backbone(
        small_config(
            vocabulary_size=500,
            activation="gelu_tanh",
            layer_sharing="all",
            embedding_dim=4,
            tokenizer="sentence_piece",
        )
    )
    randomize(backbone)
    tokenizer = small_tokenizers.make("sentence_piece").get_config()
    checkpoints.save_google_tf1(backbone, tmp_path, tokenizer=tokenizer)
    assert checkpoints.open_checkpoint(tmp_path).tokenizer["model"] == tokenizer["model"]
    restored = Backbone.from_preset(tmp_path)
    assert restored.config.layer_sharing == "all"
    inputs = random_inputs(backbone.config)
    np.testing.assert_array_equal(
        compute_outputs(restored, inputs)["sequence_output"],
        compute_outputs(backbone, inputs)["sequence_output"],
    )


def test_electra_is_detected_by_its_variables(tmp_path):
    sizes = {"embedding_size": 8, "hidden_size": 128, "num_hidden_layers": 2}
    transformers_directory = tmp_path / "transformers"
    model = save_with_transformers(
        "electra", "plain", "ForPreTraining", transformers_directory, **sizes
    )
    (tmp_path / "tf1").mkdir()
    save_as_tf1(model, ELECTRA_NAMES, tmp_path / "tf1" / "electra_small")
    checkpoint = checkpoints.open_checkpoint(tmp_path / "tf1")
    assert (checkpoint.config.num_layers, checkpoint.config.num_heads) == (2, 2)
    backbone = Backbone(checkpoint.config)
    head = ReplacedTokenHead(checkpoint.config.activation)
    head.build((None, None, 128))
    checkpoint.load_into(backbone)
    assert checkpoint.load_head("replaced_token", head)
    assert checkpoint.unused() == []
    inputs = random_inputs(checkpoint.config)
    logits = compute_outputs(head, backbone(inputs)["sequence_output"])
    np.testing.assert_allclose(logits, reference_outputs(model, inputs).logits, atol=2e-5)

    checkpoints.save_google_tf1(backbone, tmp_path / "again", heads={"replaced_token": head})
    original, saved = (
        tf.train.load_checkpoint(str(prefix))
        for prefix in (tmp_path / "tf1" / "electra_small", tmp_path / "again" / "electra")
    )
    shapes = original.get_variable_to_shape_map()
    assert saved.get_variable_to_shape_map().keys() == shapes.keys() - {"global_step"}
    for name in shapes.keys() - {"global_step"}:
        np.testing.assert_array_equal(saved.get_tensor(name), original.get_tensor(name), name)
    restored = checkpoints.open_checkpoint(tmp_path / "again")
    assert (restored.config, restored.heads) == (checkpoint.config, checkpoint.heads)


def test_save_over_another_family_raises(tmp_path):
    (tmp_path / "albert_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"contain albert_config\.json \(a different family"):
        checkpoints.save_google_tf1(Backbone(small_config(activation="gelu_tanh")), tmp_path)


def test_unknown_variables_raise(tmp_path):
    tf.raw_ops.SaveV2(
        prefix=str(tmp_path / "model"),
        tensor_names=["kernel"],
        shape_and_slices=[""],
        tensors=[np.zeros(3, "float32")],
    )
    with pytest.raises(CheckpointError, match=r"neither bert_config\.json nor albert_config.json"):
        checkpoints.open_checkpoint(tmp_path)

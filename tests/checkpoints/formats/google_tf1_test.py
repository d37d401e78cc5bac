# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the original BERT's TF1 files, compared with files by TensorFlow's saver."""

import os
from pathlib import Path

import numpy as np
import pytest

from keras_bert import checkpoints
from keras_bert.checkpoints import CheckpointError
from keras_bert.checkpoints.weights import to_numpy
from keras_bert.models import Backbone
from tests.checkpoints.small_models import (
    VOCABULARY,
    classification_head,
    compute_outputs,
    get_weights,
    load_pretraining,
    pretraining_heads,
    random_inputs,
    small_backbone,
)

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]
tf = pytest.importorskip("tensorflow")

TANH = {"activation": "gelu_tanh"}


def read_variables(prefix) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def save_with_tf1_saver(variables: dict[str, np.ndarray], prefix) -> None:
    """Saves variables like the training loop of the original BERT code."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in variables.items():
            tf.compat.v1.get_variable(name, initializer=value, use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(prefix), write_meta_graph=False)


@pytest.fixture(scope="module")
def original_directory() -> Path:
    """A checkpoint that the original BERT code wrote."""
    directory = Path(os.environ.get("KERAS_BERT_DATA", "")) / "checkpoints" / "google_tf1_tiny"
    if not directory.is_dir():
        pytest.skip("KERAS_BERT_DATA has no checkpoints/google_tf1_tiny")
    return directory


def test_original_bert_checkpoint_is_read(original_directory):
    checkpoint = checkpoints.open_checkpoint(original_directory)
    assert checkpoint.format == "google_tf1"
    assert checkpoint.config.hidden_dim == 4
    assert checkpoint.config.activation == "gelu_tanh"
    assert checkpoint.config.layer_norm_epsilon == 1e-12
    assert checkpoint.vocabulary[:3] == ["[PAD]", "[UNK]", "[CLS]"]
    assert checkpoint.heads == ("masked_lm", "next_sentence")

    backbone = Backbone(checkpoint.config)
    checkpoint.load_into(backbone)
    variables = read_variables(original_directory / "bert_model.ckpt")
    scope = "bert/encoder/layer_1/"
    block = backbone.blocks[1]
    expected = [variables[f"{scope}attention/self/{p}/kernel"] for p in ("query", "key", "value")]
    np.testing.assert_array_equal(
        to_numpy(block.attention.query_key_value.kernel), np.concatenate(expected, axis=1)
    )
    np.testing.assert_array_equal(
        to_numpy(block.attention.output_bias), variables[f"{scope}attention/output/dense/bias"]
    )
    np.testing.assert_array_equal(
        to_numpy(block.feed_forward_norm.gamma), variables[f"{scope}output/LayerNorm/gamma"]
    )
    assert set(checkpoint.unused()) == {name for name in variables if name.startswith("cls/")} - {
        name for name in variables if name.endswith(("adam_m", "adam_v"))
    }


def test_preset_round_trip_is_bit_exact(original_directory, tmp_path):
    backbone, heads = load_pretraining(original_directory)
    checkpoints.save_preset(backbone, tmp_path / "preset", heads=heads)
    backbone, heads = load_pretraining(tmp_path / "preset")
    checkpoints.save_google_tf1(backbone, tmp_path / "back", heads=heads)
    _assert_same_variables(original_directory, tmp_path / "back")


@pytest.mark.on_each_backend
def test_weights_round_trip_is_bit_exact(tmp_path):
    backbone = small_backbone(**TANH, num_heads=4, num_segments=3)
    heads, _ = pretraining_heads(backbone)
    checkpoints.save_google_tf1(
        backbone, tmp_path / "one", heads=heads, tokenizer={"vocabulary": VOCABULARY}
    )
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "vocab.txt",
    ]
    restored, heads = load_pretraining(tmp_path / "one")
    assert restored.config == backbone.config
    for old, new in zip(get_weights(backbone), get_weights(restored), strict=True):
        np.testing.assert_array_equal(old, new)
    checkpoints.save_google_tf1(restored, tmp_path / "two", heads=heads)
    _assert_same_variables(tmp_path / "one", tmp_path / "two")


def test_missing_segments_are_saved_as_zeros(tmp_path):
    """The original BERT code requires this variable in a checkpoint."""
    backbone = small_backbone(**TANH, num_segments=0)
    checkpoints.save_google_tf1(backbone, tmp_path)
    restored = Backbone.from_preset(tmp_path)
    assert restored.config == backbone.config.replace(num_segments=2)
    inputs = random_inputs(restored.config)
    for name, value in compute_outputs(backbone, inputs).items():
        np.testing.assert_array_equal(compute_outputs(restored, inputs)[name], value)


def test_variable_names_and_shapes_match_original_bert(tmp_path):
    backbone = small_backbone(**TANH, num_layers=1)
    heads, _ = pretraining_heads(backbone)
    checkpoints.save_google_tf1(backbone, tmp_path, heads=heads)
    reader = tf.train.load_checkpoint(str(tmp_path / "bert_model.ckpt"))
    block = "bert/encoder/layer_0/"
    dense = {
        f"{block}attention/self/query": (8, 8),
        f"{block}attention/self/key": (8, 8),
        f"{block}attention/self/value": (8, 8),
        f"{block}attention/output/dense": (8, 8),
        f"{block}intermediate/dense": (8, 16),
        f"{block}output/dense": (16, 8),
        "bert/pooler/dense": (8, 8),
        "cls/predictions/transform/dense": (8, 8),
    }
    norms = [
        "bert/embeddings/LayerNorm",
        f"{block}attention/output/LayerNorm",
        f"{block}output/LayerNorm",
        "cls/predictions/transform/LayerNorm",
    ]
    expected = {
        "bert/embeddings/word_embeddings": (20, 8),
        "bert/embeddings/position_embeddings": (12, 8),
        "bert/embeddings/token_type_embeddings": (2, 8),
        "cls/predictions/output_bias": (20,),
        "cls/seq_relationship/output_weights": (2, 8),
        "cls/seq_relationship/output_bias": (2,),
        **{f"{name}/kernel": shape for name, shape in dense.items()},
        **{f"{name}/bias": shape[-1:] for name, shape in dense.items()},
        **{f"{name}/{kind}": (8,) for name in norms for kind in ("gamma", "beta")},
    }
    shapes = {name: tuple(s) for name, s in reader.get_variable_to_shape_map().items()}
    assert shapes == expected


def test_fine_tuned_checkpoint_with_any_prefix(tmp_path):
    backbone = small_backbone(**TANH)
    head = classification_head(8, 3)
    checkpoints.save_google_tf1(
        backbone, tmp_path, heads={"classifier": head}, tokenizer={"vocabulary": VOCABULARY}
    )
    variables = read_variables(tmp_path / "bert_model.ckpt")
    assert variables["output_weights"].shape == (3, 8)
    for path in tmp_path.glob("bert_model.ckpt.*"):
        path.unlink()
    state = {"global_step": np.int64(7), "bert/pooler/dense/bias/adam_m": np.ones(8, "float32")}
    save_with_tf1_saver({**variables, **state}, tmp_path / "model.ckpt-7")

    checkpoint = checkpoints.open_checkpoint(tmp_path)
    restored = Backbone(checkpoint.config)
    checkpoint.load_into(restored)
    loaded = classification_head(8, 3)
    assert checkpoint.num_classes() == 3
    assert checkpoint.load_head("classifier", loaded)
    assert checkpoint.unused() == []
    assert checkpoint.tokenizer["lowercase"] is True
    inputs = random_inputs(checkpoint.config)
    np.testing.assert_array_equal(
        compute_outputs(restored, inputs)["pooled_output"],
        compute_outputs(backbone, inputs)["pooled_output"],
    )
    np.testing.assert_array_equal(to_numpy(loaded.dense.kernel), to_numpy(head.dense.kernel))


def test_save_over_another_format_raises(tmp_path):
    """Readers would read the existing config.json first, with other weights or without weights."""
    checkpoints.save_preset(small_backbone(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        CheckpointError,
        match=r"must not contain config\.json \(a different format\), because it would be loaded "
        r"instead\. Received: .* Choose a",
    ):
        checkpoints.save_google_tf1(small_backbone(**TANH), tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_ambiguous_checkpoint_names_raise(tmp_path):
    checkpoints.save_google_tf1(small_backbone(**TANH), tmp_path)
    for path in list(tmp_path.glob("bert_model.ckpt.*")):
        for number in (1, 2):
            (tmp_path / path.name.replace("bert_model.ckpt", f"model.ckpt-{number}")).write_bytes(
                path.read_bytes()
            )
        path.unlink()
    with pytest.raises(CheckpointError, match=r"Received: model\.ckpt-1, model\.ckpt-2"):
        Backbone.from_preset(tmp_path)


def test_damaged_file_error_includes_name(tmp_path):
    checkpoints.save_google_tf1(small_backbone(**TANH), tmp_path)
    data = tmp_path / "bert_model.ckpt.data-00000-of-00001"
    content = data.read_bytes()
    data.write_bytes(content[:50])
    with pytest.raises(CheckpointError, match=r"ckpt\.data-… must contain .* Received: 50 bytes"):
        Backbone.from_preset(tmp_path)
    data.write_bytes(content[:-50])
    with pytest.raises(CheckpointError, match=r"bert_model\.ckpt: variable .* cannot be read"):
        Backbone.from_preset(tmp_path)
    (tmp_path / "bert_model.ckpt.index").write_bytes(b"no index")
    with pytest.raises(CheckpointError, match=r"bert_model\.ckpt\.index cannot be read"):
        Backbone.from_preset(tmp_path)


@pytest.mark.parametrize(
    ("name", "activation"), [("gelu", "gelu_tanh"), ("relu", "relu"), ("tanh", "tanh")]
)
def test_activation_names(name, activation, tmp_path):
    checkpoints.save_google_tf1(small_backbone(activation=activation), tmp_path)
    assert f'"hidden_act": "{name}"' in (tmp_path / "bert_config.json").read_text()
    assert checkpoints.open_checkpoint(tmp_path).config.activation == activation


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation": "gelu_erf"}, "bert_config.json requires activation='gelu_tanh' or"),
        ({**TANH, "layer_norm_epsilon": 1e-5}, "layer_norm_epsilon of the .* Received: 1e-05"),
        ({**TANH, "causal": True}, "causal of the .* Received: True"),
        ({"pooler": False}, "bert_config.json requires activation=.*pooler=True"),
    ],
)
def test_save_rejects_unsupported_models(changes, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        checkpoints.save_google_tf1(small_backbone(**changes), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def _assert_same_variables(expected_directory, directory):
    state = ("adam_m", "adam_v", "global_step")
    expected = read_variables(expected_directory / "bert_model.ckpt")
    expected = {name: v for name, v in expected.items() if not name.endswith(state)}
    variables = read_variables(directory / "bert_model.ckpt")
    assert variables.keys() == expected.keys()
    for name, variable in expected.items():
        assert variables[name].dtype == variable.dtype
        np.testing.assert_array_equal(variables[name], variable)

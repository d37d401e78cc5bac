# SPDX-License-Identifier: Apache-2.0
"""The TF1 release's layout, read and written, against files written by TensorFlow's own saver."""

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
    load_pretraining,
    outputs_of,
    pretraining_heads,
    random_inputs,
    small_backbone,
    weights_of,
)

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]
tf = pytest.importorskip("tensorflow")

TANH = {"activation": "gelu_tanh"}


def read_variables(prefix) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def save_with_tf1_saver(variables: dict[str, np.ndarray], prefix) -> None:
    """As the released code's training loop does it."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in variables.items():
            tf.compat.v1.get_variable(name, initializer=value, use_resource=False)
        session.run(tf.compat.v1.global_variables_initializer())
        tf.compat.v1.train.Saver().save(session, str(prefix), write_meta_graph=False)


@pytest.fixture(scope="module")
def fixture_folder() -> Path:
    """A checkpoint that the released code wrote, in the layout of the release."""
    folder = Path(os.environ.get("KERAS_BERT_DATA", "")) / "checkpoints" / "google_tf1_tiny"
    if not folder.is_dir():
        pytest.skip("KERAS_BERT_DATA does not name a folder with checkpoints/google_tf1_tiny")
    return folder


def test_a_checkpoint_of_the_released_code_is_read(fixture_folder):
    checkpoint = checkpoints.open_checkpoint(fixture_folder)
    assert checkpoint.format == "google_tf1"
    assert checkpoint.config.hidden_dim == 4
    assert checkpoint.config.activation == "gelu_tanh"
    assert checkpoint.config.layer_norm_epsilon == 1e-12
    assert checkpoint.vocabulary[:3] == ["[PAD]", "[UNK]", "[CLS]"]
    assert checkpoint.heads == ("masked_lm", "next_sentence")

    backbone = Backbone(checkpoint.config)
    checkpoint.load_into(backbone)
    variables = read_variables(fixture_folder / "bert_model.ckpt")
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


def test_preset_round_trip_is_bit_exact(fixture_folder, tmp_path):
    backbone, heads = load_pretraining(fixture_folder)
    checkpoints.save_preset(backbone, tmp_path / "ours", heads=heads)
    backbone, heads = load_pretraining(tmp_path / "ours")
    checkpoints.save_google_tf1(backbone, tmp_path / "back", heads=heads)
    _assert_same_variables(fixture_folder, tmp_path / "back")


@pytest.mark.on_each_backend
def test_weights_are_read_back_bit_by_bit(tmp_path):
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
    again, heads = load_pretraining(tmp_path / "one")
    assert again.config == backbone.config
    for old, new in zip(weights_of(backbone), weights_of(again), strict=True):
        np.testing.assert_array_equal(old, new)
    checkpoints.save_google_tf1(again, tmp_path / "two", heads=heads)
    _assert_same_variables(tmp_path / "one", tmp_path / "two")


def test_missing_segments_are_saved_as_zeros(tmp_path):
    """The released code has a variable for them, and would refuse a checkpoint without it."""
    backbone = small_backbone(**TANH, num_segments=0)
    checkpoints.save_google_tf1(backbone, tmp_path)
    again = Backbone.from_preset(tmp_path)
    assert again.config == backbone.config.replace(num_segments=2)
    inputs = random_inputs(again.config)
    for name, value in outputs_of(backbone, inputs).items():
        np.testing.assert_array_equal(outputs_of(again, inputs)[name], value)


def test_every_variable_has_the_name_and_shape_of_the_release(tmp_path):
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


def test_fine_tuned_checkpoint_has_any_prefix(tmp_path):
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
    again = Backbone(checkpoint.config)
    checkpoint.load_into(again)
    loaded = classification_head(8, 3)
    assert checkpoint.num_classes() == 3
    assert checkpoint.load_head("classifier", loaded)
    assert checkpoint.unused() == []
    assert checkpoint.tokenizer["lowercase"] is True
    inputs = random_inputs(checkpoint.config)
    np.testing.assert_array_equal(
        outputs_of(again, inputs)["pooled_output"], outputs_of(backbone, inputs)["pooled_output"]
    )
    np.testing.assert_array_equal(to_numpy(loaded.dense.kernel), to_numpy(head.dense.kernel))


def test_a_folder_of_another_format_is_refused(tmp_path):
    """Its config.json would be read first, and with it the other weights, or none."""
    checkpoints.save_preset(small_backbone(), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(
        CheckpointError, match=r"contain config\.json of another format, .* Choose a"
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


def test_damaged_files_are_named(tmp_path):
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
    ("word", "activation"), [("gelu", "gelu_tanh"), ("relu", "relu"), ("tanh", "tanh")]
)
def test_words_for_activations(word, activation, tmp_path):
    checkpoints.save_google_tf1(small_backbone(activation=activation), tmp_path)
    assert f'"hidden_act": "{word}"' in (tmp_path / "bert_config.json").read_text()
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


def _assert_same_variables(one, other):
    state = ("adam_m", "adam_v", "global_step")
    expected = read_variables(one / "bert_model.ckpt")
    expected = {name: v for name, v in expected.items() if not name.endswith(state)}
    variables = read_variables(other / "bert_model.ckpt")
    assert variables.keys() == expected.keys()
    for name, variable in expected.items():
        assert variables[name].dtype == variable.dtype
        np.testing.assert_array_equal(variables[name], variable)

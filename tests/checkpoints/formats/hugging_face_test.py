# SPDX-License-Identifier: Apache-2.0
"""Reads Hugging Face's format, compared with transformers on random weights."""

import json
import warnings
from pathlib import Path

import keras
import ml_dtypes
import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from keras_bert import checkpoints
from keras_bert.checkpoints import CheckpointError, CheckpointWarning
from keras_bert.checkpoints.weights import head_weights, to_numpy
from keras_bert.models import Backbone
from keras_bert.ops import activation_function
from keras_bert.tasks import MaskedLM, Pretrainer, TextClassifier
from keras_bert.vocabularies.vocab_txt import save_vocabulary
from tests.checkpoints import families_test
from tests.checkpoints.families_test import reference_outputs
from tests.checkpoints.small_models import (
    VOCABULARY,
    classification_head,
    compute_outputs,
    edit_json,
    get_weights,
    random_inputs,
)

# Readers and writers do the same on all backends.
pytestmark = pytest.mark.on_torch

SIZES = {**families_test.SIZES, "num_hidden_layers": 2}


def save_with_transformers(cls: str, directory: Path, **changes):
    """Saves and returns a transformers model with only random weights."""
    ending = cls.removeprefix("Bert")
    fields = {"num_hidden_layers": 2, **changes}
    return families_test.save_with_transformers("bert", "plain", ending, directory, **fields)


def rewrite_tensors(directory: Path, change) -> dict[str, np.ndarray]:
    """Replaces the tensors in a directory by the name and tensor that `change` returns."""
    path = directory / "model.safetensors"
    tensors = dict(change(name, tensor) for name, tensor in load_file(path).items())
    save_file(tensors, path)
    return tensors


def test_config_fields_are_read(tmp_path):
    fields = {"hidden_act": "relu", "num_attention_heads": 4, "type_vocab_size": 3}
    fields |= {"hidden_dropout_prob": 0.25, "attention_probs_dropout_prob": 0.5}
    save_with_transformers("BertModel", tmp_path, **fields, classifier_dropout=0.3)
    edit_json(tmp_path / "config.json", initializer_range=0.03, pad_token_id=4)
    config = checkpoints.open_checkpoint(tmp_path).config
    assert config.activation == "relu"
    assert (config.dropout, config.attention_dropout) == (0.25, 0.5)
    assert config.classifier_dropout == 0.3
    assert (config.num_heads, config.num_segments) == (4, 3)
    assert (config.initializer_range, config.pad_token_id) == (0.03, 4)


@pytest.mark.parametrize(
    ("name", "activation"),
    [
        ("gelu", "gelu_erf"),
        ("gelu_python", "gelu_erf"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("gelu_fast", "gelu_tanh"),
        ("gelu_accurate", "gelu_tanh"),
        ("gelu_python_tanh", "gelu_tanh"),
        ("relu", "relu"),
        ("silu", "silu"),
        ("swish", "silu"),
        ("tanh", "tanh"),
    ],
)
def test_activation_names_match_transformers(name, activation, tmp_path):
    config = transformers.BertConfig(**SIZES, hidden_act=name)
    config.save_pretrained(tmp_path)
    assert checkpoints.open_checkpoint(tmp_path).config.activation == activation
    x = np.linspace(-4, 4, 50, dtype="float32")
    outputs = keras.ops.convert_to_numpy(activation_function(activation)(keras.ops.array(x)))
    expected = transformers.activations.ACT2FN[name](torch.tensor(x)).numpy()
    np.testing.assert_allclose(outputs, expected, atol=2e-6)


def test_multi_label_head_round_trip(tmp_path):
    """With one label, the head is neither a regression nor a binary classification."""
    for names in (["a", "b", "c"], ["a"]):
        source, saved = tmp_path / f"source_{len(names)}", tmp_path / f"saved_{len(names)}"
        model = save_with_transformers(
            "BertForSequenceClassification",
            source,
            id2label=dict(enumerate(names)),
            problem_type="multi_label_classification",
        )
        save_vocabulary(VOCABULARY, source / "vocab.txt")
        task = TextClassifier.from_preset(source)
        assert (task.multi_label, task.thresholds) == (True, (0.5,) * len(names))
        inputs = random_inputs(task.config)
        logits = reference_outputs(model, inputs).logits
        np.testing.assert_allclose(compute_outputs(task, inputs), logits, atol=1e-5)
        task.thresholds = (0.25,) * len(names)
        task.save_hugging_face(saved)
        reloaded = transformers.BertForSequenceClassification.from_pretrained(saved).eval()
        assert reloaded.config.problem_type == "multi_label_classification"
        np.testing.assert_allclose(reference_outputs(reloaded, inputs).logits, logits, atol=1e-5)
        loaded = TextClassifier.from_preset(saved)
        assert (loaded.class_names, loaded.thresholds) == (tuple(names), task.thresholds)
    edit_json(saved / "config.json", keras_bert={"thresholds": [2]})
    with pytest.raises(
        CheckpointError,
        match=r"config\.json: keras_bert\.thresholds must be a list of numbers from 0 to 1. "
        r"Received: \[2\]",
    ):
        TextClassifier.from_preset(saved)
    with pytest.warns(
        CheckpointWarning,
        match="for 3 labels instead of 2 classes. The classifier head is initialized randomly",
    ):
        assert not TextClassifier.from_preset(tmp_path / "source_3", num_classes=2).multi_label


@pytest.mark.on_tensorflow
def test_cross_encoder_has_two_classes_or_a_score(tmp_path):
    model = save_with_transformers("BertForSequenceClassification", tmp_path, num_labels=1)
    save_vocabulary(VOCABULARY, tmp_path / "vocab.txt")
    task = TextClassifier.from_preset(tmp_path)
    inputs = random_inputs(task.config)
    logits = reference_outputs(model, inputs).logits
    probabilities = keras.ops.softmax(task(inputs))[:, 1:]
    np.testing.assert_allclose(probabilities, logits.sigmoid(), atol=1e-5)
    assert not TextClassifier.from_preset(tmp_path, load_weights=False, num_classes=2).is_regression
    score = TextClassifier.from_preset(tmp_path, num_classes=1)
    np.testing.assert_allclose(compute_outputs(score, inputs), logits, atol=1e-5)
    edit_json(tmp_path / "config.json", problem_type="regression")
    assert TextClassifier.from_preset(tmp_path).is_regression


def test_token_classifier_has_no_text_classifier_head(tmp_path):
    save_with_transformers("BertForTokenClassification", tmp_path, num_labels=8)
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    assert checkpoint.heads == ("token_classifier",)
    with pytest.warns(
        CheckpointWarning, match=r"has no classifier head.*initialized randomly: bias, kernel"
    ):
        assert not checkpoint.load_head("classifier", classification_head(8, 8))
    (tmp_path / "model_head.pkl").write_bytes(b"")
    (tmp_path / "config_setfit.json").write_text('{"labels": ["no", "yes"]}')
    with pytest.warns(CheckpointWarning, match=r"model_head.pkl has SetFit's .* \['no', 'yes'\]"):
        checkpoint.load_head("classifier", classification_head(8, 8))


def test_missing_pooler_warns_and_is_unchanged(tmp_path):
    save_with_transformers("BertForMaskedLM", tmp_path)
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    backbone = Backbone(checkpoint.config)
    before = get_weights(backbone.pooler)
    with pytest.warns(CheckpointWarning, match=r"it is initialized.*pooler\.dense\.kernel"):
        checkpoint.load_into(backbone)
    np.testing.assert_array_equal(get_weights(backbone.pooler)[0], before[0])


@pytest.mark.on_each_backend
def test_masked_lm_ignores_missing_pooler(tmp_path):
    model = save_with_transformers("BertForMaskedLM", tmp_path)
    masked_lm = MaskedLM.from_preset(tmp_path)
    inputs = random_inputs(masked_lm.config)
    positions = np.tile(np.arange(7), (3, 1))
    logits = compute_outputs(masked_lm, {**inputs, "mask_positions": positions})
    np.testing.assert_allclose(logits, reference_outputs(model, inputs).logits, atol=1e-5)
    with pytest.warns(CheckpointWarning) as recorded:
        pretrainer = Pretrainer.from_preset(tmp_path)
    assert "has no pooler; it is initialized randomly" in str(recorded[0].message)
    assert get_weights(pretrainer.backbone.pooler)[0].std() > 0.01


def test_unused_weights_are_reported_by_name(tmp_path):
    save_with_transformers("BertForNextSentencePrediction", tmp_path)
    expected = r"unused weights: cls\.seq_relationship\.bias, cls\.seq_relationship\.weight\.$"
    with pytest.warns(CheckpointWarning, match=expected):
        Backbone.from_preset(tmp_path)


def test_missing_weights_raise_without_loading(tmp_path):
    save_with_transformers("BertModel", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["encoder.layer.1.attention.self.key.bias"], tensors["embeddings.LayerNorm.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    backbone = Backbone(checkpoint.config)
    before = get_weights(backbone)
    with pytest.raises(CheckpointError) as raised:
        checkpoint.load_into(backbone)
    assert str(tmp_path) in str(raised.value)
    assert "lacks 2 of the 39 encoder tensors" in str(raised.value)
    assert "encoder.layer.1.attention.self.key.bias" in str(raised.value)
    assert "embeddings.LayerNorm.weight" in str(raised.value)
    for old, new in zip(before, get_weights(backbone), strict=True):
        np.testing.assert_array_equal(old, new)


def test_shape_error_includes_tensor_and_file(tmp_path):
    save_with_transformers("BertForPreTraining", tmp_path)
    edit_json(tmp_path / "config.json", intermediate_size=20)
    with pytest.raises(CheckpointError) as raised:
        Backbone.from_preset(tmp_path)
    assert str(raised.value) == (
        f"{tmp_path / 'model.safetensors'}: tensor "
        "'bert.encoder.layer.0.intermediate.dense.weight' must have shape "
        "(20, 8). Received: (16, 8)"
    )


@pytest.mark.parametrize(
    "rename",
    [
        pytest.param(lambda name: name.removeprefix("bert."), id="no_prefix"),
        pytest.param(
            lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ),
            id="gamma_and_beta",
        ),
    ],
)
def test_tensor_name_variants_are_read(rename, tmp_path):
    save_with_transformers("BertForPreTraining", tmp_path)
    expected = get_weights(_load_quietly(tmp_path))
    rewrite_tensors(tmp_path, lambda name, tensor: (rename(name), tensor))
    for old, new in zip(expected, get_weights(_load_quietly(tmp_path)), strict=True):
        np.testing.assert_array_equal(old, new)


def test_position_ids_and_decoder_are_ignored(tmp_path):
    save_with_transformers("BertForMaskedLM", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["bert.embeddings.position_ids"] = np.arange(12)[None]
    tensors["cls.predictions.decoder.weight"] = tensors[
        "bert.embeddings.word_embeddings.weight"
    ].copy()
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    save_file(tensors, tmp_path / "model.safetensors")
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    task = MaskedLM(Backbone(checkpoint.config))
    with pytest.warns(CheckpointWarning, match="no pooler"):
        checkpoint.load_into(task.backbone)
    assert checkpoint.load_head("masked_lm", task.heads["masked_lm"])
    bias = head_weights(task.heads["masked_lm"])["output_bias"]
    np.testing.assert_array_equal(to_numpy(bias), tensors["cls.predictions.decoder.bias"])
    assert checkpoint.unused() == []


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_tensors_are_read(dtype, tmp_path):
    save_with_transformers("BertModel", tmp_path)
    tensors = rewrite_tensors(tmp_path, lambda name, tensor: (name, tensor.astype(dtype)))
    backbone = Backbone.from_preset(tmp_path)
    np.testing.assert_array_equal(
        to_numpy(backbone.token_embedding_table),
        tensors["embeddings.word_embeddings.weight"].astype("float32"),
    )
    kernel = to_numpy(backbone.blocks[1].attention.query_key_value.kernel)
    value = tensors["encoder.layer.1.attention.self.value.weight"].astype("float32")
    np.testing.assert_array_equal(kernel[:, 16:], value.T)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_non_finite_weights_raise(value, tmp_path):
    save_with_transformers("BertModel", tmp_path)

    def add_values(name, tensor):
        if name == "encoder.layer.1.output.dense.weight":
            tensor[3, 4:6] = value
        return name, tensor

    rewrite_tensors(tmp_path, add_values)
    expected = (
        r"model\.safetensors: tensor 'encoder\.layer\.1\.output\.dense\.weight' must only have "
        r"finite values\. Received: 2 infinite or NaN values, "
        rf"the first is {value} at \[3, 4\]"
    )
    with pytest.raises(CheckpointError, match=expected):
        Backbone.from_preset(tmp_path)


def test_huge_config_size_raises_before_allocation(tmp_path):
    save_with_transformers("BertModel", tmp_path)
    edit_json(tmp_path / "config.json", hidden_size=10**9)
    with pytest.raises(
        CheckpointError, match=r"must have shape \(20, 1000000000\). Received: \(20, 8\)"
    ):
        Backbone.from_preset(tmp_path)


def test_small_vocabulary_warns(tmp_path):
    save_with_transformers("BertModel", tmp_path)
    save_vocabulary(VOCABULARY[:10], tmp_path / "vocab.txt")
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    with pytest.warns(CheckpointWarning, match="10 tokens in its vocabulary but 20 embeddings"):
        assert checkpoint.vocabulary == VOCABULARY[:10]


def test_shards_are_read(tmp_path):
    model = save_with_transformers("BertModel", tmp_path)
    weights = get_weights(Backbone.from_preset(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="2KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert not (tmp_path / "model.safetensors").exists()
    for expected, actual in zip(weights, get_weights(Backbone.from_preset(tmp_path)), strict=True):
        np.testing.assert_array_equal(expected, actual)


@pytest.mark.parametrize(
    ("shard", "message"),
    [
        *(
            (path, "must only contain names of")
            for path in ("../secret.safetensors", "/etc/passwd")
        ),
        *(
            (path, "must only contain names of")
            for path in ("a/b.safetensors", "pytorch_model.bin")
        ),
        ("gone.safetensors", "gone.safetensors"),
    ],
)
def test_invalid_shard_error_includes_name(shard, message, tmp_path):
    transformers.BertConfig(**SIZES).save_pretrained(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"pooler.dense.bias": shard}}))
    with pytest.raises(CheckpointError, match=message) as raised:
        Backbone.from_preset(tmp_path)
    assert shard in str(raised.value)


def test_index_of_missing_tensor_raises(tmp_path):
    model = save_with_transformers("BertModel", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="2KB")
    index = tmp_path / "model.safetensors.index.json"
    shards = json.loads(index.read_text())["weight_map"]
    shards["pooler.extra"] = shards["pooler.dense.bias"]
    index.write_text(json.dumps({"weight_map": shards}))
    expected = rf"index\.json: .* 'pooler\.extra' for {shards['pooler.extra']}$"
    with pytest.raises(CheckpointError, match=expected):
        Backbone.from_preset(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "tf_model.h5"])
def test_pickle_files_are_not_opened(name, tmp_path):
    transformers.BertConfig(**SIZES).save_pretrained(tmp_path)
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    with pytest.raises(CheckpointError, match=r"has neither model\.safetensors") as raised:
        Backbone.from_preset(tmp_path)
    assert f"Found {name}" in str(raised.value)
    assert "save_pretrained" in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"position_embedding_type": "relative_key"},
            "position_embedding_type must be 'absolute' or absent",
        ),
        ({"model_type": "t5"}, "model_type must be 'bert' or 'roberta' or .* Received: 't5'"),
        ({"pruned_heads": {"0": [1]}}, r"pruned_heads must be \{\} or absent\. Received: "),
        ({"hidden_act": "mish"}, "hidden_act must be one of gelu, "),
        ({"hidden_size": None}, "the fields hidden_size are missing"),
        ({"num_attention_heads": 3}, r"num_heads must divide hidden_dim \(8\)\. Received: 3"),
        (
            {"id2label": ["a", "b"]},
            r"id2label must have a name for each class .* Received: \['a', 'b'\]",
        ),
    ],
)
def test_unsupported_value_error_includes_field(changes, message, tmp_path):
    save_with_transformers("BertModel", tmp_path)
    edit_json(tmp_path / "config.json", **changes)
    with pytest.raises(CheckpointError, match=message) as raised:
        Backbone.from_preset(tmp_path)
    assert str(tmp_path / "config.json") in str(raised.value)


@pytest.mark.parametrize("text", ["{", "[]", "\xff", "[" * 100_000])
def test_invalid_json_error_includes_file(text, tmp_path):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"config\.json: the file must"):
        checkpoints.open_checkpoint(tmp_path)


def test_config_without_model_type_is_bert(tmp_path):
    save_with_transformers("BertModel", tmp_path)
    edit_json(tmp_path / "config.json", model_type=None, architectures=None)
    Backbone.from_preset(tmp_path)


def _load_quietly(directory) -> Backbone:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        return Backbone.from_preset(directory)

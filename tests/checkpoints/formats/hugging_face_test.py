# SPDX-License-Identifier: Apache-2.0
"""Reading Hugging Face's layout, against the transformers library on random weights."""

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
    edit_json,
    outputs_of,
    random_inputs,
    weights_of,
)

# What each format is read to is the same on all backends, and so is how it is written.
pytestmark = pytest.mark.on_tensorflow

SIZES = {**families_test.SIZES, "num_hidden_layers": 2}


def saved_by_transformers(cls: str, folder: Path, **changes):
    """A model of the transformers library, all weights random, and its folder."""
    ending = cls.removeprefix("Bert")
    fields = {"num_hidden_layers": 2, **changes}
    return families_test.saved_by_transformers("bert", "plain", ending, folder, **fields)


def rewrite(folder: Path, change) -> dict[str, np.ndarray]:
    """Replaces the tensors of a folder by `change(name, tensor)`, pairs of the same."""
    path = folder / "model.safetensors"
    tensors = dict(change(name, tensor) for name, tensor in load_file(path).items())
    save_file(tensors, path)
    return tensors


def test_the_config_file_decides_everything(tmp_path):
    fields = {"hidden_act": "relu", "num_attention_heads": 4, "type_vocab_size": 3}
    fields |= {"hidden_dropout_prob": 0.25, "attention_probs_dropout_prob": 0.5}
    saved_by_transformers("BertModel", tmp_path, **fields, classifier_dropout=0.3)
    edit_json(tmp_path / "config.json", initializer_range=0.03, pad_token_id=4)
    config = checkpoints.open_checkpoint(tmp_path).config
    assert config.activation == "relu"
    assert (config.dropout, config.attention_dropout) == (0.25, 0.5)
    assert config.classifier_dropout == 0.3
    assert (config.num_heads, config.num_segments) == (4, 3)
    assert (config.initializer_range, config.pad_token_id) == (0.03, 4)


@pytest.mark.parametrize(
    ("word", "activation"),
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
def test_words_for_activations_mean_what_transformers_computes(word, activation, tmp_path):
    config = transformers.BertConfig(**SIZES, hidden_act=word)
    config.save_pretrained(tmp_path)
    assert checkpoints.open_checkpoint(tmp_path).config.activation == activation
    x = np.linspace(-4, 4, 50, dtype="float32")
    ours = keras.ops.convert_to_numpy(activation_function(activation)(keras.ops.array(x)))
    theirs = transformers.activations.ACT2FN[word](torch.tensor(x)).numpy()
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_a_multi_label_head_is_read_and_written(tmp_path):
    """Also of one label, which is neither a regression nor the second of two classes."""
    for names in (["a", "b", "c"], ["a"]):
        theirs, ours = tmp_path / f"theirs_{len(names)}", tmp_path / f"ours_{len(names)}"
        model = saved_by_transformers(
            "BertForSequenceClassification",
            theirs,
            id2label=dict(enumerate(names)),
            problem_type="multi_label_classification",
        )
        save_vocabulary(VOCABULARY, theirs / "vocab.txt")
        task = TextClassifier.from_preset(theirs)
        assert (task.multi_label, task.thresholds) == (True, (0.5,) * len(names))
        inputs = random_inputs(task.config)
        logits = reference_outputs(model, inputs).logits
        np.testing.assert_allclose(outputs_of(task, inputs), logits, atol=1e-5)
        task.thresholds = (0.25,) * len(names)
        task.save_hugging_face(ours)
        again = transformers.BertForSequenceClassification.from_pretrained(ours).eval()
        assert again.config.problem_type == "multi_label_classification"
        np.testing.assert_allclose(reference_outputs(again, inputs).logits, logits, atol=1e-5)
        loaded = TextClassifier.from_preset(ours)
        assert (loaded.class_names, loaded.thresholds) == (tuple(names), task.thresholds)
    edit_json(ours / "config.json", keras_bert={"thresholds": [2]})
    with pytest.raises(
        CheckpointError, match=r"config\.json: thresholds of keras_bert must .*\[2\]"
    ):
        TextClassifier.from_preset(ours)
    with pytest.warns(CheckpointWarning, match="for 3 labels instead of 2 classes. .* randomly"):
        assert not TextClassifier.from_preset(tmp_path / "theirs_3", num_classes=2).multi_label


def test_a_cross_encoder_has_two_classes_or_a_score(tmp_path):
    model = saved_by_transformers("BertForSequenceClassification", tmp_path, num_labels=1)
    save_vocabulary(VOCABULARY, tmp_path / "vocab.txt")
    task = TextClassifier.from_preset(tmp_path)
    inputs = random_inputs(task.config)
    logits = reference_outputs(model, inputs).logits
    probabilities = keras.ops.softmax(task(inputs))[:, 1:]
    np.testing.assert_allclose(probabilities, logits.sigmoid(), atol=1e-5)
    assert not TextClassifier.from_preset(tmp_path, load_weights=False, num_classes=2).is_regression
    score = TextClassifier.from_preset(tmp_path, num_classes=1)
    np.testing.assert_allclose(outputs_of(score, inputs), logits, atol=1e-5)
    edit_json(tmp_path / "config.json", problem_type="regression")
    assert TextClassifier.from_preset(tmp_path).is_regression


def test_a_token_classifier_is_not_taken_for_a_text_classifier(tmp_path):
    saved_by_transformers("BertForTokenClassification", tmp_path, num_labels=8)
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


def test_a_missing_pooler_warns_and_stays_as_it_was(tmp_path):
    saved_by_transformers("BertForMaskedLM", tmp_path)
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    backbone = Backbone(checkpoint.config)
    before = weights_of(backbone.pooler)
    with pytest.warns(CheckpointWarning, match=r"it is initialized.*pooler\.dense\.kernel"):
        checkpoint.load_into(backbone)
    np.testing.assert_array_equal(weights_of(backbone.pooler)[0], before[0])


@pytest.mark.on_each_backend
def test_masked_lm_ignores_missing_pooler(tmp_path):
    model = saved_by_transformers("BertForMaskedLM", tmp_path)
    masked_lm = MaskedLM.from_preset(tmp_path)
    inputs = random_inputs(masked_lm.config)
    positions = np.tile(np.arange(7), (3, 1))
    logits = outputs_of(masked_lm, {**inputs, "mask_positions": positions})
    np.testing.assert_allclose(logits, reference_outputs(model, inputs).logits, atol=1e-5)
    with pytest.warns(CheckpointWarning) as warned:
        pretrainer = Pretrainer.from_preset(tmp_path)
    assert "has no pooler; it is initialized randomly" in str(warned[0].message)
    assert weights_of(pretrainer.backbone.pooler)[0].std() > 0.01


def test_unused_weights_are_reported_by_name(tmp_path):
    saved_by_transformers("BertForNextSentencePrediction", tmp_path)
    expected = r"not used: cls\.seq_relationship\.bias, cls\.seq_relationship\.weight\.$"
    with pytest.warns(CheckpointWarning, match=expected):
        Backbone.from_preset(tmp_path)


def test_missing_weights_raise_and_set_nothing(tmp_path):
    saved_by_transformers("BertModel", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["encoder.layer.1.attention.self.key.bias"], tensors["embeddings.LayerNorm.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    backbone = Backbone(checkpoint.config)
    before = weights_of(backbone)
    with pytest.raises(CheckpointError) as raised:
        checkpoint.load_into(backbone)
    assert str(tmp_path) in str(raised.value)
    assert "lacks 2 of the 39 encoder tensors" in str(raised.value)
    assert "encoder.layer.1.attention.self.key.bias" in str(raised.value)
    assert "embeddings.LayerNorm.weight" in str(raised.value)
    for old, new in zip(before, weights_of(backbone), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_wrong_shape_names_tensor_file_expected_and_found(tmp_path):
    saved_by_transformers("BertForPreTraining", tmp_path)
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
        pytest.param(lambda name: name.removeprefix("bert."), id="no prefix"),
        pytest.param(
            lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
                "LayerNorm.bias", "LayerNorm.beta"
            ),
            id="gamma and beta",
        ),
    ],
)
def test_other_spellings_are_read(rename, tmp_path):
    saved_by_transformers("BertForPreTraining", tmp_path)
    expected = weights_of(_load_quietly(tmp_path))
    rewrite(tmp_path, lambda name, tensor: (rename(name), tensor))
    for old, new in zip(expected, weights_of(_load_quietly(tmp_path)), strict=True):
        np.testing.assert_array_equal(old, new)


def test_position_ids_and_decoder_are_ignored(tmp_path):
    saved_by_transformers("BertForMaskedLM", tmp_path)
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
    saved_by_transformers("BertModel", tmp_path)
    tensors = rewrite(tmp_path, lambda name, tensor: (name, tensor.astype(dtype)))
    backbone = Backbone.from_preset(tmp_path)
    np.testing.assert_array_equal(
        to_numpy(backbone.token_embedding_table),
        tensors["embeddings.word_embeddings.weight"].astype("float32"),
    )
    kernel = to_numpy(backbone.blocks[1].attention.query_key_value.kernel)
    value = tensors["encoder.layer.1.attention.self.value.weight"].astype("float32")
    np.testing.assert_array_equal(kernel[:, 16:], value.T)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_weights_that_are_not_finite_are_an_error(value, tmp_path):
    saved_by_transformers("BertModel", tmp_path)

    def spoil(name, tensor):
        if name == "encoder.layer.1.output.dense.weight":
            tensor[3, 4:6] = value
        return name, tensor

    rewrite(tmp_path, spoil)
    expected = (
        r"model\.safetensors: tensor 'encoder\.layer\.1\.output\.dense\.weight' must only have "
        r"finite values\. Received: 2 values "
        rf"that are infinite .* {value} at \[3, 4\]"
    )
    with pytest.raises(CheckpointError, match=expected):
        Backbone.from_preset(tmp_path)


def test_a_size_that_is_not_the_file_s_takes_no_memory(tmp_path):
    saved_by_transformers("BertModel", tmp_path)
    edit_json(tmp_path / "config.json", hidden_size=10**9)
    with pytest.raises(CheckpointError, match=r"must have shape \(20, 1000000000\).* \(20, 8\)"):
        Backbone.from_preset(tmp_path)


def test_small_vocabulary_warns(tmp_path):
    saved_by_transformers("BertModel", tmp_path)
    save_vocabulary(VOCABULARY[:10], tmp_path / "vocab.txt")
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    with pytest.warns(CheckpointWarning, match="10 tokens in its vocabulary but 20 embeddings"):
        assert checkpoint.vocabulary == VOCABULARY[:10]


def test_shards_are_read(tmp_path):
    model = saved_by_transformers("BertModel", tmp_path)
    whole = weights_of(Backbone.from_preset(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="2KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert not (tmp_path / "model.safetensors").exists()
    for one, other in zip(whole, weights_of(Backbone.from_preset(tmp_path)), strict=True):
        np.testing.assert_array_equal(one, other)


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
def test_a_shard_that_is_no_file_of_the_folder_is_named(shard, message, tmp_path):
    transformers.BertConfig(**SIZES).save_pretrained(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"pooler.dense.bias": shard}}))
    with pytest.raises(CheckpointError, match=message) as raised:
        Backbone.from_preset(tmp_path)
    assert shard in str(raised.value)


def test_an_index_of_a_tensor_that_is_not_there_is_an_error(tmp_path):
    model = saved_by_transformers("BertModel", tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="2KB")
    index = tmp_path / "model.safetensors.index.json"
    shards = json.loads(index.read_text())["weight_map"]
    shards["pooler.extra"] = shards["pooler.dense.bias"]
    index.write_text(json.dumps({"weight_map": shards}))
    expected = rf"index\.json: .* 'pooler\.extra' to {shards['pooler.extra']}, which"
    with pytest.raises(CheckpointError, match=expected):
        Backbone.from_preset(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "tf_model.h5"])
def test_no_pickle_is_opened(name, tmp_path):
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
        ({"model_type": "t5"}, "model_type must be 'bert' or 'roberta'.*Received: 't5'"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads must"),
        ({"hidden_act": "mish"}, "hidden_act must be one of gelu, "),
        ({"hidden_size": None}, "the fields hidden_size are missing"),
        ({"num_attention_heads": 3}, "num_heads must divide"),
        ({"id2label": ["a", "b"]}, "id2label must"),
    ],
)
def test_unsupported_value_error_includes_field(changes, message, tmp_path):
    saved_by_transformers("BertModel", tmp_path)
    edit_json(tmp_path / "config.json", **changes)
    with pytest.raises(CheckpointError, match=message) as raised:
        Backbone.from_preset(tmp_path)
    assert str(tmp_path / "config.json") in str(raised.value)


@pytest.mark.parametrize("text", ["{", "[]", "\xff", "[" * 100_000])
def test_malformed_json_names_the_file(text, tmp_path):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(CheckpointError, match=r"config\.json: the file must"):
        checkpoints.open_checkpoint(tmp_path)


def test_config_without_model_type_is_bert(tmp_path):
    saved_by_transformers("BertModel", tmp_path)
    edit_json(tmp_path / "config.json", model_type=None, architectures=None)
    Backbone.from_preset(tmp_path)


def _load_quietly(folder) -> Backbone:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        return Backbone.from_preset(folder)

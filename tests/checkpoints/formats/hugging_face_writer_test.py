# SPDX-License-Identifier: Apache-2.0
"""Writes Hugging Face's format: round trips are bit-exact, and transformers reads the files."""

import json
import warnings

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file

from keras_bert import checkpoints
from keras_bert.checkpoints import CheckpointError, CheckpointWarning
from keras_bert.models import Backbone
from keras_bert.tasks import Distiller, TextClassifier, TextEmbedder
from tests.checkpoints.small_models import (
    VOCABULARY,
    classification_head,
    compute_outputs,
    load_pretraining,
    pretraining_heads,
    random_inputs,
    randomize,
    small_backbone,
    small_config,
)

pytestmark = pytest.mark.on_torch

CONFIG = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-5,
    "type_vocab_size": 3,
}
# tests/checkpoints/families_test.py tests the heads of other tasks.
HEADS = {
    "BertModel": (),
    "BertForPreTraining": ("masked_lm", "next_sentence"),
    "BertForNextSentencePrediction": ("next_sentence",),
}


@pytest.mark.filterwarnings("ignore::keras_bert.checkpoints.CheckpointWarning")
@pytest.mark.parametrize("cls", HEADS)
def test_preset_round_trip_is_bit_exact(cls, tmp_path):
    model = getattr(transformers, cls)(transformers.BertConfig(**CONFIG))
    model.save_pretrained(tmp_path / "transformers")
    backbone, heads = load_pretraining(tmp_path / "transformers", HEADS[cls])
    checkpoints.save_preset(backbone, tmp_path / "saved", heads=heads)
    backbone, heads = load_pretraining(tmp_path / "saved", HEADS[cls])
    checkpoints.save_hugging_face(backbone, tmp_path / "back", heads=heads)

    expected = load_file(tmp_path / "transformers" / "model.safetensors")
    actual = load_file(tmp_path / "back" / "model.safetensors")
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert actual[name].dtype == tensor.dtype
        np.testing.assert_array_equal(actual[name], tensor)
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["architectures"] == [cls]
    assert checkpoints.open_checkpoint(tmp_path / "back").config == backbone.config


@pytest.mark.parametrize("lowercase", [True, False])
def test_transformers_reads_the_tokenizer(lowercase, tmp_path):
    checkpoints.save_hugging_face(
        small_backbone(), tmp_path, tokenizer={"vocabulary": VOCABULARY, "lowercase": lowercase}
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    expected = [2, 7, 8, 5, 6, 9, 3] if lowercase else [2, 1, 8, 5, 6, 9, 3]
    assert tokenizer("A gripping films.")["input_ids"] == expected
    assert tokenizer.model_max_length == 12
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    assert checkpoint.vocabulary == VOCABULARY
    assert checkpoint.tokenizer["lowercase"] is lowercase


def test_task_is_saved_with_tokenizer_and_class_names(tmp_path):
    preprocessor = {"tokenizer": {"vocabulary": VOCABULARY}, "sequence_length": 8}
    task = TextClassifier(small_backbone(), preprocessor=preprocessor, class_names=["no", "yes"])
    distiller = Distiller(task, TextClassifier(small_backbone(), class_names=["no", "yes"]))
    for name, model in {"task": task, "distiller": distiller}.items():
        checkpoints.save_hugging_face(model, tmp_path / name)
        checkpoint = checkpoints.open_checkpoint(tmp_path / name)
        assert checkpoint.class_names == ("no", "yes")
        assert checkpoint.vocabulary == VOCABULARY
        assert checkpoint.heads == ("classifier",)
    embedder = TextEmbedder(task.backbone)  # has no heads and no tokenizer
    checkpoints.save_hugging_face(embedder, tmp_path / "embedder")
    assert checkpoints.open_checkpoint(tmp_path / "embedder").heads == ()
    with pytest.raises(TypeError, match=r"a Backbone or a task\. Received: ClassificationHead"):
        checkpoints.save_hugging_face(task.head, tmp_path / "head")


def test_unsupported_combination_of_heads_raises(tmp_path):
    heads = {"classifier": classification_head(8, 2), "next_sentence": classification_head(8, 2)}
    with pytest.raises(
        CheckpointError, match=r"must be one of: .*; .*\. Received: classifier, next_sentence"
    ):
        checkpoints.save_hugging_face(small_backbone(), tmp_path, heads=heads)
    assert list(tmp_path.iterdir()) == []


def test_config_round_trip(tmp_path):
    backbone = small_backbone(
        activation="silu",
        dropout=0.2,
        attention_dropout=0.3,
        classifier_dropout=0.4,
        layer_norm_epsilon=1e-5,
        initializer_range=0.01,
        pad_token_id=3,
        num_segments=4,
    )
    checkpoints.save_hugging_face(backbone, tmp_path)
    assert checkpoints.open_checkpoint(tmp_path).config == backbone.config


@pytest.mark.parametrize(
    "changes",
    [
        {"num_segments": 0},
        {"num_segments": 0, "pooler": False, "pooler_activation": "relu"},
        {"layer_sharing": "all", "embedding_dim": 4, "tokenizer": "sentence_piece"},
    ],
)
def test_transformers_reads_any_classifier(changes, tmp_path):
    """Encoders can lack segments, and `classifier_dropout` can be `None`."""
    task = TextClassifier(small_backbone(**changes), 3)
    randomize(task)
    checkpoints.save_hugging_face(task, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transformers_model, loading = (
            transformers.AutoModelForSequenceClassification.from_pretrained(
                tmp_path, output_loading_info=True
            )
        )
    assert not any(loading.values())
    inputs = {**random_inputs(small_config()), "segment_ids": np.zeros((3, 7), "int32")}
    with torch.no_grad():
        expected = transformers_model.eval()(
            input_ids=torch.tensor(inputs["token_ids"]),
            attention_mask=torch.tensor(inputs["padding_mask"].astype("int64")),
        )
    np.testing.assert_allclose(compute_outputs(task, inputs), expected.logits, atol=1e-5)


@pytest.mark.filterwarnings("ignore::keras_bert.checkpoints.CheckpointWarning")
def test_causal_encoder_is_a_transformers_decoder(tmp_path):
    backbone = small_backbone(causal=True)
    heads, model = pretraining_heads(backbone)
    del heads["next_sentence"]
    checkpoints.save_hugging_face(backbone, tmp_path, heads=heads)
    transformers_model, loading = transformers.BertLMHeadModel.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(loading.values())
    assert transformers_model.config.is_decoder

    inputs = random_inputs(backbone.config)
    positions = np.tile(np.arange(7), (3, 1))
    logits = compute_outputs(model, {**inputs, "mask_positions": positions})["masked_lm_logits"]
    with torch.no_grad():
        expected = transformers_model.eval()(
            input_ids=torch.tensor(inputs["token_ids"]),
            token_type_ids=torch.tensor(inputs["segment_ids"]),
            attention_mask=torch.tensor(inputs["padding_mask"].astype("int64")),
        ).logits
    mask = inputs["padding_mask"]
    np.testing.assert_allclose(logits[mask], expected[mask], atol=1e-5)

    restored, _ = load_pretraining(tmp_path, ("masked_lm",))
    assert restored.config == backbone.config
    np.testing.assert_array_equal(
        compute_outputs(restored, inputs)["sequence_output"],
        compute_outputs(backbone, inputs)["sequence_output"],
    )


def test_causal_encoder_has_no_transformers_pooler(tmp_path):
    backbone = small_backbone(causal=True)
    checkpoints.save_hugging_face(backbone, tmp_path / "saved")
    assert not any("pooler" in name for name in load_file(tmp_path / "saved" / "model.safetensors"))
    with pytest.raises(CheckpointError, match="pools the first token instead of the last"):
        checkpoints.save_hugging_face(
            backbone, tmp_path, heads={"classifier": classification_head(8, 2)}
        )
    transformers_model = transformers.BertModel(transformers.BertConfig(**CONFIG, is_decoder=True))
    transformers_model.save_pretrained(tmp_path / "transformers")
    with pytest.warns(CheckpointWarning) as recorded:
        Backbone.from_preset(tmp_path / "transformers")
    messages = [str(warning.message) for warning in recorded]
    assert "has no pooler" in messages[0]
    assert "unused weights: pooler.dense.bias, pooler.dense.weight" in messages[1]

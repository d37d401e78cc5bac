# SPDX-License-Identifier: Apache-2.0
"""The files of KerasHub's BERT presets. keras_hub_families_test.py compares their outputs."""

import h5py
import keras_hub
import numpy as np
import pytest

from keras_bert import checkpoints
from keras_bert.checkpoints import CheckpointError
from keras_bert.checkpoints.formats import keras_hub as keras_hub_format
from keras_bert.checkpoints.weights import to_numpy
from keras_bert.models import Backbone
from tests.checkpoints.small_models import (
    VOCABULARY,
    classification_head,
    randomize,
)

pytestmark = pytest.mark.on_torch


def make_hub_backbone(**changes):
    arguments = {
        "vocabulary_size": 20,
        "num_layers": 2,
        "num_heads": 2,
        "hidden_dim": 8,
        "intermediate_dim": 16,
        "max_sequence_length": 12,
        "dropout": 0.25,
    }
    backbone = keras_hub.models.BertBackbone(**{**arguments, **changes})
    randomize(backbone)
    return backbone


def test_classifier_and_tokenizer_are_read(tmp_path):
    task = _save_classifier(tmp_path)
    checkpoint = checkpoints.open_checkpoint(tmp_path)
    assert checkpoint.format == "keras_hub"
    assert checkpoint.config.activation == "gelu_tanh"
    assert (checkpoint.config.dropout, checkpoint.config.attention_dropout) == (0.25, 0.25)
    assert checkpoint.vocabulary == VOCABULARY
    assert checkpoint.tokenizer["lowercase"] is False
    assert checkpoint.heads == ("classifier",)
    assert checkpoint.num_classes() == 3
    backbone, head = Backbone(checkpoint.config), classification_head(8, 3)
    checkpoint.load_into(backbone)
    assert checkpoint.load_head("classifier", head)
    assert checkpoint.unused() == []
    np.testing.assert_array_equal(
        to_numpy(head.dense.kernel), to_numpy(task.get_layer("logits").kernel)
    )
    np.testing.assert_array_equal(
        to_numpy(backbone.token_embedding_table),
        to_numpy(task.backbone.token_embedding.embeddings),
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"suffix_indicator": "@@"},
            "suffix_indicator must be '##' or absent. Received: '@@'",
        ),
        ({"split": False}, "split must be True or absent. Received: False"),
        ({"oov_token": "[MASK]"}, r"oov_token must be '\[UNK\]' or absent. Received: '\[MASK\]'"),
    ],
)
def test_unsupported_tokenizer_option_raises(options, message, tmp_path):
    keras_hub.models.BertTokenizer(VOCABULARY, **options).save_to_preset(tmp_path)
    with pytest.raises(CheckpointError, match=rf"tokenizer\.json: {message}"):
        keras_hub_format.read_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["keras_hub>GPT2Backbone", "os>system", None])
def test_unknown_class_raises_without_import(name, tmp_path):
    make_hub_backbone().save_to_preset(str(tmp_path))
    text = (tmp_path / "config.json").read_text().replace('"keras_hub>BertBackbone"', "NAME")
    (tmp_path / "config.json").write_text(text.replace("NAME", f'"{name}"' if name else "null"))
    with pytest.raises(CheckpointError, match="must be 'keras_hub>BertBackbone'"):
        Backbone.from_preset(tmp_path)


def test_mismatched_or_missing_weights_raise(tmp_path):
    make_hub_backbone(num_layers=1).save_to_preset(str(tmp_path))
    weights = (tmp_path / "model.weights.h5").read_bytes()
    make_hub_backbone(intermediate_dim=20).save_to_preset(str(tmp_path))
    (tmp_path / "model.weights.h5").write_bytes(weights)
    with pytest.raises(CheckpointError, match=r"model\.weights\.h5: the weights cannot be read"):
        Backbone.from_preset(tmp_path)
    (tmp_path / "model.weights.h5").unlink()
    with pytest.raises(CheckpointError, match=r"model\.weights\.h5: the file is missing"):
        Backbone.from_preset(tmp_path)


def test_external_link_in_weights_is_not_followed(tmp_path):
    make_hub_backbone().save_to_preset(str(tmp_path))
    secret = tmp_path / "secret.h5"
    with h5py.File(tmp_path / "model.weights.h5", "a") as file, h5py.File(secret, "w") as other:
        name = "layers/reversible_embedding/vars/0"
        other["table"] = file[name][:]
        del file[name]
        file[name] = h5py.ExternalLink(str(secret), "table")
    with pytest.raises(CheckpointError, match=r"model\.weights\.h5"):
        Backbone.from_preset(tmp_path)


def _save_classifier(directory):
    tokenizer = keras_hub.models.BertTokenizer(VOCABULARY, lowercase=False)
    task = keras_hub.models.BertTextClassifier(
        make_hub_backbone(),
        num_classes=3,
        preprocessor=keras_hub.models.BertTextClassifierPreprocessor(tokenizer),
    )
    task.save_to_preset(str(directory))
    return task

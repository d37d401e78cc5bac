# SPDX-License-Identifier: Apache-2.0
"""Compares KerasHub presets of BERT and its descendants with KerasHub's models."""

import keras_hub
import numpy as np
import pytest

from keras_bert import checkpoints
from keras_bert.models import Backbone
from keras_bert.tasks import MaskedLM, TextClassifier
from tests.checkpoints.small_models import compute_outputs, randomize, read_task

pytestmark = pytest.mark.on_torch

SIZES = {
    "vocabulary_size": 20,
    "num_layers": 4,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
    "max_sequence_length": 12,
}
ELECTRA = {("vocab_size" if name == "vocabulary_size" else name): n for name, n in SIZES.items()}
ARGUMENTS = {
    "Bert": {**SIZES, "num_heads": 4, "num_segments": 3},
    "Roberta": SIZES,
    "DistilBert": SIZES,
    "Albert": {**SIZES, "embedding_dim": 4, "num_groups": 2},
    "Electra": {**ELECTRA, "embedding_dim": 4},
}
HEADS = [family for family in ARGUMENTS if family != "Electra"]


def make_hub_backbone(family):
    cls = getattr(keras_hub.models, f"{family}Backbone")
    backbone = cls(**ARGUMENTS[family])
    randomize(backbone)
    return backbone


def make_inputs(model):
    rng = np.random.default_rng(3)
    mask = np.arange(7) < np.array([[7], [5], [2]])
    inputs = {
        "token_ids": np.where(mask, rng.integers(2, 20, (3, 7)), 1),
        "padding_mask": mask,
    }
    hub_inputs = {**inputs, "padding_mask": mask.astype(int)}
    if any("segment" in name for name in model.input):
        inputs["segment_ids"] = hub_inputs["segment_ids"] = rng.integers(0, 2, (3, 7))
    return inputs, hub_inputs


@pytest.mark.parametrize("family", ARGUMENTS)
@pytest.mark.filterwarnings("ignore:.*has no pooler:keras_bert.checkpoints.CheckpointWarning")
def test_outputs_match_keras_hub(family, tmp_path):
    hub_model = make_hub_backbone(family)
    hub_model.save_to_preset(str(tmp_path))
    model = Backbone.from_preset(tmp_path)
    inputs, hub_inputs = make_inputs(hub_model)
    expected, actual = compute_outputs(hub_model, hub_inputs), compute_outputs(model, inputs)
    if isinstance(expected, dict):
        np.testing.assert_allclose(actual["pooled_output"], expected["pooled_output"], atol=1e-5)
        expected = expected["sequence_output"]
    mask = inputs["padding_mask"]
    np.testing.assert_allclose(actual["sequence_output"][mask], expected[mask], atol=1e-5)


@pytest.mark.parametrize("family", HEADS)
def test_classifier_outputs_match_keras_hub(family, tmp_path):
    cls = getattr(keras_hub.models, f"{family}TextClassifier")
    hub_model = cls(make_hub_backbone(family), num_classes=3)
    randomize(hub_model)
    hub_model.save_to_preset(str(tmp_path))
    model = read_task(TextClassifier, tmp_path, 3)
    inputs, hub_inputs = make_inputs(hub_model)
    np.testing.assert_allclose(
        compute_outputs(model, inputs), compute_outputs(hub_model, hub_inputs), atol=1e-5
    )


@pytest.mark.parametrize("family", HEADS)
@pytest.mark.filterwarnings("ignore:.*masked LM head:keras_bert.checkpoints.CheckpointWarning")
def test_masked_lm_outputs_match_keras_hub(family, tmp_path):
    hub_model = getattr(keras_hub.models, f"{family}MaskedLM")(make_hub_backbone(family))
    randomize(hub_model)
    hub_model.save_to_preset(str(tmp_path))
    model = read_task(MaskedLM, tmp_path)
    inputs, hub_inputs = make_inputs(hub_model)
    positions = {"mask_positions": np.array([[0, 1]] * 3)}
    # KerasHub's head has a fixed epsilon. Compare with our epsilon in its place.
    norm = hub_model.masked_lm_head._intermediate_layer_norm
    norm.epsilon = model.config.layer_norm_epsilon
    np.testing.assert_allclose(
        compute_outputs(model, inputs | positions),
        compute_outputs(hub_model, hub_inputs | positions),
        atol=1e-5,
    )


def test_replaced_epsilon_warns(tmp_path):
    keras_hub.models.BertMaskedLM(make_hub_backbone("Bert")).save_to_preset(str(tmp_path))
    with pytest.warns(
        checkpoints.CheckpointWarning, match="epsilon of 1e-05, .* encoder's epsilon, 1e-12"
    ):
        checkpoints.open_checkpoint(tmp_path)


def test_known_names_include_keras_hub_presets():
    names = checkpoints.formats.keras_hub.known_names()
    assert {
        "bert_base_en",
        "roberta_base_en",
        "albert_base_en_uncased",
        "electra_small_discriminator_uncased_en",
        "distil_bert_base_multi",
    } <= set(names)

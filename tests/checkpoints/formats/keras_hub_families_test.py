# SPDX-License-Identifier: Apache-2.0
"""KerasHub's presets of BERT and its descendants, against KerasHub's own models."""

import keras_hub
import numpy as np
import pytest

from keras_bert import checkpoints
from keras_bert.models import Backbone
from keras_bert.tasks import MaskedLM, TextClassifier
from tests.checkpoints.small_models import outputs_of, randomize, read_task

pytestmark = pytest.mark.on_tensorflow

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


def keras_hub_backbone(family):
    cls = getattr(keras_hub.models, f"{family}Backbone")
    backbone = cls(**ARGUMENTS[family])
    randomize(backbone)
    return backbone


def inputs_for(model):
    rng = np.random.default_rng(3)
    mask = np.arange(7) < np.array([[7], [5], [2]])
    inputs = {
        "token_ids": np.where(mask, rng.integers(2, 20, (3, 7)), 1),
        "padding_mask": mask,
    }
    theirs = {**inputs, "padding_mask": mask.astype(int)}
    if any("segment" in name for name in model.input):
        inputs["segment_ids"] = theirs["segment_ids"] = rng.integers(0, 2, (3, 7))
    return inputs, theirs


@pytest.mark.parametrize("family", ARGUMENTS)
@pytest.mark.filterwarnings("ignore:.*has no pooler:keras_bert.checkpoints.CheckpointWarning")
def test_outputs_equal_those_of_keras_hub(family, tmp_path):
    theirs = keras_hub_backbone(family)
    theirs.save_to_preset(str(tmp_path))
    ours = Backbone.from_preset(tmp_path)
    inputs, their_inputs = inputs_for(theirs)
    expected, actual = outputs_of(theirs, their_inputs), outputs_of(ours, inputs)
    if isinstance(expected, dict):
        np.testing.assert_allclose(actual["pooled_output"], expected["pooled_output"], atol=1e-5)
        expected = expected["sequence_output"]
    mask = inputs["padding_mask"]
    np.testing.assert_allclose(actual["sequence_output"][mask], expected[mask], atol=1e-5)


@pytest.mark.parametrize("family", HEADS)
def test_classifiers(family, tmp_path):
    cls = getattr(keras_hub.models, f"{family}TextClassifier")
    theirs = cls(keras_hub_backbone(family), num_classes=3)
    randomize(theirs)
    theirs.save_to_preset(str(tmp_path))
    ours = read_task(TextClassifier, tmp_path, 3)
    inputs, their_inputs = inputs_for(theirs)
    np.testing.assert_allclose(
        outputs_of(ours, inputs), outputs_of(theirs, their_inputs), atol=1e-5
    )


@pytest.mark.parametrize("family", HEADS)
@pytest.mark.filterwarnings("ignore:.*masked LM head:keras_bert.checkpoints.CheckpointWarning")
def test_masked_lms(family, tmp_path):
    theirs = getattr(keras_hub.models, f"{family}MaskedLM")(keras_hub_backbone(family))
    randomize(theirs)
    theirs.save_to_preset(str(tmp_path))
    ours = read_task(MaskedLM, tmp_path)
    inputs, their_inputs = inputs_for(theirs)
    positions = {"mask_positions": np.array([[0, 1]] * 3)}
    # What they compute with our epsilon in place of the one that is written into their head
    norm = theirs.masked_lm_head._intermediate_layer_norm
    norm.epsilon = ours.config.layer_norm_epsilon
    np.testing.assert_allclose(
        outputs_of(ours, inputs | positions),
        outputs_of(theirs, their_inputs | positions),
        atol=1e-5,
    )


def test_replaced_epsilon_warns(tmp_path):
    keras_hub.models.BertMaskedLM(keras_hub_backbone("Bert")).save_to_preset(str(tmp_path))
    with pytest.warns(
        checkpoints.CheckpointWarning, match="epsilon of 1e-05, .* encoder's epsilon, 1e-12"
    ):
        checkpoints.open_checkpoint(tmp_path)


def test_every_name_that_keras_hub_knows_is_known():
    names = checkpoints.formats.keras_hub.known_names()
    assert {
        "bert_base_en",
        "roberta_base_en",
        "albert_base_en_uncased",
        "electra_small_discriminator_uncased_en",
        "distil_bert_base_multi",
    } <= set(names)

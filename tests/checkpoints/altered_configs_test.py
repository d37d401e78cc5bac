# SPDX-License-Identifier: Apache-2.0
"""Runs a sample of `altered_configs`, and checks that its lists are complete."""

import functools
import json

import pytest

from keras_bert import checkpoints
from keras_bert.checkpoints import config_fields
from keras_bert.families import FAMILIES
from tests.checkpoints.altered_configs import (
    ACTIVATIONS,
    BOTH_REJECT,
    EQUAL,
    KERAS_BERT_REJECTS,
    SavedModel,
    reference_fields,
)
from tests.checkpoints.families_test import RELEASED_NOMIC_BERT

pytestmark = pytest.mark.on_torch

# Fields that the reader ignores
IGNORED = {
    # Which outputs are returned, and how they are computed
    *("output_hidden_states", "output_attentions", "return_dict", "use_cache", "dtype"),
    *("chunk_size_feed_forward", "is_encoder_decoder"),
    # The tokenizer's files have the special tokens.
    *("bos_token_id", "eos_token_id"),
    # Derived from other fields
    *("label2id", "transformers_version"),
}
IGNORED_BY_FAMILY = {
    "electra": {"summary_last_dropout"},
    "distilbert": {"sinusoidal_pos_embds"},  # initial position embeddings
    "eurobert": {"pretraining_tp"},
    "deberta-v2": {"legacy"},  # selects a masked LM head, visible in the tensors
    # Only for training and for initialization
    "modernbert": {
        *("deterministic_flash_attn", "sparse_prediction", "sparse_pred_ignore_index"),
        "initializer_cutoff_factor",
    },
}
CLASSIFIER = "ForSequenceClassification"
LINEAR = {"rope_type": "linear", "factor": 2.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4}
YARN = {"rope_type": "yarn", "factor": 2.0}
BASE = {"rope_type": "default", "rope_theta": 5.0}
LINEAR_BY_LAYER_TYPE = {
    kind: {"type": "linear", "factor": 2.0} for kind in ("full_attention", "sliding_attention")
}
ACT = {"activation_function": {}}
IDENTITY, SIGMOID, TANH, _ = ACTIVATIONS


@pytest.fixture(scope="module")
def get_model(tmp_path_factory):
    return functools.cache(
        lambda family, num_labels: SavedModel(
            family, CLASSIFIER, tmp_path_factory.mktemp(family), num_labels
        )
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_all_reference_fields_are_handled(family):
    config = FAMILIES[family].config
    read_fields = {*config.required.values(), *config.optional.values(), config.activation}
    # Read by `to_flat`, and for the heads and the labels
    read_fields |= {
        "rope_parameters",
        "head_dim",
        "layer_types",
        "local_attention",
        "classifier_pooling",
    }
    read_fields |= {"relative_attention", "position_biased_input", "pos_att_type"}
    read_fields |= {"architectures", "id2label", "problem_type", "tie_word_embeddings"}
    needed = {*config.needed, *config_fields.NEEDED}
    ignored = IGNORED | IGNORED_BY_FAMILY.get(family, set()) | {*config.token_ids}
    assert set(reference_fields(family)) <= read_fields | needed | ignored
    assert not needed & ignored


@pytest.mark.parametrize(
    ("family", "changes", "outcome"),
    [
        ("mpnet", {"pad_token_id": 0}, KERAS_BERT_REJECTS),
        ("modernbert", {"rope_scaling": LINEAR}, EQUAL),
        ("modernbert", {"rope_scaling": {"rope_theta": 5.0}}, EQUAL),
        ("modernbert", {"rope_scaling": YARN}, KERAS_BERT_REJECTS),
        ("modernbert", {"rope_parameters": LINEAR_BY_LAYER_TYPE}, EQUAL),
        ("modernbert", {"rope_parameters": LINEAR}, BOTH_REJECT),
        ("deberta-v2", {"max_relative_positions": 10**400}, BOTH_REJECT),
        ("modernbert", {"sliding_window": 3}, EQUAL),
        ("modernbert", {"position_embedding_type": "sans_pos"}, EQUAL),
        *(
            (family, {"rope_scaling": scaling, "rope_parameters": BASE}, EQUAL)
            for family, scaling in (("eurobert", LINEAR), ("nomic_bert", LINEAR), ("gte", DYNAMIC))
        ),
        ("distilbert", {"num_attention_heads": 1}, EQUAL),
        ("bert", {"problem_type": "regression"}, KERAS_BERT_REJECTS),
        ("bert", {"problem_type": "multi_label_classification"}, EQUAL),
        ("bert", {"per_layer_config": {"0": {"num_attention_heads": 1}}}, BOTH_REJECT),
    ],
)
def test_altered_field_outcome(family, changes, outcome, get_model):
    assert get_model(family, 3).compare(changes)[0] == outcome


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, EQUAL),
        ({"problem_type": "regression"}, EQUAL),
        ({"problem_type": "multi_label_classification"}, EQUAL),
        ({"sentence_transformers": {"activation_fn": IDENTITY}}, EQUAL),
        (
            {"sentence_transformers": {"activation_fn": SIGMOID}, "problem_type": "regression"},
            EQUAL,
        ),
        ({"sbert_ce_default_activation_function": TANH}, KERAS_BERT_REJECTS),
    ],
)
def test_single_output_classifier_outcome(changes, outcome, get_model):
    assert get_model("bert", 1).compare(changes)[0] == outcome


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        *(("gte", {"rope_parameters": None, "rope_theta": base}) for base in ([], {}, 10**400)),
        ("gte", {"rope_parameters": {"type": "ntk", "factor": "8"}}),
        ("nomic_bert", {"head_dim": {}}),
        ("eurobert", {"classifier_pooling": []}),
        ("nomic_bert", dict.fromkeys(("hidden_size", "hidden_act")) | RELEASED_NOMIC_BERT | ACT),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_theta": "x"}}}),
        ("bert", {"layer_norm_eps": 10**400}),
    ],
)
def test_wrong_type_error_includes_file_and_value(family, changes, get_model):
    saved_model = get_model(family, 3)
    saved_model.alter(changes)
    with pytest.raises(checkpoints.CheckpointError, match=r"config\.json: .+ must .+\. Received: "):
        checkpoints.open_checkpoint(saved_model.path)


def test_sentence_transformers_activation_wins(get_model, tmp_path):
    saved_model = get_model("bert", 1)
    saved_model.alter({"sentence_transformers": {"activation_fn": IDENTITY}})
    path = saved_model.path / "config_sentence_transformers.json"
    path.write_text(json.dumps({"model_type": "CrossEncoder", "activation_fn": SIGMOID}))
    assert checkpoints.open_checkpoint(saved_model.path).num_classes() == 2
    path.unlink()
    assert checkpoints.open_checkpoint(saved_model.path).num_classes() == 1

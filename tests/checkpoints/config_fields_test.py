# SPDX-License-Identifier: Apache-2.0
"""Fields of a config.json are read as the transformers library reads them, or refused by name."""

import dataclasses
import functools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from keras_bert import checkpoints
from keras_bert.checkpoints import config_fields
from keras_bert.checkpoints.families import FAMILIES
from keras_bert.config import BertConfig
from keras_bert.tasks import TextClassifier
from tests.checkpoints.families_test import (
    CONFIGS,
    PREFIX,
    RELEASED_NOMIC_BERT,
    saved_by_transformers,
)
from tests.checkpoints.small_models import outputs_of, random_inputs

pytestmark = pytest.mark.on_tensorflow

LINEAR = {"rope_type": "linear", "factor": 2.0}
DYNAMIC = {"rope_type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 4}
YARN = {"rope_type": "yarn", "factor": 2.0}
BASE = {"rope_type": "default", "rope_theta": 5.0}
BY_KIND = {
    kind: {"type": "linear", "factor": 2.0} for kind in ("full_attention", "sliding_attention")
}
ACT = {"activation_function": {}}
IDENTITY, SIGMOID, TANH = (
    f"torch.nn.modules.{name}"
    for name in ("linear.Identity", "activation.Sigmoid", "activation.Tanh")
)
EQUAL, REFUSED = "equal", "refused"


class Folder:
    """A classifier's folder of both libraries, and the inputs that they are compared on."""

    def __init__(self, family: str, path: Path, num_labels: int) -> None:
        self.family, self.path, self.num_labels = family, path, num_labels
        saved_by_transformers(
            family, "plain", "ForSequenceClassification", path, num_labels=num_labels
        )
        # Larger, so that who attends to whom is seen in the answers
        weights = path / "model.safetensors"
        tensors = {name: 2 * tensor for name, tensor in load_file(weights).items()}
        save_file(tensors, weights, metadata={"format": "pt"})
        self.fields = json.loads((path / "config.json").read_text())
        pad = self.fields["pad_token_id"]
        config = BertConfig(vocabulary_size=20, num_segments=self.fields.get("type_vocab_size", 0))
        self.inputs = random_inputs(config, length=10)
        tokens = self.inputs["token_ids"]
        tokens = np.where(self.inputs["padding_mask"], np.where(tokens == pad, 9, tokens), pad)
        self.inputs["token_ids"] = tokens

    def alter(self, changes: dict[str, Any]) -> None:
        (self.path / "config.json").write_text(json.dumps(self.fields | changes))

    def theirs(self) -> np.ndarray:
        """The answers of the pipeline, or of the cross-encoder if the file has its activation."""
        cls = getattr(transformers, f"{PREFIX[self.family]}ForSequenceClassification")
        model = cls.from_pretrained(self.path, dtype=torch.float32).eval()
        inputs = {
            "input_ids": torch.tensor(self.inputs["token_ids"]),
            "attention_mask": torch.tensor(self.inputs["padding_mask"].astype("int64")),
        }
        if "type_vocab_size" in self.fields:
            inputs["token_type_ids"] = torch.tensor(self.inputs["segment_ids"])
        with torch.no_grad():
            return scores_of(model.config, model(**inputs).logits).numpy()

    def ours(self) -> np.ndarray:
        checkpoint = checkpoints.open_checkpoint(self.path)
        task = TextClassifier(
            checkpoint.new_backbone(),
            num_classes=checkpoint.num_classes(),
            class_names=checkpoint.class_names,
            **(checkpoint.task or {}),
        )
        checkpoint.load_into(task.backbone, pooler_is_used=task.uses_pooler)
        for name, layer in task.heads.items():
            assert checkpoint.load_head(name, layer)
        outputs = torch.tensor(outputs_of(task, self.inputs))
        if task.is_regression:
            return outputs.numpy()
        if task.multi_label:
            return torch.sigmoid(outputs).numpy()
        scores = torch.softmax(outputs, -1).numpy()
        # A sigmoid is read as two classes.
        return scores[:, 1:] if self.num_labels == 1 else scores

    def compare(self, changes: dict[str, Any]) -> str:
        self.alter(changes)
        try:
            ours = self.ours()
        except checkpoints.CheckpointError:
            return REFUSED
        np.testing.assert_allclose(ours, self.theirs(), rtol=0, atol=5e-5)
        return EQUAL


def scores_of(config: Any, logits: torch.Tensor) -> torch.Tensor:
    path = (getattr(config, "sentence_transformers", None) or {}).get("activation_fn")
    if path is not None:
        module, _, name = path.rpartition(".")
        return getattr(sys.modules[module], name)()(logits)
    if config.problem_type == "regression":
        return logits
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return torch.sigmoid(logits)
    return torch.softmax(logits, -1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return functools.cache(
        lambda family, num_labels: Folder(family, tmp_path_factory.mktemp(family), num_labels)
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_all_fields_of_the_class_of_the_reference_are_read_needed_or_ignored(family):
    config = FAMILIES[family].config
    read = {*config.required.values(), *config.optional.values(), config.activation}
    # By `to_flat`, and for the heads and the labels
    read |= {"rope_parameters", "head_dim", "layer_types", "local_attention", "classifier_pooling"}
    read |= {"relative_attention", "position_biased_input", "pos_att_type"}
    read |= {"architectures", "id2label", "problem_type", "tie_word_embeddings"}
    needed = {*config.needed, *config_fields.NEEDED}
    ignored = {*config.ignored, *config.token_ids, *config_fields.IGNORED}
    reference = getattr(transformers, CONFIGS[family]["config"])
    assert {field.name for field in dataclasses.fields(reference)} <= read | needed | ignored
    assert not needed & ignored


@pytest.mark.parametrize(
    ("family", "changes", "outcome"),
    [
        ("modernbert", {"rope_scaling": LINEAR}, EQUAL),
        ("modernbert", {"rope_scaling": {"rope_theta": 5.0}}, EQUAL),
        ("modernbert", {"rope_scaling": YARN}, REFUSED),
        ("modernbert", {"rope_parameters": BY_KIND}, EQUAL),
        ("modernbert", {"rope_parameters": LINEAR}, REFUSED),
        ("modernbert", {"sliding_window": 3}, EQUAL),
        ("modernbert", {"position_embedding_type": "sans_pos"}, EQUAL),
        *(
            (family, {"rope_scaling": scaling, "rope_parameters": BASE}, EQUAL)
            for family, scaling in (("eurobert", LINEAR), ("nomic_bert", LINEAR), ("gte", DYNAMIC))
        ),
        ("distilbert", {"num_attention_heads": 1}, EQUAL),
        ("bert", {"problem_type": "regression"}, REFUSED),
        ("bert", {"problem_type": "multi_label_classification"}, EQUAL),
        ("bert", {"per_layer_config": {"0": {"num_attention_heads": 1}}}, REFUSED),
    ],
)
def test_a_word_of_a_file_is_read_or_refused(family, changes, outcome, folder):
    assert folder(family, 3).compare(changes) == outcome


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
        ({"sbert_ce_default_activation_function": TANH}, REFUSED),
    ],
)
def test_the_single_output_is_a_score_or_the_probability_of_the_second_class(
    changes, outcome, folder
):
    assert folder("bert", 1).compare(changes) == outcome


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
        ("deberta-v2", {"max_relative_positions": 10**400}),
    ],
)
def test_a_value_of_another_type_is_one_line_that_names_file_and_field(family, changes, folder):
    made = folder(family, 3)
    made.alter(changes)
    with pytest.raises(checkpoints.CheckpointError, match=r"config\.json: .* (is|are) "):
        checkpoints.open_checkpoint(made.path)


def test_the_activation_that_sentence_transformers_writes_comes_first(folder, tmp_path):
    made = folder("bert", 1)
    made.alter({"sentence_transformers": {"activation_fn": IDENTITY}})
    path = made.path / "config_sentence_transformers.json"
    path.write_text(json.dumps({"model_type": "CrossEncoder", "activation_fn": SIGMOID}))
    assert checkpoints.open_checkpoint(made.path).num_classes() == 2
    path.unlink()
    assert checkpoints.open_checkpoint(made.path).num_classes() == 1

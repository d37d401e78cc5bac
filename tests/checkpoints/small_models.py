# SPDX-License-Identifier: Apache-2.0
"""Small encoders with random weights, and inputs for them."""

import json
from pathlib import Path

import keras
import numpy as np

from keras_bert import checkpoints
from keras_bert.checkpoints.weights import to_numpy
from keras_bert.config import BertConfig
from keras_bert.layers import ClassificationHead
from keras_bert.models import Backbone
from keras_bert.tasks import Pretrainer

# The same number of tokens as `small_config` has embeddings
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film", "##s", "a", "gripping", "."]
VOCABULARY += [f"[unused{index}]" for index in range(10)]


def small_config(**changes) -> BertConfig:
    sizes = {
        "vocabulary_size": 20,
        "num_layers": 2,
        "num_heads": 2,
        "hidden_dim": 8,
        "intermediate_dim": 16,
        "max_sequence_length": 12,
    }
    return BertConfig(**{**sizes, **changes})


def randomize(model) -> None:
    """Adds noise to every weight, including those that start at 0 or 1."""
    rng = np.random.default_rng(1)
    for variable in model.weights:
        if "seed" not in variable.name:
            noise = rng.normal(0, 0.1, variable.shape)
            variable.assign(to_numpy(variable) + noise)


def small_backbone(**changes) -> Backbone:
    backbone = Backbone(small_config(**changes))
    randomize(backbone)
    return backbone


def classification_head(hidden_dim: int, num_classes: int) -> ClassificationHead:
    head = ClassificationHead(num_classes)
    head.build((None, hidden_dim))
    randomize(head)
    return head


def pretraining_heads(backbone: Backbone):
    """Returns the two pre-training heads and their model."""
    model = Pretrainer(backbone)
    heads = {
        "masked_lm": (model.get_layer("masked_lm_transform"), model.get_layer("masked_lm_bias")),
        "next_sentence": model.get_layer("next_sentence"),
    }
    for layer in (*heads["masked_lm"], heads["next_sentence"]):
        randomize(layer)
    return heads, model


def read_task(task_class, directory, *arguments):
    """Loads a task and checks that the checkpoint has exactly its weights."""
    checkpoint = checkpoints.open_checkpoint(directory)
    task = task_class(Backbone(checkpoint.config), *arguments)
    checkpoint.load_into(task.backbone, pooler_is_used=task.uses_pooler)
    for name, head in task.heads.items():
        assert checkpoint.load_head(name, head)
    assert checkpoint.unused() == []
    return task


def load_pretraining(directory, names=("masked_lm", "next_sentence")):
    """Loads an encoder and pre-training heads, and checks that no other weights exist."""
    checkpoint = checkpoints.open_checkpoint(directory)
    backbone = Backbone(checkpoint.config)
    checkpoint.load_into(backbone)
    heads, _ = pretraining_heads(backbone)
    heads = {name: heads[name] for name in names}
    assert all(checkpoint.load_head(name, head) for name, head in heads.items())
    assert checkpoint.unused() == []
    return backbone, heads


def random_inputs(config: BertConfig, batch: int = 3, length: int = 7) -> dict[str, np.ndarray]:
    """Returns padded token ids. Only the first row has no padding."""
    rng = np.random.default_rng(2)
    padding_mask = np.arange(length) < length - np.arange(batch)[:, None]
    return {
        "token_ids": rng.integers(0, config.vocabulary_size, (batch, length)) * padding_mask,
        "segment_ids": rng.integers(0, config.num_segments or 1, (batch, length)),
        "padding_mask": padding_mask,
    }


def compute_outputs(model, inputs) -> dict[str, np.ndarray]:
    return keras.tree.map_structure(keras.ops.convert_to_numpy, model(inputs))


def get_weights(model) -> list[np.ndarray]:
    return [to_numpy(variable) for variable in model.weights]


def edit_json(path: Path, **changes) -> None:
    """Changes fields in a JSON file. `None` removes a field."""
    fields = {**json.loads(path.read_text()), **changes}
    fields = {key: value for key, value in fields.items() if value is not None}
    path.write_text(json.dumps(fields))

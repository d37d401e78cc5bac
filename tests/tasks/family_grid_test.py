# SPDX-License-Identifier: Apache-2.0
"""Every task on every descendant of BERT: a training step that reaches each weight.

The table of families and tasks in docs/start/choose_a_model.md stands on this test, on
`learning_grid_test.py`, and for BERT on each task's own. A cell runs on one of the backends,
another one from cell to cell; `KERAS_BERT_WHOLE_GRID=1` runs them all on each.
"""

import os

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import Backbone, BertConfig
from keras_bert.named_sizes import SIZES

# A released size of each family, reduced in the fields in which families do not differ
RELEASED = {
    "roberta": "roberta_base",
    "albert": "albert_base_v2",
    "distilbert": "distilbert_base_uncased",
    "electra": "electra_small_discriminator",
}
SMALL = {
    "vocabulary_size": 50,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "max_sequence_length": 12,
}
BATCH, LENGTH, CHOICES = 4, 8, 2


def config_of(family: str) -> BertConfig:
    fields = {**SIZES[RELEASED[family]], **SMALL}
    if "embedding_dim" in fields:
        fields["embedding_dim"] = 8
    return BertConfig(**fields)


def features(config: BertConfig, *shape: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    mask = np.arange(LENGTH) < random.integers(3, LENGTH + 1, (*shape, 1))
    tokens = np.where(mask, random.integers(4, 50, mask.shape), config.pad_token_id)
    return {"token_ids": tokens.astype("int32"), "padding_mask": mask}


def labels(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 2, shape)


def classifier(config):
    return keras_bert.TextClassifier(Backbone(config), 2), features(config, BATCH), labels(BATCH)


def tagger(config):
    task = keras_bert.TokenClassifier(Backbone(config), 2)
    return task, features(config, BATCH), labels(BATCH, LENGTH)


def question_answerer(config):
    targets = {name: labels(BATCH) for name in ("start_logits", "end_logits")}
    return keras_bert.QuestionAnswerer(Backbone(config)), features(config, BATCH), targets


def multiple_choice(config):
    task = keras_bert.MultipleChoice(Backbone(config))
    return task, features(config, BATCH, CHOICES), labels(BATCH)


def masked_lm(config):
    x = {**features(config, BATCH), "mask_positions": np.array([[0, 2]] * BATCH)}
    return keras_bert.MaskedLM(Backbone(config)), x, labels(BATCH, 2)


def pretrainer(config):
    _, x, masked = masked_lm(config)
    targets = {"masked_lm_logits": masked, "next_sentence_logits": labels(BATCH)}
    return keras_bert.Pretrainer(Backbone(config)), x, targets


def embedder(config):
    # The loss for pairs of texts is covered by the embedder's own test.
    task = keras_bert.TextEmbedder(Backbone(config))
    targets = np.random.default_rng(2).normal(size=(BATCH, config.hidden_dim))
    return task, features(config, BATCH), targets


def detector(config):
    _, x, originals = masked_lm(config)
    return keras_bert.ReplacedTokenDetector(Backbone(config), generator_size=0.5), x, originals


def distiller(config):
    teacher, x, originals = masked_lm(config)
    student = keras_bert.Distiller.student_from_teacher(teacher, num_layers=1)
    return keras_bert.Distiller(student, teacher), x, originals


TASKS = {
    "replaced_token_detector": detector,
    "distiller": distiller,
    "text_classifier": classifier,
    "token_classifier": tagger,
    "question_answerer": question_answerer,
    "multiple_choice": multiple_choice,
    "masked_lm": masked_lm,
    "pretrainer": pretrainer,
    "text_embedder": embedder,
}


def cells():
    """The tasks and families that this backend has to do with."""
    own = ["tensorflow", "jax", "torch"].index(keras.backend.backend())
    return [
        (name, family)
        for row, name in enumerate(TASKS)
        for column, family in enumerate(RELEASED)
        if os.environ.get("KERAS_BERT_WHOLE_GRID") == "1" or (row + column) % 3 == own
    ]


@pytest.mark.parametrize(("name", "family"), cells())
def test_a_training_step(name, family):
    keras.utils.set_random_seed(0)
    task, x, y = TASKS[name](config_of(family))
    # The defaults of `compile`, which each task's own test covers, but for the optimizer: it is
    # what takes longest to trace.
    task.compile("sgd", **({"loss": "mse"} if name == "text_embedder" else {}))
    before = values_of(task)
    loss = task.train_on_batch(x, y, return_dict=True)["loss"]
    assert np.isfinite(loss)
    stuck = [path for path, value in values_of(task).items() if np.array_equal(value, before[path])]
    # Adding a constant to all choices changes no probability.
    assert set(stuck) <= ({"classifier/dense/bias"} if name == "multiple_choice" else set())


def values_of(task) -> dict[str, np.ndarray]:
    return {
        variable.path: keras.ops.convert_to_numpy(variable.value)
        for variable in task.trainable_variables
    }

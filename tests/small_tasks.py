# SPDX-License-Identifier: Apache-2.0
"""Every task at a small size, and batches of ids for training.

`tests/task_cases.py` has tasks with texts that a model can learn.
"""

import keras
import numpy as np

import keras_bert
from keras_bert import (
    Backbone,
    BertConfig,
    Distiller,
    MaskedLM,
    MultipleChoice,
    Pretrainer,
    QuestionAnswerer,
    ReplacedTokenDetector,
    TextClassifier,
    TextEmbedder,
    TokenClassifier,
)

BATCH_SIZE = 4
CONFIG = BertConfig(
    vocabulary_size=50,
    num_layers=1,
    num_heads=2,
    hidden_dim=16,
    intermediate_dim=32,
    max_sequence_length=12,
)
LETTERS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]


class Buckets(keras.utils.PyDataset):
    """Batches of length 4 and 8 in alternation. Half of the last batch is padding of weight 0."""

    def __init__(self, padding_id: int = 2) -> None:
        super().__init__()
        self.padding_id = padding_id

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int):
        length = (4, 8)[index % 2]
        random = np.random.default_rng(index)
        shape = (BATCH_SIZE, length)
        mask = np.arange(length) < random.integers(2, length + 1, (BATCH_SIZE, 1))
        weights = np.ones(BATCH_SIZE, "float32")
        features = {
            "token_ids": random.integers(1, 50, shape).astype("int32"),
            "padding_mask": mask,
        }
        if index == 3:
            # Padding rows may contain anything, even invalid token ids.
            features["padding_mask"] = mask & (np.arange(BATCH_SIZE) < 2)[:, None]
            features["token_ids"][2:] = self.padding_id
            weights[2:] = 0
        return features, random.integers(0, 2, BATCH_SIZE), weights


class PretrainingBuckets(Buckets):
    """Batches with a masked position for every second token. Unused positions have weight 0."""

    def __getitem__(self, index: int):
        features, labels, weights = super().__getitem__(index)
        num_predictions = features["token_ids"].shape[1] // 2
        positions = np.arange(num_predictions) * np.ones((BATCH_SIZE, 1), "int32")
        masked = positions < 1 + np.arange(BATCH_SIZE)[:, None] % num_predictions
        features["mask_positions"] = (positions * masked).astype("int32")
        targets = {
            "masked_lm_logits": features["token_ids"][:, :num_predictions],
            "next_sentence_logits": labels,
        }
        position_weights = (masked * weights[:, None]).astype("float32")
        return (
            features,
            targets,
            {"masked_lm_logits": position_weights, "next_sentence_logits": weights},
        )


class MaskedBuckets(PretrainingBuckets):
    """Batches without pairs, as for a masked LM."""

    def __getitem__(self, index: int):
        parts = super().__getitem__(index)
        return parts[0], *(part["masked_lm_logits"] for part in parts[1:])


class QuestionBuckets(Buckets):
    """Batches with the first and last token of an answer for each row."""

    def __getitem__(self, index: int):
        features, labels, weights = super().__getitem__(index)
        targets = {"start_logits": labels, "end_logits": labels + 1}
        return features, targets, dict.fromkeys(targets, weights)


class TaggingBuckets(Buckets):
    """Batches with a label for every second token."""

    def __getitem__(self, index: int):
        features, labels, weights = super().__getitem__(index)
        is_first = np.arange(features["token_ids"].shape[1]) % 2 == 0
        return (
            features,
            labels[:, None] * np.ones_like(features["token_ids"]),
            weights[:, None] * (features["padding_mask"] & is_first),
        )


class ChoiceBuckets(Buckets):
    """Batches with two choices per row. The second choice is shorter."""

    def __getitem__(self, index: int):
        features, labels, weights = super().__getitem__(index)
        features = {name: np.stack([value, value], axis=1) for name, value in features.items()}
        features["padding_mask"][:, 1, 2:] = False
        return features, labels, weights


class EmbedderBuckets(Buckets):
    """Batches whose rows are pairs."""

    def __getitem__(self, index: int):
        features, _, weights = super().__getitem__(index)
        features = {name: value.reshape(2, 2, -1) for name, value in features.items()}
        weights = weights.reshape(2, 2).min(axis=1)
        numbers = np.array([[0, 1], [2, 3]])
        return features, np.where(weights[:, None] > 0, numbers, -1), weights


# Each task class, and its batches
TASKS = {
    TextClassifier: Buckets,
    Pretrainer: PretrainingBuckets,
    ReplacedTokenDetector: MaskedBuckets,
    Distiller: MaskedBuckets,
    QuestionAnswerer: QuestionBuckets,
    TokenClassifier: TaggingBuckets,
    MultipleChoice: ChoiceBuckets,
    TextEmbedder: EmbedderBuckets,
}


def make_task(task: type, config: BertConfig = CONFIG) -> keras.Model:
    """Returns a task of a class, or of its subclass, with new weights."""
    keras.utils.set_random_seed(0)
    if issubclass(task, Distiller):
        return task(MaskedLM(Backbone(config)), MaskedLM(Backbone(config)))
    if issubclass(task, TextClassifier | TokenClassifier):
        return task(Backbone(config), num_classes=2)
    if issubclass(task, ReplacedTokenDetector):
        return task(Backbone(config), generator_size=0.5)
    return task(Backbone(config))


def make_text_task(name: str, *arguments, **preprocessor) -> keras.Model:
    """Returns a task of the named class, whose texts consist of the words "a" and "b".

    Args:
        name: Name of the class in `keras_bert`.
        *arguments: Arguments of the class after the backbone.
        **preprocessor: Options of the preprocessor.
    """
    config = CONFIG.replace(
        vocabulary_size=len(LETTERS), hidden_dim=8, intermediate_dim=8, max_sequence_length=32
    )
    preprocessor = {"tokenizer": {"vocabulary": LETTERS}, "sequence_length": 32, **preprocessor}
    return getattr(keras_bert, name)(Backbone(config), *arguments, preprocessor=preprocessor)

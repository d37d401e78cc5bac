# SPDX-License-Identifier: Apache-2.0
"""Training steps compiled by XLA, over buckets of a few lengths: one trace for each at most."""

import keras
import numpy as np
import pytest

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

pytestmark = pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="XLA compiles TensorFlow and JAX"
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


class Buckets(keras.utils.PyDataset):
    """Batches of length 4 and 8 in turn; the last one's second half is filler of weight 0."""

    def __init__(self, filler: int = 2) -> None:
        super().__init__()
        self.filler = filler

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
            # Whatever stands in filler, even no token at all
            features["padding_mask"] = mask & (np.arange(BATCH_SIZE) < 2)[:, None]
            features["token_ids"][2:] = self.filler
            weights[2:] = 0
        return features, random.integers(0, 2, BATCH_SIZE), weights


class PretrainingBuckets(Buckets):
    """The same with a slot for each second token; filler slots have weight 0."""

    def __getitem__(self, index: int):
        features, labels, weights = super().__getitem__(index)
        num_slots = features["token_ids"].shape[1] // 2
        slots = np.arange(num_slots) * np.ones((BATCH_SIZE, 1), "int32")
        masked = slots < 1 + np.arange(BATCH_SIZE)[:, None] % num_slots
        features["mask_positions"] = (slots * masked).astype("int32")
        targets = {
            "masked_lm_logits": features["token_ids"][:, :num_slots],
            "next_sentence_logits": labels,
        }
        slot_weights = (masked * weights[:, None]).astype("float32")
        return (
            features,
            targets,
            {"masked_lm_logits": slot_weights, "next_sentence_logits": weights},
        )


class SlotBuckets(PretrainingBuckets):
    """The same without pairs, as for a masked LM."""

    def __getitem__(self, index: int):
        parts = super().__getitem__(index)
        return parts[0], *(part["masked_lm_logits"] for part in parts[1:])


class QuestionBuckets(Buckets):
    """The same with an answer's first and last token for each row."""

    def __getitem__(self, index: int):
        features, labels, weights = super().__getitem__(index)
        targets = {"start_logits": labels, "end_logits": labels + 1}
        return features, targets, dict.fromkeys(targets, weights)


class TaggingBuckets(Buckets):
    """The same with a label for each second token."""

    def __getitem__(self, index: int):
        features, labels, weights = super().__getitem__(index)
        is_first = np.arange(features["token_ids"].shape[1]) % 2 == 0
        return (
            features,
            labels[:, None] * np.ones_like(features["token_ids"]),
            weights[:, None] * (features["padding_mask"] & is_first),
        )


class ChoiceBuckets(Buckets):
    """The same with two choices to a row, the second of which is shorter."""

    def __getitem__(self, index: int):
        features, labels, weights = super().__getitem__(index)
        features = {name: np.stack([value, value], axis=1) for name, value in features.items()}
        features["padding_mask"][:, 1, 2:] = False
        return features, labels, weights


class EmbedderBuckets(Buckets):
    """The same with rows that are pairs."""

    def __getitem__(self, index: int):
        features, _, weights = super().__getitem__(index)
        numbers = np.array([0, 0, 1, 1])
        return features, np.where(weights > 0, numbers, -1), weights


class Traced:
    """Notes the length of the ids each time Python, and not the compiled step, runs it."""

    def call(self, inputs, training=None, mask=None):
        if training:
            self.traced_lengths.append(inputs["token_ids"].shape[-1])
        return super().call(inputs, training=training, mask=mask)


class TracedClassifier(Traced, TextClassifier):
    pass


class TracedPretrainer(Traced, Pretrainer):
    pass


class TracedDetector(Traced, ReplacedTokenDetector):
    pass


class TracedDistiller(Traced, Distiller):
    pass


class TracedAnswerer(Traced, QuestionAnswerer):
    pass


class TracedTagger(Traced, TokenClassifier):
    pass


class TracedChooser(Traced, MultipleChoice):
    pass


class TracedEmbedder(Traced, TextEmbedder):
    pass


TASKS = [
    TracedClassifier,
    TracedPretrainer,
    TracedDetector,
    TracedDistiller,
    TracedAnswerer,
    TracedTagger,
    TracedChooser,
    TracedEmbedder,
]


def make_model(task):
    keras.utils.set_random_seed(0)
    if task is TracedClassifier:
        return TracedClassifier(Backbone(CONFIG), num_classes=2), Buckets
    if task is TracedDetector:
        return TracedDetector(Backbone(CONFIG), generator_size=0.5), SlotBuckets
    if task is TracedDistiller:
        return TracedDistiller(MaskedLM(Backbone(CONFIG)), MaskedLM(Backbone(CONFIG))), SlotBuckets
    if task is TracedAnswerer:
        return TracedAnswerer(Backbone(CONFIG)), QuestionBuckets
    if task is TracedTagger:
        return TracedTagger(Backbone(CONFIG), num_classes=2), TaggingBuckets
    if task is TracedChooser:
        return TracedChooser(Backbone(CONFIG)), ChoiceBuckets
    if task is TracedEmbedder:
        return TracedEmbedder(Backbone(CONFIG)), EmbedderBuckets
    return TracedPretrainer(Backbone(CONFIG)), PretrainingBuckets


@pytest.mark.parametrize("task", TASKS)
def test_compiled_steps(task):
    model, buckets = make_model(task)
    model.traced_lengths = []
    model.compile(keras.optimizers.SGD(0.5), jit_compile=True)
    # Weights, and the state that dropout draws from
    start = [variable.numpy().copy() for variable in model.variables]
    initial_weights = [weight.numpy().copy() for weight in model.trainable_weights]
    first = model.fit(buckets(filler=2), shuffle=False, verbose=0).history
    traced, weights = list(model.traced_lengths), model.get_weights()
    for variable, value in zip(model.variables, start, strict=True):
        variable.assign(value)
    second = model.fit(buckets(filler=7), shuffle=False, verbose=0).history

    # JAX traces each length once. TensorFlow traces one graph for any length, and that twice if
    # the first call has to make the optimizer's variables; XLA then compiles it for each length.
    lengths = {4, 8} if keras.backend.backend() == "jax" else {None}
    assert set(traced) == lengths
    assert len(traced) <= 2
    assert model.traced_lengths == traced

    # Filler rows count for nothing
    for name, values in first.items():
        np.testing.assert_allclose(second[name], values, rtol=1e-5)
    for now, before in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(now, before, atol=1e-5)
        assert np.isfinite(now).all()
    for weight, value in zip(model.trainable_weights, initial_weights, strict=True):
        # What is added to all choices alike has no gradient, but for rounding.
        if not (task is TracedChooser and weight.path == "classifier/dense/bias"):
            assert (weight.numpy() != value).any(), weight.path

# SPDX-License-Identifier: Apache-2.0
"""Distillation on text. `contract_test.py` checks that students learn."""

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.on_torch

from keras_bert import Backbone, TextClassifier  # noqa: E402
from keras_bert.data import TextClassifierPreprocessor  # noqa: E402
from keras_bert.tasks import Distiller  # noqa: E402
from tests import small_tasks  # noqa: E402
from tests.models.small_backbone import random_weights  # noqa: E402
from tests.text.small_tokenizers import make_tokenizer  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", ".", "é"]
CONFIG = small_tasks.CONFIG.replace(
    vocabulary_size=len(TOKENS), num_layers=2, max_sequence_length=16, initializer_range=0.2
)
TEXTS = ["the cat sat on the mat.", "é cat sat."] * 48


def make_preprocessor() -> TextClassifierPreprocessor:
    return TextClassifierPreprocessor(make_tokenizer(*TOKENS), sequence_length=12)


@pytest.mark.parametrize(
    "form",
    [
        "list",
        pytest.param(
            "batched dataset", marks=[pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]
        ),
    ],
)
def test_classifier_distills_without_labels(form):
    keras.utils.set_random_seed(0)
    teacher = TextClassifier(Backbone(CONFIG), 2, make_preprocessor(), class_names=["a", "b"])
    random_weights(teacher)
    student = Distiller.student_from_teacher(teacher, num_layers=1, dropout=0.0)
    model = Distiller(student, teacher)
    model.compile("sgd")
    # A list of two texts is not (x, y).
    x, validation_data = TEXTS, TEXTS[:2]
    if form == "batched dataset":
        tf = pytest.importorskip("tensorflow")
        x = validation_data = tf.data.Dataset.from_tensor_slices(TEXTS).batch(32)
    history = model.fit(x, validation_data=validation_data, verbose=0).history
    assert history["divergence"][0] > 0
    assert history["val_divergence"][0] > 0
    assert np.isfinite(history["loss"][0])
    assert np.isnan([history["label_loss"][0], history["accuracy"][0]]).all()
    if form == "list":
        logits = model.predict(TEXTS[:3], verbose=0)
        np.testing.assert_allclose(logits, student.predict(TEXTS[:3], verbose=0), atol=1e-6)
        labeled = model.fit(TEXTS, ["a", "b"] * 48, verbose=0).history
        assert labeled["label_loss"][0] > 0


def test_mismatched_vocabulary_or_length_raises():
    """Regression: a vocabulary of the same size in a different order was accepted."""
    teacher = TextClassifier(Backbone(CONFIG), 2, make_preprocessor())
    reordered = TextClassifierPreprocessor(make_tokenizer(*TOKENS[:5], *TOKENS[:4:-1]), 12)
    student = TextClassifier(Backbone(CONFIG), 2, reordered)
    with pytest.raises(ValueError, match=r"the same tokenizer \(vocabulary\). Received: one of 12"):
        Distiller(student, teacher)
    short = TextClassifier(Backbone(CONFIG.replace(max_sequence_length=11)), 2)
    with pytest.raises(ValueError, match="Received: 12 tokens and 11 positions"):
        Distiller(TextClassifier(Backbone(CONFIG), 2, make_preprocessor()), short)

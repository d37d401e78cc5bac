# SPDX-License-Identifier: Apache-2.0
"""A new head's bias starts at the constant outputs with the lowest loss on the labels."""

import keras
import numpy as np
import pytest

from keras_bert import Backbone, TextClassifier, TokenClassifier, load_model
from tests.small_tasks import CONFIG, make_text_task

pytestmark = pytest.mark.on_torch

IDS = np.ones((8, 3), "int32")
WEIGHTS = np.arange(1.0, 9.0)
RARE = np.array([[0, 1, 0]] * 6 + [[1, 1, 0], [0, 0, 0]], "float32")
SCORES = 100 * np.arange(8.0)
CLASSES = np.array([0, 0, 0, 0, 0, 2, 2, 1])


def log_odds(positive, negative):
    return np.log((np.array(positive) + 0.5) / (np.array(negative) + 0.5))


def log_frequencies(counts):
    logs = np.log(np.array(counts) + 0.5)
    return logs - logs.mean()


def fit_bias(task, labels, weights=None, **options):
    """Returns the bias after `fit` with a learning rate of 0."""
    task.compile(keras.optimizers.SGD(0.0))
    task.fit(IDS, labels, sample_weight=weights, verbose=0, **options)
    return keras.ops.convert_to_numpy(task.head.dense.bias)


@pytest.mark.parametrize(
    ("labels", "weights", "expected"),
    [
        (RARE, None, log_odds([1, 7, 0], [7, 1, 8])),
        pytest.param(
            *(RARE, WEIGHTS, log_odds([7, 28, 0], [29, 8, 36])),
            marks=pytest.mark.on_each_backend,
        ),
        (SCORES, None, [350.0]),
        (SCORES, WEIGHTS, [100 * np.sum(np.arange(8) * WEIGHTS) / 36]),
        (CLASSES, None, [0.0, 0.0, 0.0]),
    ],
)
def test_new_head_starts_at_label_frequencies(labels, weights, expected):
    options = {"num_classes": len(expected), "multi_label": labels is RARE}
    task = TextClassifier(Backbone(CONFIG), **options)
    np.testing.assert_allclose(fit_bias(task, labels, weights), expected, rtol=1e-5)


def test_tags_set_bias_from_words_and_ids():
    tagger = make_text_task("TokenClassifier", 3)
    tagger.compile(keras.optimizers.SGD(0.0))
    tagger.fit([["a", "b"], ["a", "b", "b"]], [[0, 0], [1, -1, 0]], verbose=0)
    bias = keras.ops.convert_to_numpy(tagger.head.dense.bias)
    np.testing.assert_allclose(bias, log_frequencies([3, 1, 0]), rtol=1e-5)
    ids = {"token_ids": np.ones((2, 3), "int32"), "padding_mask": np.array([[1, 1, 0], [1, 1, 1]])}
    tagger = TokenClassifier(Backbone(CONFIG), num_classes=3)
    tagger.compile(keras.optimizers.SGD(0.0))
    tagger.fit(ids, np.array([[0, 0, 2], [1, -1, 0]]), class_weight={0: 0.2}, verbose=0)
    bias = keras.ops.convert_to_numpy(tagger.head.dense.bias)
    np.testing.assert_allclose(bias, log_frequencies([0.6, 1, 0]), rtol=1e-5)


def test_trained_head_keeps_its_bias(tmp_path):
    task = TextClassifier(Backbone(CONFIG), num_classes=3, multi_label=True)
    bias = fit_bias(task, RARE)
    task.save(tmp_path / "model.keras")
    for model in (task, load_model(tmp_path / "model.keras")):
        np.testing.assert_array_equal(fit_bias(model, 1 - RARE), bias)


def yield_batches(texts, labels):
    yield texts[:6], labels[:6]
    yield texts[6:], labels[6:]


@pytest.mark.parametrize(
    "kind",
    [
        "texts",
        pytest.param("dataset", marks=[pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]),
        "generator",
    ],
)
def test_texts_set_bias_in_any_form(kind):
    plain = make_text_task("TextClassifier", 3)
    task = TextClassifier(plain.backbone, 3, plain.preprocessor, multi_label=True)
    texts, positive, negative = ["a", "b", "a b", "b b"] * 2, [1, 7, 0], [7, 1, 8]
    x, y = texts, RARE
    if kind == "dataset":
        tf = pytest.importorskip("tensorflow")
        x, y = tf.data.Dataset.from_tensor_slices((texts, RARE)), None
    elif kind == "generator":
        x, y, positive, negative = yield_batches(texts, RARE), None, [0, 6, 0], [6, 0, 6]
    task.compile(keras.optimizers.SGD(0.0))
    task.fit(x, y, batch_size=4, steps_per_epoch=2, verbose=0)
    bias = keras.ops.convert_to_numpy(task.head.dense.bias)
    np.testing.assert_allclose(bias, log_odds(positive, negative), rtol=1e-5)


def test_frozen_head_keeps_its_bias():
    task = TextClassifier(Backbone(CONFIG), num_classes=3, multi_label=True)
    task.head.trainable = False
    np.testing.assert_array_equal(fit_bias(task, RARE), np.zeros(3))

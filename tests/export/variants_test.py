# SPDX-License-Identifier: Apache-2.0
"""Exports with other precisions and merged weights. One backend is enough."""

import numpy as np
import pytest

from tests.export.small_classifier import make_classifier

tf = pytest.importorskip("tensorflow")

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

TEXTS = ["the cat", "", "many words " * 60, "a"]


def weights_size(directory):
    return sum(path.stat().st_size for path in (directory / "variables").glob("variables.data-*"))


def test_bfloat16_halves_the_size(exported_classifier, tmp_path):
    exported_classifier.classifier.export(tmp_path / "1", dtype="bfloat16")
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    outputs = signature(text=tf.constant(TEXTS))
    expected = exported_classifier.classifier.predict(TEXTS, verbose=0)
    exponentials = np.exp(expected - expected.max(axis=-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)
    assert outputs["probabilities"].dtype == tf.float32
    np.testing.assert_allclose(outputs["probabilities"], probabilities, atol=0.03)
    assert weights_size(tmp_path / "1") < 0.6 * weights_size(exported_classifier.directory)


def test_lora_is_merged(tmp_path):
    classifier = make_classifier(num_classes=2)
    features = classifier.preprocessor(TEXTS)
    before = classifier(features)
    classifier.backbone.enable_lora(2)
    for weight in classifier.backbone.trainable_weights:
        weight.assign(weight + 0.3)
    logits = classifier(features).numpy()
    assert np.abs(logits - before).max() > 0.1

    classifier.export(tmp_path / "1")
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    outputs = signatures["serve_ids"](token_ids=features["token_ids"])
    np.testing.assert_allclose(outputs["logits"], logits, atol=1e-4)
    labels = [label.decode() for label in outputs["label"].numpy()]
    assert labels == [str(index) for index in logits.argmax(axis=-1)]

# SPDX-License-Identifier: Apache-2.0
"""Exports of pairs, regressions and other precisions. One backend is enough."""

import numpy as np
import pytest

from tests.export.small_classifier import make_classifier

tf = pytest.importorskip("tensorflow")

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

FIRST = ["the cat", "", "many words " * 60, "a"]


def size_of_weights(folder):
    return sum(path.stat().st_size for path in (folder / "variables").glob("variables.data-*"))


def test_bfloat16_is_close_at_half_the_size(exported, tmp_path):
    exported.classifier.export(tmp_path / "1", dtype="bfloat16")
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    answers = signature(text=tf.constant(FIRST))
    expected = exported.classifier.predict(FIRST, verbose=0)
    exponentials = np.exp(expected - expected.max(axis=-1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=-1, keepdims=True)
    assert answers["probabilities"].dtype == tf.float32
    np.testing.assert_allclose(answers["probabilities"], probabilities, atol=0.03)
    assert size_of_weights(tmp_path / "1") < 0.6 * size_of_weights(exported.folder)


def test_a_low_rank_update_is_merged(tmp_path):
    classifier = make_classifier(num_classes=2)
    features = classifier.preprocessor(FIRST)
    before = classifier(features)
    classifier.backbone.enable_lora(2)
    for weight in classifier.backbone.trainable_weights:
        weight.assign(weight + 0.3)
    logits = classifier(features).numpy()
    assert np.abs(logits - before).max() > 0.1

    classifier.export(tmp_path / "1")
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    answers = signatures["serve_ids"](token_ids=features["token_ids"])
    np.testing.assert_allclose(answers["logits"], logits, atol=1e-4)
    labels = [label.decode() for label in answers["label"].numpy()]
    assert labels == [str(index) for index in logits.argmax(axis=-1)]

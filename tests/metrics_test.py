# SPDX-License-Identifier: Apache-2.0
"""Perplexity is over tokens, independent of batches."""

import keras
import numpy as np
import pytest

from keras_bert.metrics import MultiLabelF1, Perplexity


def test_perplexity_weighs_tokens_and_not_batches_or_their_lengths():
    rng = np.random.default_rng(0)
    metric = Perplexity()
    cross_entropies = []
    for shape in ((1, 3), (5, 3), (1, 1), (2, 9)):
        logits = rng.normal(size=(*shape, 7)).astype("float32")
        ids = rng.integers(0, 7, shape)
        weights = rng.integers(0, 2, shape).astype("float32")
        metric.update_state(ids, logits, weights)
        log_probabilities = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        cross_entropy = -np.take_along_axis(log_probabilities, ids[..., None], -1)[..., 0]
        cross_entropies.extend(cross_entropy[weights > 0])
    np.testing.assert_allclose(float(metric.result()), np.exp(np.mean(cross_entropies)), rtol=1e-5)
    metric.reset_state()
    assert float(metric.result()) == 1


def test_config_round_trip():
    metric = Perplexity(name="ppl")
    saved = keras.saving.serialize_keras_object(metric)
    assert keras.saving.deserialize_keras_object(saved).name == "ppl"


@pytest.mark.on_each_backend
@pytest.mark.parametrize("average", ["micro", "macro"])
def test_f1_of_several_labels_is_that_of_scikit_learn(average):
    """In two batches; the last label occurs nowhere."""
    sklearn = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    truth, logits = generator.random((9, 4)) < 0.4, generator.normal(0, 2, (9, 4))
    truth[:, 3], logits[:, 3] = 0, -9
    weights = generator.random(9)
    metric = MultiLabelF1(4, average, threshold=0.4)
    for rows in (slice(5), slice(5, None)):
        metric.update_state(truth[rows], logits[rows].astype("float32"), weights[rows])
    predicted = logits >= np.log(0.4 / 0.6)
    expected = sklearn.f1_score(
        truth, predicted, average=average, sample_weight=weights, zero_division=0
    )
    assert float(metric.result()) == pytest.approx(expected, rel=1e-6)
    assert metric.name == f"{average}_f1"
    assert MultiLabelF1.from_config(metric.get_config()).threshold == 0.4

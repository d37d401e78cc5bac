# SPDX-License-Identifier: Apache-2.0
"""Metrics match NumPy and scikit-learn, however the rows are batched."""

import keras
import numpy as np
import pytest

from keras_bert.metrics import (
    ClassAccuracy,
    ElementMean,
    ElementMetric,
    MultiLabelF1,
    Perplexity,
    compiled_metric,
)


def test_perplexity_is_weighted_by_tokens():
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
    def margin(ids, logits):
        return logits[..., 0] - logits[..., 1]

    for metric in (Perplexity(name="ppl"), ElementMetric(margin, name="margin")):
        saved = keras.saving.serialize_keras_object(metric)
        with keras.saving.custom_object_scope({"margin": margin}):
            assert keras.saving.deserialize_keras_object(saved).name == metric.name


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_multi_label_f1_matches_scikit_learn(average):
    """There are two batches, and the last label does not occur."""
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


def test_element_mean_ignores_nan_of_weight_0():
    metric = ElementMean()
    metric.update_state(np.array([[np.nan, 3.0]]), np.array([[0.0, 1.0]]))
    assert float(metric.result()) == 3


def update_and_compute(metric, y, logits, weights):
    """Returns the result of a metric after two batches, with scores of rows or tokens."""
    for rows in (slice(2), slice(2, None)):
        metric.update_state(y[rows], logits[rows].astype("float32"), weights[rows])
    same = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert same.name == metric.name
    return keras.ops.convert_to_numpy(metric.result())


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype int64")  # From Keras's IoU on JAX
@pytest.mark.on_torch
@pytest.mark.parametrize("shape", [(60,), (6, 10)])
def test_two_class_metrics_match_scikit_learn(shape):
    """The number of tokens per row does not matter."""
    sklearn = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    ids, weights = generator.integers(0, 2, shape), generator.random(shape)
    logits = generator.normal(0, 4, (*shape, 2)) + 3 * np.eye(2)[ids]
    flat, score = ids.reshape(-1), (logits[..., 1] - logits[..., 0]).reshape(-1)
    parts = {"sample_weight": weights.reshape(-1)}
    best = flat, score > 0
    macro = np.mean(sklearn.f1_score(*best, average=None, **parts))
    cases = {
        "accuracy": sklearn.accuracy_score(*best, **parts),
        "precision": sklearn.precision_score(*best, **parts),
        "recall": sklearn.recall_score(*best, **parts),
        "f1": sklearn.f1_score(*best, **parts),
        "auc": sklearn.roc_auc_score(flat, score, **parts),
        "binary_accuracy": sklearn.accuracy_score(*best, **parts),
        keras.metrics.Recall(class_id=0): sklearn.recall_score(*best, pos_label=0, **parts),
        keras.metrics.Precision(class_id=1): sklearn.precision_score(*best, **parts),
        keras.metrics.F1Score(average="macro"): macro,
        keras.metrics.MeanIoU(2, dtype="int32"): sklearn.jaccard_score(
            *best, average="macro", **parts
        ),
        keras.metrics.CategoricalAccuracy(): sklearn.accuracy_score(*best, **parts),
        keras.metrics.SparseCategoricalAccuracy(): sklearn.accuracy_score(*best, **parts),
        keras.metrics.BinaryCrossentropy(from_logits=True): sklearn.log_loss(
            flat, 1 / (1 + np.exp(-score)), **parts
        ),
    }
    for metric, expected in cases.items():
        received = update_and_compute(compiled_metric(metric, 2), ids, logits, weights)
        assert received == pytest.approx(expected, abs=1e-3), metric
    one_hot = update_and_compute(compiled_metric("recall", 2), np.eye(2)[ids], logits, weights)
    assert one_hot == pytest.approx(cases["recall"], rel=1e-5)


def test_multi_label_metrics_match_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    y, logits = generator.integers(0, 2, (9, 3)), generator.normal(0, 2, (9, 3))
    weights = np.ones(9)
    cases = {
        "accuracy": np.mean(y == (logits > 0)),
        "precision": sklearn.precision_score(y, logits > 0, average="micro"),
        "f1": sklearn.f1_score(y, logits > 0, average="micro"),
        keras.metrics.AUC(
            multi_label=True, num_labels=3, from_logits=True, num_thresholds=5000
        ): sklearn.roc_auc_score(y, logits),
    }
    for metric, expected in cases.items():
        received = update_and_compute(
            compiled_metric(metric, 3, multi_label=True), y, logits, weights
        )
        assert received == pytest.approx(expected, abs=1e-3), metric


def test_unsuitable_metrics_raise():
    with pytest.raises(
        ValueError, match=r"must have a class_id for more than two classes\. Received: 3 classes"
    ):
        compiled_metric(keras.metrics.Precision(), 3)
    for metric in ("auc", "f1", keras.metrics.F1Score("macro"), keras.metrics.Recall(class_id=1)):
        with pytest.raises(ValueError, match=r"must accept class IDs. Received"):
            compiled_metric(metric, None)
    for metric in ("mse", keras.metrics.mean_squared_error, keras.metrics.Accuracy()):
        with pytest.raises(ValueError, match="class IDs must be a classification"):
            compiled_metric(metric, 2)
    with pytest.raises(
        ValueError, match=r"multiple labels must be a classification metric\. Received: cat"
    ):
        compiled_metric("categorical_accuracy", 3, multi_label=True)
    for metric in ("accuracy", "auc"):
        with pytest.raises(ValueError, match=r"for regression must accept numbers. Received"):
            compiled_metric(metric, 1)
    # Targets with a number per class have their own metrics, and users can define metrics.
    assert compiled_metric("mse", 2, takes_ids=False) == "mse"
    own = ElementMean()
    assert compiled_metric(own, 2) is own
    assert isinstance(compiled_metric("acc", 3), ClassAccuracy)

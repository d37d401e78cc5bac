# SPDX-License-Identifier: Apache-2.0
"""Compares metrics with their definitions, and checks the values of undefined metrics."""

import math

import numpy as np
import pytest

from training.scores.classifier_scores import metrics_for, score, selection_score

pytestmark = pytest.mark.backend_independent


def test_classification_scores_match_definitions():
    labels = [1, 1, 1, 0, 0, 0, 0, 0]
    predictions = [1, 1, 0, 1, 0, 0, 0, 0]
    # 2 true positives, 1 false positive, 1 false negative, 4 true negatives
    scores = score(["accuracy", "f1", "macro_f1", "mcc"], predictions, labels)
    assert list(scores) == ["accuracy", "f1", "macro_f1", "mcc"]
    f1, f1_of_class_0 = 2 * 2 / (2 * 2 + 1 + 1), 2 * 4 / (2 * 4 + 1 + 1)
    assert scores["accuracy"] == pytest.approx(75.0)
    assert scores["f1"] == pytest.approx(100 * f1)
    assert scores["macro_f1"] == pytest.approx(50 * (f1 + f1_of_class_0))
    assert scores["mcc"] == pytest.approx(100 * (2 * 4 - 1 * 1) / math.sqrt(3 * 3 * 5 * 5))


def test_regression_scores_match_definitions():
    labels, predictions = np.float32([0, 1, 2, 5]), np.float32([0.5, 1, 1.5, 9])
    scores = score(["pearson", "spearman", "mse"], predictions, labels)
    assert scores["pearson"] == pytest.approx(100 * np.corrcoef(labels, predictions)[0, 1])
    assert scores["spearman"] == pytest.approx(100.0)
    assert scores["mse"] == pytest.approx((0.25 + 0 + 0.25 + 16) / 4)


def test_constant_predictions_score_zero():
    assert score(["pearson", "spearman"], [2.5, 2.5, 2.5], [0, 1, 2]) == {
        "pearson": 0.0,
        "spearman": 0.0,
    }
    assert score(["pearson", "spearman"], [2.5], [1.0]) == {"pearson": 0.0, "spearman": 0.0}
    assert score(["mcc", "f1"], [0, 0, 0], [0, 1, 1]) == {"mcc": 0.0, "f1": 0.0}


def test_non_finite_predictions_raise():
    with pytest.raises(ValueError, match=r"predictions must be finite. Received: 1 of 2"):
        score(["pearson"], [1.0, float("nan")], [0, 1])


def test_metrics_depend_on_the_task():
    assert metrics_for(1) == ("pearson", "spearman", "mse")
    assert metrics_for(2) == ("accuracy", "f1")
    assert metrics_for(5) == ("accuracy", "macro_f1")
    assert selection_score({"mcc": 52.1}) == 52.1
    assert selection_score({"f1": 90.0, "accuracy": 86.0}) == 88.0
    assert selection_score({"pearson": 86.0, "spearman": 84.0, "mse": 3.0}) == 85.0

# SPDX-License-Identifier: Apache-2.0
"""Metrics for classification and regression.

Requires scikit-learn and SciPy from the extra `training`. They are imported only when needed, so
that commands can show their help without them.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Metric = Callable[[np.ndarray, np.ndarray], float]


def _correlation(name: str) -> Metric:
    def metric(predictions: np.ndarray, labels: np.ndarray) -> float:
        import scipy.stats

        if len(labels) < 2:
            return 0.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", scipy.stats.ConstantInputWarning)
            value = float(getattr(scipy.stats, name)(predictions, labels).statistic)
        return 0.0 if math.isnan(value) else value

    return metric


def _sklearn_metric(name: str, **options: Any) -> Metric:
    def metric(predictions: np.ndarray, labels: np.ndarray) -> float:
        from sklearn import metrics

        return float(getattr(metrics, name)(labels, predictions, **options))

    return metric


# Maps a name to a function of predictions and labels, and to its factor
_METRICS: dict[str, tuple[Metric, float]] = {
    "accuracy": (_sklearn_metric("accuracy_score"), 100.0),
    "f1": (_sklearn_metric("f1_score", average="binary", zero_division=0), 100.0),
    "macro_f1": (_sklearn_metric("f1_score", average="macro", zero_division=0), 100.0),
    "mcc": (_sklearn_metric("matthews_corrcoef"), 100.0),
    "pearson": (_correlation("pearsonr"), 100.0),
    "spearman": (_correlation("spearmanr"), 100.0),
    "mse": (_sklearn_metric("mean_squared_error"), 1.0),
}
_AVERAGES = ("micro", "macro")
LABEL_METRICS = ("average_precision", "micro_f1", "macro_f1")
# Number of bins in a reliability diagram
_BINS = 10
_REGRESSION_METRICS = ("pearson", "spearman", "mse")


def score(
    metric_names: Sequence[str], predictions: npt.ArrayLike, labels: npt.ArrayLike
) -> dict[str, float]:
    """Scores predictions in percent, as in GLUE. Only `mse` is in squared units.

    `f1` is the F1 of class 1, for two classes. `macro_f1` is the mean over the classes that occur
    in the labels or the predictions. The correlation with a constant is undefined. GLUE uses SciPy,
    which returns NaN, or raises an error for a single example. This function returns 0 instead,
    like `mcc` in scikit-learn, so that means over seeds stay finite.

    Args:
        metric_names: Among `accuracy`, `f1`, `macro_f1`, `mcc`, `pearson`, `spearman`, `mse`.
        predictions: Class IDs or scores of shape `(examples,)`.
        labels: Class IDs or scores in the same order.

    Returns:
        The score by metric name, in the order of `metric_names`.

    Raises:
        ValueError: If a prediction is not finite.

    Example:

    >>> score(["accuracy", "f1"], [1, 1, 0, 0], [1, 1, 1, 0])
    {'accuracy': 75.0, 'f1': 80.0}
    """
    answers, true = np.asarray(predictions), np.asarray(labels)
    if not np.all(np.isfinite(answers)):
        count = int(np.sum(~np.isfinite(answers)))
        raise ValueError(f"predictions must be finite. Received: {count} of {answers.size} are not")
    return {
        name: _METRICS[name][0](*_as_doubles(name, answers, true)) * _METRICS[name][1]
        for name in metric_names
    }


def label_scores(
    labels: np.ndarray, probabilities: np.ndarray, thresholds: Sequence[float]
) -> dict[str, float]:
    """Scores multi-label predictions in percent, as in scikit-learn.

    `average_precision` is the mean over the labels, and does not depend on thresholds. `micro_f1`
    counts all labels together, and `macro_f1` is the mean over the labels.

    Args:
        labels: 0 or 1, of shape `(examples, classes)`.
        probabilities: The probability of each label, of shape `(examples, classes)`.
        thresholds: The lowest probability for predicting each label.

    Example:

    >>> label_scores(np.array([[1, 0], [1, 1]]), np.array([[0.9, 0.3], [0.8, 0.6]]), [0.85, 0.5])
    {'average_precision': 100.0, 'micro_f1': 80.0, 'macro_f1': 83.33333333333333}
    """
    from sklearn import metrics

    answers = probabilities >= np.array(thresholds, probabilities.dtype)
    with warnings.catch_warnings():  # scikit-learn warns of labels that no example has.
        warnings.simplefilter("ignore", UserWarning)
        average = metrics.average_precision_score(labels, probabilities, average="macro")
    f1 = (metrics.f1_score(labels, answers, average=of, zero_division=0) for of in _AVERAGES)
    scores = (average, *f1)
    return {name: 100 * float(one) for name, one in zip(LABEL_METRICS, scores, strict=True)}


def per_class_scores(
    predictions: npt.ArrayLike, labels: npt.ArrayLike, class_names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Returns each class's precision, recall and F1 in percent, and its number of examples.

    Args:
        predictions: Class IDs of shape `(examples,)`. For multi-label data, 0 and 1 of shape
            `(examples, classes)`.
        labels: The labels, of the same shape.
        class_names: The classes in the order of their IDs.
    """
    from sklearn import metrics

    columns = metrics.precision_recall_fscore_support(
        labels, predictions, labels=range(len(class_names)), zero_division=0
    )
    return {
        name: {
            "precision": 100 * float(precision),
            "recall": 100 * float(recall),
            "f1": 100 * float(f1),
            "rows": int(rows),
        }
        for name, precision, recall, f1, rows in zip(class_names, *columns, strict=True)
    }


def _as_doubles(name: str, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Converts scores to float64, because rounding errors in float32 change Pearson's r visibly."""
    return tuple(
        array.astype("float64") if name in _REGRESSION_METRICS else array for array in arrays
    )


def calibration_bins(
    right: Sequence[bool] | np.ndarray, probabilities: Sequence[float] | np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Divides predictions into ten bins by their probability.

    Returns:
        The mean probability, the accuracy and the fraction of predictions in each nonempty bin.
    """
    is_right, predicted = np.asarray(right, float), np.asarray(probabilities, float)
    bins = np.minimum((predicted * _BINS).astype(int), _BINS - 1)
    counts = np.bincount(bins, minlength=_BINS)
    is_nonempty = counts > 0
    confidence = np.bincount(bins, predicted, _BINS)[is_nonempty] / counts[is_nonempty]
    accuracy = np.bincount(bins, is_right, _BINS)[is_nonempty] / counts[is_nonempty]
    return confidence, accuracy, counts[is_nonempty] / counts.sum()


def calibration_error(
    right: Sequence[bool] | np.ndarray, probabilities: Sequence[float] | np.ndarray
) -> float:
    """Returns the expected calibration error (ECE) in percent.

    It is the mean absolute difference between accuracy and probability, weighted by the number of
    predictions in each of the `calibration_bins`.

    Example:

    >>> calibration_error([True, False, True, True], [0.75, 0.75, 0.75, 0.75])
    0.0

    Reference:
        [Guo et al., 2017](https://arxiv.org/abs/1706.04599), section 2.
    """
    confidence, accuracy, fraction = calibration_bins(right, probabilities)
    return 100 * float(np.sum(fraction * np.abs(accuracy - confidence)))


def metrics_for(num_classes: int) -> tuple[str, ...]:
    """Returns the default metrics for a number of classes. One class means regression."""
    if num_classes == 1:
        return ("pearson", "spearman", "mse")
    return ("accuracy", "f1") if num_classes == 2 else ("accuracy", "macro_f1")


def selection_score(scores: Mapping[str, float]) -> float:
    """Returns the score that selects runs and checkpoints. Higher is better.

    It is the mean of all metrics except `mse`. GLUE averages in the same way F1 and accuracy for
    MRPC and QQP, and both correlations for STS-B.
    """
    return float(np.mean([value for name, value in scores.items() if name != "mse"]))

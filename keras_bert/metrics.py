# SPDX-License-Identifier: Apache-2.0
"""Metrics over all examples or tokens, independent of how they are batched."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import metrics, ops

from keras_bert.ops.annotations import Tensor

# Keras' `mode="auto"` reads from `_direction` whether a metric improves "up" or "down".


@keras.saving.register_keras_serializable(package="keras_bert")
class ElementMean(keras.metrics.Mean):
    """The weighted mean over all elements of all batches since the last reset.

    `keras.metrics.Mean` first averages values and weights `(batch, length)` over the length, so an
    element in a long batch has less weight than an element in a short batch. Here, every element
    has its own weight, regardless of the batches and their padding.

    Args:
        name: Name of the metric.
        dtype: Dtype of the sums. Defaults to Keras' float dtype.

    Call arguments:
        values: Numbers of any shape.
        sample_weight: Weights for `values` or its leading axes. Elements with weight 0 are ignored.

    Example:

    >>> metric = keras_bert.metrics.ElementMean()
    >>> metric.update_state(np.array([[4.0]]), np.array([[1.0]]))
    >>> metric.update_state(np.array([[1.0, 1.0, 0.0]]), np.array([[1.0, 1.0, 0.0]]))
    >>> float(metric.result())
    2.0
    """

    def __init__(self, name: str = "mean", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def update_state(self, values: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        values = ops.cast(values, self.dtype)
        if sample_weight is None:
            return super().update_state(ops.reshape(values, (-1,)))
        weights = weights_like(ops.cast(sample_weight, self.dtype), ops.shape(values))
        values = ops.where(weights == 0, 0, values)  # NaN times 0 would be NaN.
        return super().update_state(ops.reshape(values, (-1,)), ops.reshape(weights, (-1,)))


@keras.saving.register_keras_serializable(package="keras_bert")
class ElementMetric(keras.metrics.MeanMetricWrapper, ElementMean):
    """The weighted mean of a function over all elements of all batches.

    A task's `compile` creates an `ElementMetric` for each function passed as a metric.

    Args:
        fn: Function of `y_true` and `y_pred` that returns a value for each example or token.
        name: Name of the metric.
        dtype: Dtype of the sums. Defaults to Keras' float dtype.
        **kwargs: Other arguments of the function.

    Example:

    >>> metric = keras_bert.metrics.ElementMetric(lambda y, x: x, name="mean")
    >>> metric.update_state(np.array([[0]]), np.array([[4.0]]))
    >>> metric.update_state(np.array([[0, 0]]), np.array([[1.0, 1.0]]))
    >>> float(metric.result())
    2.0
    """

    def __init__(
        self, fn: Callable[..., Any], name: str | None = None, dtype: Any = None, **kwargs: Any
    ) -> None:
        keras.metrics.MeanMetricWrapper.__init__(self, fn, name=name, dtype=dtype, **kwargs)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ElementMetric:
        # Keras would replace the name by a custom object with the same name, probably the function.
        others = {key: value for key, value in config.items() if key != "name"}
        return cls(name=config["name"], **keras.saving.deserialize_keras_object(others))


def weights_like(weights: Any, shape: Sequence[Any]) -> Any:
    """Broadcasts weights to elements of shape `shape`."""
    if len(weights.shape) > len(shape):
        if weights.shape[-1] not in (1, None):
            raise ValueError(
                "A loss or metric must return a value for each example or token, and weights must "
                f"not have additional axes. Received: values {tuple(shape)} with weights "
                f"{tuple(weights.shape)}. Return values instead of their mean, and pass one weight "
                "for each value."
            )
        weights = ops.squeeze(weights, -1)
    for _ in range(len(shape) - len(weights.shape)):
        weights = ops.expand_dims(weights, -1)
    # With a bool mask as weights, TensorFlow would compute the product of bools.
    return ops.broadcast_to(ops.cast(weights, "float32"), shape)


@keras.saving.register_keras_serializable(package="keras_bert")
class ClassAccuracy(ElementMean):
    """The weighted accuracy of class IDs over all examples or tokens.

    Args:
        name: Name of the metric.
        dtype: Dtype of the sums. Defaults to Keras' float dtype.

    Call arguments:
        y_true: Class IDs, int `(...,)`, optionally with an additional last axis of size 1. Or
            values `(..., classes)`, of which the largest belongs to the correct class.
        y_pred: Logits or probabilities `(..., classes)`.
        sample_weight: Weights for the IDs or their leading axes. IDs with weight 0 are ignored.

    Example:

    >>> metric = keras_bert.metrics.ClassAccuracy()
    >>> logits = np.array([[[0.0, 1.0], [1.0, 0.0]]])
    >>> metric.update_state(np.array([[1, 1]]), logits, np.array([[1.0, 0.0]]))
    >>> float(metric.result())
    1.0
    """

    _direction = "up"

    def __init__(self, name: str = "accuracy", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def update_state(  # type: ignore[override]
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        is_right = ops.equal(
            ops.cast(ops.argmax(y_pred, axis=-1), "int32"), class_ids(y_true, y_pred)
        )
        return super().update_state(is_right, sample_weight)


def class_ids(y_true: Any, y_pred: Any) -> Any:
    """Returns the class IDs of labels, int32.

    Labels are IDs or have a value for each class. The function compares their shape with the shape
    `(..., classes)` of the logits `y_pred`.
    """
    if len(y_true.shape) < len(y_pred.shape):
        return ops.cast(y_true, "int32")
    # With a single class, for example a single choice, the value is not an ID.
    are_ids = y_true.shape[-1] == 1 != y_pred.shape[-1]
    ids = ops.squeeze(y_true, -1) if are_ids else ops.argmax(y_true, axis=-1)
    return ops.cast(ids, "int32")


# Keras' metrics by the form of labels and predictions that they expect: two classes as 0 and 1 with
# a probability, one-hot labels with probabilities, or IDs with probabilities
_BINARY_METRICS = (
    *(metrics.AUC, metrics.BinaryAccuracy, metrics.BinaryCrossentropy, metrics.BinaryIoU),
    *(metrics.Precision, metrics.PrecisionAtRecall, metrics.Recall, metrics.RecallAtPrecision),
    *(metrics.SensitivityAtSpecificity, metrics.SpecificityAtSensitivity),
    *(metrics.FalseNegatives, metrics.FalsePositives),
    *(metrics.TrueNegatives, metrics.TruePositives),
)
_ONE_HOT_METRICS = (
    *(metrics.CategoricalAccuracy, metrics.CategoricalCrossentropy),
    *(metrics.TopKCategoricalAccuracy, metrics.FBetaScore, metrics.IoU),
)
_SPARSE_METRICS = (
    *(metrics.SparseCategoricalAccuracy, metrics.SparseCategoricalCrossentropy),
    metrics.SparseTopKCategoricalAccuracy,
)


@keras.saving.register_keras_serializable(package="keras_bert")
class ClassificationMetric(keras.metrics.Metric):
    """A Keras metric, applied to a task's labels and logits.

    Keras' metrics expect probabilities and different forms of labels. A task's `compile` wraps
    them, so that their values match scikit-learn. Every token has the same weight, regardless of
    the batches.

    Args:
        metric: A classification metric of `keras.metrics`.
        multi_label: Whether an example can have any number of labels, each with its own
            probability. Otherwise, the classes are mutually exclusive.

    Call arguments:
        y_true: Class IDs `(...)`, or a value for each class, `(..., classes)`.
        y_pred: Logits `(..., classes)`.
        sample_weight: Weights for the IDs or their leading axes.

    Example:

    >>> metric = keras_bert.metrics.ClassificationMetric(keras.metrics.Recall())
    >>> metric.update_state(np.array([1, 1]), np.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> float(metric.result())  # one of the two examples of class 1
    0.5
    """

    def __init__(self, metric: keras.metrics.Metric, multi_label: bool = False) -> None:
        super().__init__(name=metric.name)
        self.metric = metric
        self.multi_label = multi_label
        if hasattr(metric, "_direction"):
            self._direction = metric._direction

    @property
    def takes_two_classes(self) -> bool:
        """Whether the metric expects 1 for the second of two classes, with its probability."""
        metric: Any = self.metric
        if isinstance(metric, keras.metrics.FBetaScore):
            return metric.average == "micro" and metric.threshold is not None
        takes_columns = getattr(metric, "multi_label", False)
        has_class = getattr(metric, "class_id", None) is not None
        return isinstance(metric, _BINARY_METRICS) and not (takes_columns or has_class)

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        num_classes = ops.shape(y_pred)[-1]
        if sample_weight is not None:
            sample_weight = weights_like(sample_weight, ops.shape(y_pred)[:-1])
            sample_weight = ops.reshape(ops.cast(sample_weight, self.dtype), (-1,))
        has_columns = len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] != 1
        ids = ops.reshape(class_ids(y_true, y_pred), (-1,))
        if not has_columns and not isinstance(self.metric, _SPARSE_METRICS):
            y_true = ops.one_hot(ids, num_classes)
        logits = ops.cast(ops.reshape(y_pred, (-1, num_classes)), self.dtype)
        columns = ops.reshape(y_true, (-1, num_classes)) if has_columns else y_true
        self.metric.update_state(*self._form(ids, columns, logits), sample_weight=sample_weight)

    def _form(self, ids: Any, columns: Any, logits: Any) -> tuple[Any, Any]:
        """Returns the labels and predictions in the form that the metric expects."""
        metric: Any = self.metric
        takes_logits = getattr(metric, "from_logits", getattr(metric, "_from_logits", False))
        if self.multi_label:
            return columns, logits if takes_logits else ops.sigmoid(logits)
        if self.takes_two_classes:
            # The probability of the second class is the sigmoid of the difference.
            score = logits[:, 1:] - logits[:, :1]
            return ids[:, None], score if takes_logits else ops.sigmoid(score)
        values = logits if takes_logits else ops.softmax(logits)
        if isinstance(metric, keras.metrics.IoU):
            best = ops.argmax(logits, axis=-1) if metric.sparse_y_pred else values
            return ids if metric.sparse_y_true else columns, best
        return ids if isinstance(metric, _SPARSE_METRICS) else columns, values

    def result(self) -> Any:
        return self.metric.result()

    def reset_state(self) -> None:
        self.metric.reset_state()

    def get_config(self) -> dict[str, Any]:
        metric = keras.saving.serialize_keras_object(self.metric)
        return {"metric": metric, "multi_label": self.multi_label}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> ClassificationMetric:
        metric = keras.saving.deserialize_keras_object(config["metric"])
        return cls(metric, config["multi_label"])


def compiled_metric(
    metric: Any, num_classes: int | None, *, multi_label: bool = False, takes_ids: bool = True
) -> Any:
    """Converts a metric of `compile` to the form that fits a task's labels and logits.

    Args:
        metric: A metric that `keras.Model.compile` accepts, or one of the names in `_BY_NAME`.
        num_classes: Number of classes, 1 for regression, or `None` if it differs between examples.
        multi_label: Whether an example can have any number of labels.
        takes_ids: Whether labels are class IDs. Otherwise they may be numbers for each class.

    Raises:
        ValueError: If the metric does not support such labels.
    """
    if isinstance(metric, ClassAccuracy | ClassificationMetric):
        return metric
    is_regression = num_classes == 1 and not multi_label
    name = metric.lower() if isinstance(metric, str) else ""
    if name in ("accuracy", "acc") and not multi_label and not is_regression:
        return ClassAccuracy(name=metric)
    found = _BY_NAME[name](metric) if name in _BY_NAME else _as_metric(metric)
    kinds = _BINARY_METRICS + (() if multi_label else _ONE_HOT_METRICS + _SPARSE_METRICS)
    is_for_classes = isinstance(found, (*kinds, keras.metrics.FBetaScore))
    if is_regression:
        if not is_for_classes:
            return metric
        raise ValueError(
            "A metric for regression must accept numbers. Received: "
            f"{found.name}. Pass for example keras.metrics.MeanAbsoluteError(). For "
            "classification with two classes, create the model with num_classes=2."
        )
    if not is_for_classes:
        if inspect.isfunction(found):
            return ElementMetric(found, name=found.__name__)
        if type(found) is keras.metrics.MeanMetricWrapper:
            return ElementMetric(found._fn, found.name, found.dtype, **found._fn_kwargs)
        if not (takes_ids or multi_label) or not type(found).__module__.startswith("keras."):
            return metric
        raise ValueError(
            f"A metric for {'multiple labels' if multi_label else 'class IDs'} must be a "
            f'classification metric. Received: {found.name}. Pass for example "accuracy".'
        )
    if num_classes is None and not isinstance(found, _SPARSE_METRICS):
        raise ValueError(
            "If the number of classes differs between examples, a metric must accept class IDs. "
            f'Received: {found.name}. Pass for example "accuracy".'
        )
    if isinstance(found, keras.metrics.IoU):  # Its integer dtype would truncate weights.
        found = type(found).from_config({**found.get_config(), "dtype": "float32"})
    wrapped = ClassificationMetric(found, multi_label)
    if wrapped.takes_two_classes and not multi_label and num_classes != 2:
        raise ValueError(
            f"The metric {found.name} must have a class_id for more than two classes. Received: "
            f"{num_classes} classes. Pass for example keras.metrics.Recall(class_id=2), or "
            'keras.metrics.F1Score(average="macro").'
        )
    return wrapped


# The thresholds for "auc" are the probabilities of equally spaced logits. Keras' 200 equally spaced
# probabilities cannot rank a confident model's predictions.
_AUC_THRESHOLDS = [1 / (1 + math.exp(-step / 32)) for step in range(-480, 481)]

_BY_NAME: dict[str, Callable[[str], keras.metrics.Metric]] = {
    **dict.fromkeys(("accuracy", "acc"), lambda name: metrics.BinaryAccuracy(name)),
    "precision": lambda name: metrics.Precision(name=name),
    "recall": lambda name: metrics.Recall(name=name),
    "f1": lambda name: metrics.F1Score("micro", 0.5, name),
    "auc": lambda name: metrics.AUC(thresholds=_AUC_THRESHOLDS, name=name),
}


def _as_metric(metric: Any) -> Any:
    """Converts a metric name or Keras function to an object. Returns other metrics unchanged."""
    if inspect.isfunction(metric) and metric.__module__.startswith("keras."):
        metric = metric.__name__
    if not isinstance(metric, str):
        return metric
    found = keras.metrics.get(metric)
    found.name = metric
    return found


@keras.saving.register_keras_serializable(package="keras_bert")
class MultiLabelF1(keras.metrics.Metric):
    """The F1 of multi-label classification over all examples, as in scikit-learn.

    Args:
        num_classes: Number of labels.
        average: `"micro"` to compute it from the counts over all labels, or `"macro"` for the mean
            F1 over labels. A label that is never true or predicted has an F1 of 0.
        threshold: Minimum probability to predict a label.
        name: Name of the metric. Defaults to `micro_f1` or `macro_f1`.
        dtype: Dtype of the result. Defaults to Keras' float dtype.

    Call arguments:
        y_true: 0 or 1, `(batch, num_classes)`.
        y_pred: Logits `(batch, num_classes)`.
        sample_weight: Weights `(batch,)`.

    Raises:
        ValueError: If `average` is neither `"micro"` nor `"macro"`.

    Example:

    >>> metric = keras_bert.metrics.MultiLabelF1(num_classes=2)
    >>> metric.update_state(np.array([[1, 0], [1, 1]]), np.array([[2.0, -1.0], [-3.0, 1.0]]))
    >>> round(float(metric.result()), 4)  # two of three labels found, no wrong label
    0.8
    """

    _direction = "up"

    def __init__(
        self,
        num_classes: int,
        average: str = "micro",
        threshold: float = 0.5,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        if average not in ("micro", "macro"):
            raise ValueError(f"average must be 'micro' or 'macro'. Received: {average!r}")
        super().__init__(name=name or f"{average}_f1", dtype=dtype)
        self.num_classes = num_classes
        self.average = average
        self.threshold = threshold
        # The number of true positives, and the number of true labels plus the number of predicted
        # labels
        self.both, self.all = (
            self.add_weight(shape=(num_classes,), initializer="zeros", name=name)
            for name in ("both", "all")
        )

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        is_true = ops.cast(y_true, self.dtype)
        is_predicted = ops.cast(ops.sigmoid(y_pred) >= self.threshold, self.dtype)
        weights = ops.ones((1, 1), self.dtype)
        if sample_weight is not None:
            weights = ops.reshape(ops.cast(sample_weight, self.dtype), (-1, 1))
        self.both.assign_add(ops.sum(weights * is_true * is_predicted, axis=0))
        self.all.assign_add(ops.sum(weights * (is_true + is_predicted), axis=0))

    def result(self) -> Any:
        both, total = self.both.value, self.all.value
        if self.average == "micro":
            both, total = ops.sum(both), ops.sum(total)
        return ops.mean(ops.divide_no_nan(2 * both, total))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "average": self.average,
            "threshold": self.threshold,
        }


@keras.saving.register_keras_serializable(package="keras_bert")
class Perplexity(ElementMean):
    """Perplexity: `exp` of the mean cross-entropy.

    The weighted mean is over all tokens since the last reset. The mean over the perplexities of
    batches would be larger.

    Args:
        name: Name of the metric.
        dtype: Dtype of the sums. Defaults to Keras' float dtype.

    Call arguments:
        y_true: Target IDs, int `(...,)`.
        y_pred: Logits `(..., vocabulary)`.
        sample_weight: Weights for `y_true` or its leading axes. Tokens with weight 0 are ignored.

    Example:

    >>> import numpy as np
    >>> metric = keras_bert.metrics.Perplexity()
    >>> metric.update_state(np.array([[1, 3]]), np.zeros((1, 2, 4)))
    >>> round(float(metric.result()), 4)
    4.0
    """

    _direction = "down"

    def __init__(self, name: str = "perplexity", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def update_state(  # type: ignore[override]
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        logits = ops.cast(y_pred, self.dtype)
        values = ops.sparse_categorical_crossentropy(y_true, logits, from_logits=True)
        return super().update_state(values, sample_weight)

    def result(self) -> Any:
        return ops.exp(super().result())

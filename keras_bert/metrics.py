# SPDX-License-Identifier: Apache-2.0
"""Metrics that are means over all rows or tokens, and so do not depend on the batches."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor


@keras.saving.register_keras_serializable(package="keras_bert")
class ElementMean(keras.metrics.Mean):
    """The weighted mean over all elements of all batches since the last reset.

    `keras.metrics.Mean` averages values and weights `(batch, length)` over the length first, so
    that an element of a long batch has less weight than one of a short batch. Here every element
    has its own weight, independent of the batches and their padding.

    Args:
        name: The name of the metric.
        dtype: The dtype of the sums. Defaults to Keras' float dtype.

    Call arguments:
        values: Numbers of any shape.
        sample_weight: Weights of the shape of `values`, or of its leading axes; elements with
            weight 0 are ignored.

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
        weights = ops.cast(sample_weight, self.dtype)
        if len(weights.shape) > len(values.shape):
            weights = ops.squeeze(weights, -1)
        while len(weights.shape) < len(values.shape):
            weights = ops.expand_dims(weights, -1)
        weights = ops.broadcast_to(weights, ops.shape(values))
        return super().update_state(ops.reshape(values, (-1,)), ops.reshape(weights, (-1,)))


@keras.saving.register_keras_serializable(package="keras_bert")
class ClassAccuracy(ElementMean):
    """The weighted accuracy of class ids over all rows or tokens.

    Args:
        name: The name of the metric.
        dtype: The dtype of the sums. Defaults to Keras' float dtype.

    Call arguments:
        y_true: Class ids, int `(...,)`, optionally with an additional last axis of size 1.
        y_pred: Logits or probabilities `(..., classes)`.
        sample_weight: Weights of the shape of the ids, or of its leading axes; ids with weight 0
            are ignored.

    Example:

    >>> metric = keras_bert.metrics.ClassAccuracy()
    >>> logits = np.array([[[0.0, 1.0], [1.0, 0.0]]])
    >>> metric.update_state(np.array([[1, 1]]), logits, np.array([[1.0, 0.0]]))
    >>> float(metric.result())
    1.0
    """

    def __init__(self, name: str = "accuracy", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def update_state(  # type: ignore[override]
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        ids = ops.cast(y_true, "int32")
        if len(ids.shape) == len(y_pred.shape):
            ids = ops.squeeze(ids, -1)
        is_right = ops.equal(ops.cast(ops.argmax(y_pred, axis=-1), "int32"), ids)
        return super().update_state(is_right, sample_weight)


@keras.saving.register_keras_serializable(package="keras_bert")
class MultiLabelF1(keras.metrics.Metric):
    """The F1 of several labels for a row, over all rows: that of scikit-learn.

    Args:
        num_classes: Number of labels.
        average: `"micro"`, from the counts over all labels; or `"macro"`, the mean of the F1 of
            each label, which is 0 for a label that neither a row nor a prediction has.
        threshold: The probability from which a label is predicted.
        name: The name of the metric. Defaults to `micro_f1` or `macro_f1`.
        dtype: The dtype of the result. Defaults to Keras' float dtype.

    Call arguments:
        y_true: 0 or 1, `(batch, num_classes)`.
        y_pred: Logits `(batch, num_classes)`.
        sample_weight: Weights `(batch,)`.

    Raises:
        ValueError: If `average` is neither of them.

    Example:

    >>> metric = keras_bert.metrics.MultiLabelF1(num_classes=2)
    >>> metric.update_state(np.array([[1, 0], [1, 1]]), np.array([[2.0, -1.0], [-3.0, 1.0]]))
    >>> round(float(metric.result()), 4)  # two of three found, and none wrong
    0.8
    """

    def __init__(
        self,
        num_classes: int,
        average: str = "micro",
        threshold: float = 0.5,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        if average not in ("micro", "macro"):
            raise ValueError(f"average is {average!r}; it must be 'micro' or 'macro'.")
        super().__init__(name=name or f"{average}_f1", dtype=dtype)
        self.num_classes = num_classes
        self.average = average
        self.threshold = threshold
        # Labels that are true and predicted, and twice that with those that are only one of both
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

    The weighted mean is over all tokens since the last reset. (The mean of the perplexities of
    batches would be larger.)

    Args:
        name: The name of the metric.
        dtype: The dtype of the sums. Defaults to Keras' float dtype.

    Call arguments:
        y_true: The target ids, int `(...,)`.
        y_pred: Logits `(..., vocabulary)`.
        sample_weight: Weights of the shape of `y_true`, or of its leading axes; tokens with weight
            0 are ignored.

    Example:

    >>> import numpy as np
    >>> metric = keras_bert.metrics.Perplexity()
    >>> metric.update_state(np.array([[1, 3]]), np.zeros((1, 2, 4)))
    >>> round(float(metric.result()), 4)
    4.0
    """

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

# SPDX-License-Identifier: Apache-2.0
"""What Keras' own metrics lack."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_bert")
class Perplexity(keras.metrics.Mean):
    """`exp` of the mean cross-entropy: among how many tokens a model wavers.

    Over all tokens seen since the last reset, each by its weight: not the mean of the batches'
    perplexities, which is larger.

    Args:
        name: The metric's name.
        dtype: The dtype of its sums; float32 by default.

    Call arguments:
        y_true: int `(..., )`, the right ids.
        y_pred: Logits `(..., vocabulary)`.
        sample_weight: Broadcasts to `y_true`; 0 leaves a token out.

    Example:

    >>> import numpy as np
    >>> metric = keras_bert.metrics.Perplexity()
    >>> metric.update_state(np.array([[1, 3]]), np.zeros((1, 2, 4)))
    >>> round(float(metric.result()), 4)
    4.0
    """

    def __init__(self, name: str = "perplexity", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        logits = ops.cast(y_pred, self.dtype)
        values = ops.sparse_categorical_crossentropy(y_true, logits, from_logits=True)
        return super().update_state(values, sample_weight)

    def result(self) -> Any:
        return ops.exp(super().result())

# SPDX-License-Identifier: Apache-2.0
"""Losses that Keras does not have."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert.ops.annotations import Tensor
from keras_bert.ops.attention_mask import masked_score


@keras.saving.register_keras_serializable(package="keras_bert")
class InBatchNegatives(keras.losses.Loss):
    """The cross-entropy of finding a vector's partner among those of all pairs in a batch.

    Args:
        scale: The factor of the products of vectors; for normalized vectors, the inverse
            temperature.
        symmetric: Whether the first vector of a pair is also looked for among the first ones. If
            not, each pair counts the one way, from its first vector to its second.
        reduction, name, dtype: As in Keras.

    Call arguments:
        y_true: int `(2 * pairs,)`: which pair a row belongs to, -1 for a row that only fills the
            batch up, which is no candidate. Rows with the same number are no negatives of each
            other.
        y_pred: Vectors `(2 * pairs, dim)`, the two of a pair in consecutive rows.

    Returns:
        Before the reduction, `(2 * pairs,)`: the loss of each pair twice, or with `symmetric` that
        of each of its vectors.

    Example:

    >>> loss = keras_bert.losses.InBatchNegatives(scale=1.0)
    >>> vectors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> round(float(loss(np.array([0, 0, 1, 1]), vectors)), 4)  # log(1 + exp(-1))
    0.3133

    Reference:
        [Efficient Natural Language Response Suggestion](https://arxiv.org/abs/1705.00652),
        section 4.4; [Sentence-BERT](https://arxiv.org/abs/1908.10084).
    """

    def __init__(
        self,
        scale: float = 20.0,
        symmetric: bool = False,
        reduction: str = "mean_with_sample_weight",
        name: str = "in_batch_negatives",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.scale = scale
        self.symmetric = symmetric

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        scores = self.scale * partner_scores(y_true, y_pred)
        forward = _diagonal_cross_entropy(scores)
        backward = _diagonal_cross_entropy(ops.transpose(scores)) if self.symmetric else forward
        # (pairs, 2) -> (2 * pairs,)
        return ops.reshape(ops.stack([forward, backward], axis=1), (-1,))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale, "symmetric": self.symmetric}


def partner_scores(y_true: Tensor, y_pred: Tensor) -> Tensor:
    """The products of first and second vectors, `(pairs, pairs)`, very low where one is masked.

    Args:
        y_true, y_pred: As in `InBatchNegatives`.
    """
    # (2 * pairs, dim) -> (pairs, 2, dim)
    pairs = ops.reshape(y_pred, (-1, 2, y_pred.shape[-1]))
    numbers = ops.cast(ops.reshape(y_true, (-1, 2))[:, 0], "int32")
    scores = ops.matmul(pairs[:, 0], ops.transpose(pairs[:, 1]))
    same = ops.equal(numbers[:, None], numbers)
    is_negative = ops.logical_and(ops.logical_not(same), numbers >= 0)
    indices = ops.arange(ops.shape(scores)[0])
    is_partner = ops.equal(indices[:, None], indices)
    low = masked_score(keras.backend.standardize_dtype(scores.dtype))
    return ops.where(ops.logical_or(is_partner, is_negative), scores, low)


def _diagonal_cross_entropy(scores: Any) -> Any:
    """`(pairs,)` of scores `(pairs, pairs)` whose diagonal holds the right ones."""
    return ops.logsumexp(scores, axis=1) - ops.diagonal(scores)


@keras.saving.register_keras_serializable(package="keras_bert")
class SoftTargetDivergence(keras.losses.Loss):
    """How far a student's softened distribution is from its teacher's: `T^2 KL(teacher, student)`.

    Args:
        temperature: The divisor of both logits (T). The factor `T^2` keeps the size of
            the gradients, whatever the temperature.
        reduction, name, dtype: As in Keras.

    Call arguments:
        y_true: The teacher's logits `(..., classes)`.
        y_pred: The student's, of the same shape.

    Returns:
        Before the reduction, `(...)`.

    Example:

    >>> loss = keras_bert.losses.SoftTargetDivergence(temperature=2.0)
    >>> round(float(loss(np.array([[2.0, 0.0]]), np.array([[0.0, 2.0]]))), 4)
    1.8485

    Reference:
        [Distilling the Knowledge in a Neural Network](https://arxiv.org/abs/1503.02531),
        section 2; [DistilBERT](https://arxiv.org/abs/1910.01108), section 2.
    """

    def __init__(
        self,
        temperature: float = 2.0,
        reduction: str = "mean_with_sample_weight",
        name: str = "soft_target_divergence",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if temperature <= 0:
            raise ValueError(f"temperature is {temperature}; it must be above 0.")
        self.temperature = temperature

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return soft_target_divergence(y_true, y_pred, self.temperature)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "temperature": self.temperature}


def soft_target_divergence(teacher: Any, student: Any, temperature: float) -> Any:
    """`SoftTargetDivergence` without a reduction: `(...)` of logits `(..., classes)`."""
    teacher = ops.log_softmax(ops.cast(teacher, "float32") / temperature, axis=-1)
    student = ops.log_softmax(ops.cast(student, "float32") / temperature, axis=-1)
    return temperature**2 * ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)


@keras.saving.register_keras_serializable(package="keras_bert")
class CosineDistance(keras.losses.Loss):
    """One minus the cosine of two vectors.

    Args:
        reduction, name, dtype: As in Keras.

    Call arguments:
        y_true: Vectors `(..., dim)`.
        y_pred: Vectors of the same shape.

    Returns:
        Before the reduction, `(...)`.

    Reference:
        [DistilBERT](https://arxiv.org/abs/1910.01108), section 3, L_cos.
    """

    def __init__(
        self,
        reduction: str = "mean_with_sample_weight",
        name: str = "cosine_distance",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return cosine_distance(y_true, y_pred)


def cosine_distance(x: Any, y: Any) -> Any:
    """`CosineDistance` without a reduction: `(...)` of vectors `(..., dim)`."""
    x, y = (ops.normalize(ops.cast(part, "float32"), axis=-1) for part in (x, y))
    return 1 - ops.sum(x * y, axis=-1)

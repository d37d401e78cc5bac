# SPDX-License-Identifier: Apache-2.0
"""Losses for sentence embeddings, distillation, re-ranking and sequences of labels."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_bert import checks
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.masks import masked_score


@keras.saving.register_keras_serializable(package="keras_bert")
class InBatchNegatives(keras.losses.Loss):
    """Multiple negatives ranking loss with in-batch negatives, for pairs of embeddings.

    It is the cross-entropy of the softmax over dot products. The candidates for a pair's first
    embedding are the second embeddings of all pairs in the batch.

    Args:
        scale: Factor of the dot products. For normalized embeddings, this is the inverse
            temperature. Defaults to 20.
        symmetric: Whether to also compute the loss from a pair's second embedding to the first
            embeddings of all pairs. Defaults to `False`.
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: int `(2 * pairs,)`, a number that identifies the text or pair of each embedding.
            Padding has -1 and is not a negative. Pairs that share a number, for example pairs with
            the same text, are not negatives of each other. Negatives with the same number count
            only once.
        y_pred: Embeddings `(2 * pairs, dim)`. The two embeddings of a pair are consecutive rows.

    Returns:
        Before the reduction, a tensor `(2 * pairs,)` with the loss of each pair twice, or with
        `symmetric` in both directions.

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
        checks.POSITIVE.check(scale=scale)
        self.scale = scale
        self.symmetric = symmetric

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        # (2 * pairs, dim) -> (pairs, 2, dim) -> (pairs, pairs)
        pairs = ops.reshape(y_pred, (-1, 2, y_pred.shape[-1]))
        scores = ops.matmul(pairs[:, 0], ops.transpose(pairs[:, 1]))
        numbers = ops.cast(ops.reshape(y_true, (-1, 2)), "int32")
        # (pairs, 1, 2, 1) == (pairs, 1, 2) -> (pairs, pairs)
        is_same = ops.any(numbers[:, None, :, None] == numbers[:, None], axis=(2, 3))
        # Pairs with the number -1 are padding. After transposition, the rows are the candidates.
        is_valid = ops.logical_and(numbers[:, :1] >= 0, numbers[:, 0] >= 0)
        is_negative = ops.logical_and(ops.logical_not(is_same), is_valid)
        forward = self._cross_entropy(scores, is_negative, numbers, side=1)
        backward = forward
        if self.symmetric:
            backward = self._cross_entropy(ops.transpose(scores), is_negative, numbers, side=0)
        # (pairs, 2) -> (2 * pairs,)
        return ops.reshape(ops.stack([forward, backward], axis=1), (-1,))

    def _cross_entropy(self, scores: Any, is_negative: Any, numbers: Any, side: int) -> Any:
        """Computes the cross-entropy `(pairs,)` of the diagonal of scores `(pairs, candidates)`.

        The candidates are the texts on one side of the pairs. Each text counts once.
        """
        candidates, indices = numbers[:, side], ops.arange(ops.shape(scores)[0])
        is_earlier = ops.logical_and(candidates[:, None] == candidates, indices[:, None] > indices)
        # If the numbers identify pairs, a pair's embeddings have the same number.
        is_again = ops.logical_and(ops.any(is_earlier, axis=1), numbers[:, 0] != numbers[:, 1])
        is_negative = ops.logical_and(is_negative, ops.logical_not(is_again))
        is_partner = indices[:, None] == indices
        low = masked_score(keras.backend.standardize_dtype(scores.dtype))
        scores = self.scale * ops.where(ops.logical_or(is_partner, is_negative), scores, low)
        return ops.logsumexp(scores, axis=1) - ops.diagonal(scores)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale, "symmetric": self.symmetric}


@keras.saving.register_keras_serializable(package="keras_bert")
class CosineSimilarityLoss(keras.losses.Loss):
    """The squared error of the cosine similarity for scored pairs of embeddings.

    Args:
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: float `(2 * pairs,)`, the score of each embedding's pair.
        y_pred: Embeddings `(2 * pairs, dim)`. The two embeddings of a pair are consecutive rows.

    Returns:
        Before the reduction, a tensor `(2 * pairs,)` with the loss of each pair twice.

    Example:

    >>> loss = keras_bert.losses.CosineSimilarityLoss()
    >>> float(loss(np.array([0.5, 0.5]), np.array([[2.0, 0.0], [1.0, 0.0]])))
    0.25

    Reference:
        [Sentence-BERT](https://arxiv.org/abs/1908.10084), section 3, regression objective.
    """

    def __init__(
        self,
        reduction: str = "mean_with_sample_weight",
        name: str = "cosine_similarity_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        similarity = 1 - cosine_distance(y_pred[::2], y_pred[1::2])
        # (pairs,) -> (2 * pairs,)
        return ops.square(ops.cast(y_true, similarity.dtype) - ops.repeat(similarity, 2))


@keras.saving.register_keras_serializable(package="keras_bert")
class SoftTargetDivergence(keras.losses.Loss):
    """The divergence of a student's softened distribution from the teacher's, for distillation.

    It is the Kullback-Leibler divergence `T^2 KL(teacher, student)` between the softmaxes of
    `logits / T`, where T is the temperature. The factor `T^2` makes the scale of the gradients
    independent of the temperature.

    Args:
        temperature: Divisor of both logits. Defaults to 2.
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: The teacher's logits, `(..., classes)`.
        y_pred: The student's logits, of the same shape.

    Returns:
        Before the reduction, a tensor `(...)`.

    Raises:
        ValueError: If `temperature` is not positive.

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
        checks.POSITIVE.check(temperature=temperature)
        self.temperature = temperature

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        teacher, student = (
            ops.log_softmax(ops.cast(logits, "float32") / self.temperature, axis=-1)
            for logits in (y_true, y_pred)
        )
        return self.temperature**2 * ops.sum(ops.exp(teacher) * (teacher - student), axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "temperature": self.temperature}


@keras.saving.register_keras_serializable(package="keras_bert")
class CosineDistance(keras.losses.Loss):
    """The cosine distance between vectors: 1 minus their cosine similarity.

    Args:
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: Vectors `(..., dim)`.
        y_pred: Vectors of the same shape.

    Returns:
        Before the reduction, a tensor `(...)`.

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


class RankingLoss(keras.losses.Loss):
    """Base class for losses that compare a model's scores of candidates with a teacher's scores."""


@keras.saving.register_keras_serializable(package="keras_bert")
class MarginMSELoss(RankingLoss):
    """The squared error of score differences, to train a re-ranker on a teacher's scores.

    A difference is the first candidate's score minus another candidate's score. The loss compares
    the model's differences with the teacher's, so the scale of the scores matters, but not their
    mean. Usually, the first candidate is relevant, and the others are hard negatives.

    Args:
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: The teacher's scores, float `(batch, candidates)`. Missing candidates have -inf.
        y_pred: The model's scores, of the same shape.

    Returns:
        Before the reduction, a tensor `(batch,)` with the mean over each example's differences.

    Example:

    >>> loss = keras_bert.losses.MarginMSELoss()
    >>> float(loss(np.array([[5.0, 2.0]]), np.array([[3.0, 2.0]])))
    4.0

    Reference:
        [Hofstätter et al., 2020](https://arxiv.org/abs/2010.02666), section 3.2.
    """

    def __init__(
        self,
        reduction: str = "mean_with_sample_weight",
        name: str = "margin_mse_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        is_candidate = ops.isfinite(y_true)[:, 1:]
        teacher, student = (
            ops.where(is_candidate, scores[:, :1] - scores[:, 1:], 0.0)
            for scores in (ops.cast(y_true, y_pred.dtype), y_pred)
        )
        count = ops.sum(ops.cast(is_candidate, y_pred.dtype), axis=-1)
        return ops.divide_no_nan(ops.sum(ops.square(student - teacher), axis=-1), count)


@keras.saving.register_keras_serializable(package="keras_bert")
class ListNetLoss(RankingLoss):
    """The cross-entropy between two softmaxes over a query's candidates, to train a re-ranker.

    One softmax is over the model's scores, the other over a teacher's scores or relevance grades.

    Args:
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: The teacher's scores or grades, float `(batch, candidates)`. Missing candidates have
            -inf.
        y_pred: The model's scores, of the same shape.

    Returns:
        Before the reduction, a tensor `(batch,)`.

    Example:

    >>> loss = keras_bert.losses.ListNetLoss()
    >>> round(float(loss(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]]))), 4)
    0.8133

    Reference:
        [Cao et al., 2007](https://dl.acm.org/doi/10.1145/1273496.1273513), section 4.2.
    """

    def __init__(
        self,
        reduction: str = "mean_with_sample_weight",
        name: str = "list_net_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        is_candidate = ops.isfinite(y_true)
        low = masked_score(keras.backend.standardize_dtype(y_pred.dtype))
        teacher, student = (
            ops.where(is_candidate, scores, low)
            for scores in (ops.cast(y_true, y_pred.dtype), y_pred)
        )
        targets = ops.where(is_candidate, ops.softmax(teacher, axis=-1), 0.0)
        return -ops.sum(targets * ops.log_softmax(student, axis=-1), axis=-1)


class CRFLoss(keras.losses.Loss):
    """The negative log likelihood of label sequences in a conditional random field.

    The default reduction divides the sum over all sequences by the number of labels, as the
    reduction `token_mean` of pytorch-crf.

    Args:
        crf: A `keras_bert.layers.ConditionalRandomField`. Because the loss uses the weights of a
            layer, it cannot be loaded from a config.
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: Class IDs, int `(batch, length)`. Positions with negative IDs are left out of the
            sequence.
        y_pred: Emissions `(batch, length, classes)`.

    Returns:
        Before the reduction, a tensor `(batch, length)`. Each label has an equal part of its
        sequence's loss, so the weight of a sequence is the mean weight of its labels.

    Reference:
        [Lample et al., 2016](https://arxiv.org/abs/1603.01360), section 2.2.
    """

    def __init__(
        self,
        crf: Any,
        reduction: str = "mean_with_sample_weight",
        name: str = "crf_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.crf = crf

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None) -> Any:
        weights = ops.cast(ops.greater_equal(y_true, 0), "float32")
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, "float32")
            is_per_sequence = len(sample_weight.shape) == 1
            weights *= sample_weight[:, None] if is_per_sequence else sample_weight
        return super().__call__(y_true, y_pred, weights)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        mask = ops.greater_equal(y_true, 0)
        losses = -self.crf.log_likelihood(y_pred, y_true, mask)
        is_label = ops.cast(mask, "float32")
        return ops.divide_no_nan(is_label * losses[:, None], ops.sum(is_label, 1, keepdims=True))


def cosine_distance(x: Any, y: Any) -> Any:
    """Computes `CosineDistance` of vectors `(..., dim)` without a reduction, with shape `(...)`."""
    x, y = (ops.normalize(ops.cast(part, "float32"), axis=-1) for part in (x, y))
    return 1 - ops.sum(x * y, axis=-1)

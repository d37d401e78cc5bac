# SPDX-License-Identifier: Apache-2.0
"""Losses for sentence embeddings, distillation, re-ranking and sequences of labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import keras
from keras import ops

from keras_bert import checks
from keras_bert.ops.annotations import Tensor
from keras_bert.ops.masks import masked_score

# For example, MarginMSELoss -> Margin, MSE, Loss
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class _MeanLoss(keras.losses.Loss):
    """Base class for losses with a default name, such as `margin_mse_loss` for `MarginMSELoss`."""

    def __init__(
        self,
        reduction: str = "mean_with_sample_weight",
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        name = name or _WORD_START.sub("_", type(self).__name__).lower()
        super().__init__(name=name, reduction=reduction, dtype=dtype)


class TupleLoss(_MeanLoss):
    """Base class for losses of the embeddings of texts in tuples.

    A tuple has a query, a relevant text and any number of hard negatives. The embeddings are
    `(batch, texts, dim)`. Before the reduction, a loss has one value for each tuple.
    """

    # The number of axes of the values before the reduction
    num_value_axes = 1
    # Whether the targets are numbers that identify the texts. Floats would round them.
    has_id_targets = False
    # Whether all tuples must be pairs
    needs_pairs = False
    # Whether tuples must have hard negatives
    needs_negatives = False


@keras.saving.register_keras_serializable(package="keras_bert")
class InBatchNegatives(TupleLoss):
    """Multiple negatives ranking loss with in-batch negatives and hard negatives.

    It is the cross-entropy of the softmax over dot products (InfoNCE), or over MaxSim scores. The
    candidates for a query are its relevant text, and the relevant texts and hard negatives of all
    tuples in the batch.

    A candidate is not a negative of a query if it is the same text as the query or its relevant
    text, or if it belongs to a pair that shares a text with the query's pair. A text that occurs
    multiple times counts once.

    Args:
        scale: Factor of the dot products. For normalized embeddings, this is the inverse
            temperature. Defaults to 20.
        symmetric: Whether to also compute the loss from each relevant text to all queries, and
            average both. Defaults to `False`.
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: int `(batch, texts)`, a number that identifies each text. Missing hard negatives and
            all texts of padding tuples have -1. If the texts of a pair have the same number, it
            identifies the pair.
        y_pred: Embeddings `(batch, texts, dim)` of the query, its relevant text, and hard
            negatives. For late interaction, the vectors of their tokens `(batch, texts, length,
            dim)`, 0 for tokens that are not used.

    Returns:
        Before the reduction, a tensor `(batch,)`.

    Example:

    >>> loss = keras_bert.losses.InBatchNegatives(scale=1.0)
    >>> vectors = np.array([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    >>> round(float(loss(np.array([[0, 1], [2, 3]]), vectors)), 4)  # log(1 + exp(-1))
    0.3133

    Reference:
        [Efficient Natural Language Response Suggestion](https://arxiv.org/abs/1705.00652),
        section 4.4; [DPR](https://arxiv.org/abs/2004.04906), section 3.2, for hard negatives.
    """

    has_id_targets = True

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
        # (batch, texts - 1, ...) -> (batch * candidates, ...)
        candidates = ops.reshape(y_pred[:, 1:], (-1, *ops.shape(y_pred)[2:]))
        if len(y_pred.shape) == 4:
            scores = max_similarities(y_pred[:, 0], candidates)
        else:
            # (batch, dim) x (dim, batch * candidates) -> (batch, batch * candidates)
            scores = ops.matmul(y_pred[:, 0], ops.transpose(candidates))
        return self.loss_of_scores(y_true, scores)

    def loss_of_scores(self, numbers: Tensor, scores: Tensor) -> Tensor:
        """Computes the loss from scores, for models whose scores are no dot products.

        Args:
            numbers: int `(batch, 1 + candidates)`, see `y_true`.
            scores: Float `(batch, batch * candidates)`, the score of each query with the candidates
                of all tuples in the batch.

        Returns:
            A tensor `(batch,)`.
        """
        numbers = ops.cast(numbers, "int32")
        queries, relevant = numbers[:, 0], numbers[:, 1]
        candidates = ops.reshape(numbers[:, 1:], (-1,))
        num_candidates = ops.shape(numbers)[1] - 1  # Unknown while TensorFlow traces
        owners = ops.repeat(queries, num_candidates)
        partners = ops.arange(ops.shape(numbers)[0]) * num_candidates
        forward = self._cross_entropy(scores, numbers, candidates, owners, partners)
        if not self.symmetric:
            return forward
        backward = self._cross_entropy(
            ops.transpose(ops.take(scores, partners, axis=1)),
            *(numbers, queries, relevant, ops.arange(ops.shape(numbers)[0])),
        )
        return (forward + backward) / 2

    def _cross_entropy(
        self, scores: Any, numbers: Any, candidates: Any, owners: Any, partners: Any
    ) -> Any:
        """Computes the cross-entropy of each row's partner among the candidates.

        Args:
            scores: Float `(batch, candidates)`.
            numbers: int `(batch, texts)`, the numbers of all texts.
            candidates: int `(candidates,)`, the candidates' numbers.
            owners: int `(candidates,)`, the number of the text that each candidate belongs to.
            partners: int `(batch,)`, the index of each row's relevant candidate.
        """
        candidates = ops.copy(candidates)  # On PyTorch, `searchsorted` needs contiguous memory.
        indices = ops.arange(ops.shape(candidates)[0])
        # If the numbers identify pairs, a pair's texts have the same number.
        is_again = ops.logical_and(_first_indices(candidates) != indices, candidates != owners)
        is_counted = ops.logical_and(candidates >= 0, ops.logical_not(is_again))
        is_relevant = _are_relevant(numbers[:, :2], candidates)
        is_negative = ops.logical_and(ops.logical_not(is_relevant), is_counted)
        is_negative = ops.logical_and(is_negative, numbers[:, :1] >= 0)
        is_partner = indices == partners[:, None]
        low = masked_score(keras.backend.standardize_dtype(scores.dtype))
        scores = self.scale * ops.where(ops.logical_or(is_partner, is_negative), scores, low)
        partner_scores = ops.take_along_axis(scores, partners[:, None], axis=1)
        return ops.logsumexp(scores, axis=1) - partner_scores[:, 0]

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale, "symmetric": self.symmetric}


def _first_indices(numbers: Any) -> Any:
    """Returns the index of the first equal number for each number, int `(numbers,)`."""
    order = ops.argsort(numbers)  # Equal numbers keep their order.
    return ops.take(order, ops.searchsorted(ops.take(numbers, order), numbers))


def _are_relevant(pairs: Any, candidates: Any) -> Any:
    """Returns whether each candidate is in a pair that shares a text with each row's pair.

    Args:
        pairs: int `(batch, 2)`, the numbers of each row's query and relevant text.
        candidates: int `(candidates,)`, the candidates' numbers.

    Returns:
        Bool `(batch, candidates)`.
    """
    # The product of two masks, `(batch, batch)` and `(batch, candidates)`, would cost more than the
    # scores. Instead, a table contains which texts are in the same pair. The last column is for
    # candidates that are in no pair.
    flat = ops.reshape(pairs, (-1,))
    texts, size = ops.sort(flat), ops.shape(flat)[0]
    rows = ops.reshape(ops.searchsorted(texts, flat), (-1, 2))
    columns = ops.searchsorted(texts, candidates)
    is_in_pair = ops.searchsorted(texts, candidates, side="right") > columns
    columns = ops.where(is_in_pair, columns, size)
    cells = ops.stack([ops.repeat(rows, 2, axis=1), ops.tile(rows, (1, 2))], axis=-1)
    table = ops.scatter_update(
        ops.zeros((size, size + 1), "bool"),
        ops.reshape(cells, (-1, 2)),
        ops.ones((2 * size,), "bool"),
    )
    is_relevant = ops.logical_or(*(ops.take(table, rows[:, text], axis=0) for text in range(2)))
    return ops.take(is_relevant, columns, axis=1)


@keras.saving.register_keras_serializable(package="keras_bert")
class SpladeLoss(InBatchNegatives):
    """`InBatchNegatives` for sparse embeddings, with a penalty on weights that are not 0.

    The penalty is the FLOPS regularizer: the sum over all tokens of the vocabulary of the squared
    mean weight in the batch. It estimates the cost of a query in an inverted index. Queries and
    documents have separate factors. Larger factors give fewer weights above 0, and less accurate
    embeddings.

    Args:
        query_factor: Factor of the queries' penalty. Defaults to 5e-5.
        document_factor: Factor of the penalty of relevant texts and hard negatives. Defaults to
            3e-5.
        scale: Factor of the dot products. Defaults to 1.
        symmetric: See `InBatchNegatives`.
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: See `InBatchNegatives`.
        y_pred: Sparse embeddings `(batch, texts, vocabulary)`.

    Returns:
        Before the reduction, a tensor `(batch,)`. The penalty of the batch is added to each value.

    Example:

    >>> loss = keras_bert.losses.SpladeLoss(query_factor=1.0, document_factor=0.5)
    >>> vectors = np.array([[[2.0, 0.0], [4.0, 0.0]]])  # penalties 4 and 16
    >>> float(loss(np.array([[0, 1]]), vectors))
    12.0

    Reference:
        [SPLADE v2](https://arxiv.org/abs/2109.10086), section 2;
        [Minimizing FLOPs](https://arxiv.org/abs/2004.05665), section 3.
    """

    def __init__(
        self,
        query_factor: float = 5e-5,
        document_factor: float = 3e-5,
        scale: float = 1.0,
        symmetric: bool = False,
        reduction: str = "mean_with_sample_weight",
        name: str = "splade_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(scale, symmetric, reduction, name, dtype)
        checks.NON_NEGATIVE.check(query_factor=query_factor, document_factor=document_factor)
        self.query_factor = query_factor
        self.document_factor = document_factor

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        # Missing negatives and padding tuples do not count.
        is_given = ops.cast(y_true >= 0, y_pred.dtype)[:, :, None]
        penalties = [
            ops.sum(
                ops.square(
                    ops.divide_no_nan(
                        ops.sum(y_pred[:, part] * is_given[:, part], axis=(0, 1)),
                        ops.sum(is_given[:, part]),
                    )
                )
            )
            for part in (slice(0, 1), slice(1, None))
        ]
        penalty = self.query_factor * penalties[0] + self.document_factor * penalties[1]
        return super().call(y_true, y_pred) + penalty

    def get_config(self) -> dict[str, Any]:
        factors = {"query_factor": self.query_factor, "document_factor": self.document_factor}
        return {**super().get_config(), **factors}


@keras.saving.register_keras_serializable(package="keras_bert")
class CosineSimilarityLoss(TupleLoss):
    """The squared error of the cosine similarity for scored pairs of embeddings.

    Args:
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: float `(batch,)`, the score of each pair.
        y_pred: Embeddings `(batch, 2, dim)`.

    Returns:
        Before the reduction, a tensor `(batch,)`.

    Example:

    >>> loss = keras_bert.losses.CosineSimilarityLoss()
    >>> float(loss(np.array([0.5]), np.array([[[2.0, 0.0], [1.0, 0.0]]])))
    0.25

    Reference:
        [Sentence-BERT](https://arxiv.org/abs/1908.10084), section 3, regression objective.
    """

    needs_pairs = True

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        similarity = 1 - cosine_distance(y_pred[:, 0], y_pred[:, 1])
        return ops.square(ops.cast(y_true, similarity.dtype) - similarity)


@keras.saving.register_keras_serializable(package="keras_bert")
class TripletLoss(TupleLoss):
    """The triplet margin loss for a query, a relevant text and hard negatives.

    The loss is 0 once each negative is farther from the query than the relevant text by at least
    the margin: `max(0, distance(query, relevant) - distance(query, negative) + margin)`.

    Args:
        margin: The margin. Defaults to 0.2, which suits cosine distances.
        distance: `"cosine"` for 1 minus the cosine similarity, or `"euclidean"`.
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: int `(batch, texts)`, -1 for missing negatives. The other numbers are ignored.
        y_pred: Embeddings `(batch, texts, dim)` of the query, its relevant text, and hard
            negatives.

    Returns:
        Before the reduction, a tensor `(batch,)` with the mean over each query's negatives.

    Raises:
        ValueError: If `margin` is not positive, or `distance` is unknown.

    Example:

    >>> loss = keras_bert.losses.TripletLoss(margin=0.5)
    >>> vectors = np.array([[[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]]])
    >>> float(loss(np.array([[0, 1, 2]]), vectors))
    0.5

    Reference:
        [Sentence-BERT](https://arxiv.org/abs/1908.10084), section 3, triplet objective.
    """

    has_id_targets = True
    needs_negatives = True

    def __init__(
        self,
        margin: float = 0.2,
        distance: Literal["cosine", "euclidean"] = "cosine",
        reduction: str = "mean_with_sample_weight",
        name: str = "triplet_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        checks.POSITIVE.check(margin=margin)
        checks.check_choice(("cosine", "euclidean"), distance=distance)
        self.margin = margin
        self.distance = distance

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        queries, texts = y_pred[:, :1], y_pred[:, 1:]
        if self.distance == "cosine":
            distances = cosine_distance(queries, texts)
        else:
            squares = ops.sum(ops.square(queries - texts), axis=-1)
            # The square root has no gradient at 0.
            distances = ops.sqrt(ops.maximum(squares, 1e-12))
        excess = ops.relu(distances[:, :1] - distances[:, 1:] + self.margin)
        is_given = ops.cast(y_true[:, 2:] >= 0, excess.dtype)
        return ops.divide_no_nan(ops.sum(excess * is_given, axis=-1), ops.sum(is_given, axis=-1))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "margin": self.margin, "distance": self.distance}


@keras.saving.register_keras_serializable(package="keras_bert")
class MatryoshkaLoss(TupleLoss):
    """A weighted sum of another loss over leading parts of the embeddings.

    The model learns embeddings that are also useful if they are cut to these dimensions, see
    `TextEmbedder.embed`. Each part is scaled to unit norm before the loss.

    Args:
        loss: The loss for each part: a `TupleLoss`, or a loss of candidates' scores, such as
            `MarginMSELoss`.
        dimensions: The dimensions of the parts, for example `[384, 192, 96, 48]`.
        weights: The weight of each part. Defaults to 1.
        reduction: See `keras.losses.Loss`. The reduction of `loss` is ignored.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.

    Call arguments:
        y_true: The targets of `loss`.
        y_pred: Embeddings `(batch, texts, dim)`.

    Returns:
        Before the reduction, a tensor `(batch,)`.

    Raises:
        ValueError: If `loss` has no embeddings or scores as input, if a dimension is below 1 or
            larger than the embeddings, or if there is not one weight for each dimension.

    Example:

    ```python
    embedder.compile(loss=MatryoshkaLoss(InBatchNegatives(), [384, 192, 96, 48]))
    ```

    Reference:
        [Matryoshka representation learning](https://arxiv.org/abs/2205.13147), section 3.
    """

    def __init__(
        self,
        loss: Any,
        dimensions: Sequence[int],
        weights: Sequence[float] | None = None,
        reduction: str = "mean_with_sample_weight",
        name: str = "matryoshka_loss",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if isinstance(loss, dict):
            loss = keras.saving.deserialize_keras_object(loss)
        if isinstance(loss, MatryoshkaLoss) or not (
            isinstance(loss, TupleLoss) or compares_scores(loss)
        ):
            raise ValueError(
                "loss must be a loss of tuples of texts, such as InBatchNegatives() or "
                f"MarginMSELoss(). Received: {loss!r}"
            )
        dimensions = [int(dimension) for dimension in dimensions]
        weights = [1.0] * len(dimensions) if weights is None else list(map(float, weights))
        if not dimensions or min(dimensions) < 1 or len(weights) != len(dimensions):
            raise ValueError(
                "dimensions must be positive integers, with one weight for each. Received: "
                f"dimensions={dimensions}, weights={weights}"
            )
        self.loss = loss
        self.dimensions = dimensions
        self.weights = weights

    @property
    def has_id_targets(self) -> bool:  # type: ignore[override]
        """Whether the targets of `loss` are numbers that identify the texts."""
        return getattr(self.loss, "has_id_targets", False)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        if max(self.dimensions) > y_pred.shape[-1]:
            raise ValueError(
                f"The dimensions of a MatryoshkaLoss must be at most {y_pred.shape[-1]}, the "
                f"dimension of the embeddings. Received: {self.dimensions}"
            )
        total = 0.0
        for dimension, weight in zip(self.dimensions, self.weights, strict=True):
            part = ops.normalize(y_pred[..., :dimension], axis=-1)
            total = total + weight * self.loss.call(y_true, outputs_for(self.loss, part))
        return total

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "loss": keras.saving.serialize_keras_object(self.loss),
            "dimensions": self.dimensions,
            "weights": self.weights,
        }


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
        y_true: The teacher's logits, `(..., classes)`. Missing classes or candidates have -inf.
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
        is_given = ops.isfinite(y_true)
        low = masked_score("float32")
        teacher, student = (
            ops.log_softmax(
                ops.where(is_given, ops.cast(logits, "float32") / self.temperature, low), axis=-1
            )
            for logits in (y_true, y_pred)
        )
        terms = ops.where(is_given, ops.exp(teacher) * (teacher - student), 0.0)
        return self.temperature**2 * ops.sum(terms, axis=-1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "temperature": self.temperature}


@keras.saving.register_keras_serializable(package="keras_bert")
class CosineDistance(_MeanLoss):
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

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return cosine_distance(y_true, y_pred)


class RankingLoss(_MeanLoss):
    """Base class for losses that compare a model's scores of candidates with a teacher's scores.

    Args:
        scale: Factor of the model's scores. Defaults to 1.
        reduction: See `keras.losses.Loss`.
        name: See `keras.losses.Loss`.
        dtype: See `keras.losses.Loss`.
    """

    def __init__(
        self,
        scale: float = 1.0,
        reduction: str = "mean_with_sample_weight",
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(reduction, name, dtype)
        checks.POSITIVE.check(scale=scale)
        self.scale = scale

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale}


@keras.saving.register_keras_serializable(package="keras_bert")
class MarginMSELoss(RankingLoss):
    """The squared error of score differences, to train a model on a teacher's scores.

    A difference is the first candidate's score minus another candidate's score. The loss compares
    the model's differences with the teacher's, so the scale of the scores matters, but not their
    mean. Usually, the first candidate is relevant, and the others are hard negatives. The model is
    a re-ranker (`MultipleChoice`) or a `TextEmbedder`, whose scores are dot products.

    Args:
        scale: Factor of the model's scores, for example 10 for cosine similarities. Defaults to 1.
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

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        is_candidate = ops.isfinite(y_true)[:, 1:]
        teacher, student = (
            ops.where(is_candidate, scores[:, :1] - scores[:, 1:], 0.0)
            for scores in (ops.cast(y_true, y_pred.dtype), self.scale * y_pred)
        )
        count = ops.sum(ops.cast(is_candidate, y_pred.dtype), axis=-1)
        return ops.divide_no_nan(ops.sum(ops.square(student - teacher), axis=-1), count)


@keras.saving.register_keras_serializable(package="keras_bert")
class ListNetLoss(RankingLoss):
    """The cross-entropy between two softmaxes over a query's candidates.

    One softmax is over the model's scores, the other over a teacher's scores or relevance grades.
    The model is a re-ranker (`MultipleChoice`) or a `TextEmbedder`, whose scores are dot products.

    Args:
        scale: Factor of the model's scores, for example 20 for cosine similarities. Defaults to 1.
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

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        is_candidate = ops.isfinite(y_true)
        low = masked_score(keras.backend.standardize_dtype(y_pred.dtype))
        teacher, student = (
            ops.where(is_candidate, scores, low)
            for scores in (ops.cast(y_true, y_pred.dtype), self.scale * y_pred)
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


def compares_scores(loss: Any) -> bool:
    """Returns whether a loss compares scores of candidates with a teacher's scores."""
    return isinstance(loss, RankingLoss | SoftTargetDivergence)


def candidate_scores(vectors: Tensor) -> Tensor:
    """Computes the scores `(batch, texts - 1)` of each query with its candidates.

    They are the dot products of embeddings, or the MaxSim scores of token vectors.

    Args:
        vectors: Embeddings `(batch, texts, dim)`, or the vectors of tokens `(batch, texts, length,
            dim)`. The first text is the query.
    """
    if len(vectors.shape) == 4:
        return max_similarities(vectors[:, 0], vectors[:, 1:])
    return ops.sum(vectors[:, :1] * vectors[:, 1:], axis=-1)


def max_similarities(queries: Tensor, documents: Tensor) -> Tensor:
    """Computes MaxSim scores from the vectors of tokens, which are 0 for tokens that do not count.

    Args:
        queries: Float `(queries, length, dim)`.
        documents: Float `(documents, length, dim)` for the scores of each query with all documents,
            or `(queries, documents, length, dim)` for the scores with its own documents.

    Returns:
        Float `(queries, documents)`.

    Reference:
        [ColBERT](https://arxiv.org/abs/2004.12832), section 3.3.
    """
    num_documents, length, dim = ops.shape(documents)[-3:]
    is_used = ops.any(documents != 0, axis=-1)
    if len(documents.shape) == 3:
        documents, is_used = ops.reshape(documents, (-1, dim)), is_used[None]
        similarities = ops.matmul(queries, ops.transpose(documents))
    else:
        documents = ops.reshape(documents, (-1, num_documents * length, dim))
        similarities = ops.matmul(queries, ops.transpose(documents, (0, 2, 1)))
    shape = (-1, ops.shape(queries)[1], num_documents, length)
    low = masked_score(keras.backend.standardize_dtype(similarities.dtype))
    # (queries, query_length, documents, length)
    similarities = ops.where(is_used[:, None], ops.reshape(similarities, shape), low)
    return ops.sum(ops.amax(similarities, axis=-1), axis=1)


def outputs_for(loss: Any, vectors: Tensor) -> Tensor:
    """Returns what a loss compares with its targets: the embeddings, or the candidates' scores."""
    return candidate_scores(vectors) if compares_scores(loss) else vectors


def cosine_distance(x: Any, y: Any) -> Any:
    """Computes `CosineDistance` of vectors `(..., dim)` without a reduction, with shape `(...)`."""
    x, y = (ops.normalize(ops.cast(part, "float32"), axis=-1) for part in (x, y))
    return 1 - ops.sum(x * y, axis=-1)

# SPDX-License-Identifier: Apache-2.0
"""Few-shot classification as in SetFit: trains the encoder on pairs, then fits the head."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_bert import checks
from keras_bert.data.adapters.texts import single_texts
from keras_bert.data.bucketing import permutation
from keras_bert.data.columns import one_for_each
from keras_bert.data.labels import softmax
from keras_bert.layers.pooling import SentencePooling
from keras_bert.tasks.text_embedder import TextEmbedder

# A logistic regression stops after this many steps, or when the gradient is this small.
_MAX_STEPS = 20_000
_TOLERANCE = 1e-6
# The number of examples to pair with all other examples at a time
_ROWS_AT_ONCE = 256


class FewShotTraining:
    """The parts of `TextClassifier.fit_few_shot`: pairs, an embedder to train, and the head.

    Args:
        classifier: A `TextClassifier` with a `SentencePooling` as its only top layer.
        texts: Single texts in memory, in any form that `fit` accepts.
        labels: The class IDs `(rows,)`. With `multi_label`, 0 and 1 `(rows, classes)`.

    Attributes:
        embedder: A `TextEmbedder` with the classifier's encoder and pooling.

    Raises:
        ValueError: If the classifier has a different pooling or is a regression, or if the texts
            are pairs.
    """

    def __init__(self, classifier: Any, texts: Any, labels: np.ndarray[Any, Any]) -> None:
        layers = classifier.top_layers
        if len(layers) != 1 or not isinstance(layers[0], SentencePooling):
            raise ValueError(
                "Few-shot training requires a TextClassifier with "
                f"top_layers=[keras_bert.layers.SentencePooling()]. Received: top_layers={layers}"
            )
        if classifier.is_regression:
            raise ValueError("Few-shot training requires classes. Received: a regression")
        self.classifier = classifier
        self.texts = single_texts(texts)
        one_for_each(labels, self.texts, to_keras_batch=True)
        self.targets = labels if labels.ndim == 2 else np.eye(classifier.num_classes)[labels]
        self.embedder = TextEmbedder(
            classifier.backbone,
            classifier.preprocessor,
            pooling=layers[0].pooling,
            normalize=layers[0].normalize,
        )

    def pairs(self, max_pairs: int | None = None) -> tuple[Any, np.ndarray[Any, Any]]:
        """Samples the pairs for an epoch with Python's random generator.

        Every example is paired with every example, including itself. Examples that share a label
        are a positive pair. The less frequent type of pair is repeated until both types are equally
        frequent. With `max_pairs`, a random sample of the pairs is returned. If no pair is
        negative, `ValueError` is raised.

        Returns:
            A tuple with the lists of first and second texts, and the similarities 1 or 0, float32
            `(pairs,)`.
        """
        checks.POSITIVE_INT.check_optional(max_pairs=max_pairs)
        totals = np.sum([[np.sum(kind) for kind in kinds] for _, kinds in self._kinds()], axis=0)
        if not totals.all():
            raise ValueError("The texts must have at least two different labels. Received: one")
        most = int(totals.max())
        if max_pairs is not None:
            most = min(most, max(1, max_pairs // 2))
        seed = random.getrandbits(31)
        drawn = [np.resize(_sample_indices(int(total), most, seed), most) for total in totals]
        # The examples in each pair, (2, types, pairs)
        rows = np.empty((2, 2, most), "int64")
        num_before = [0, 0]
        for first_row, kinds in self._kinds():
            for kind, is_pair in enumerate(kinds):
                count = int(np.count_nonzero(is_pair))
                place = drawn[kind] - num_before[kind]
                num_before[kind] += count
                is_here = (place >= 0) & (place < count)
                if is_here.any():  # Computing the indices of all pairs would take long.
                    rows[:, kind, is_here] = np.argwhere(is_pair)[place[is_here]].T
                    rows[0, kind, is_here] += first_row
        first, second = np.array(self.texts, dtype=object)[rows.reshape(2, -1)].tolist()
        return (first, second), np.repeat(np.array([1, 0], "float32"), most)

    def _kinds(self) -> Iterator[tuple[int, list[np.ndarray[Any, Any]]]]:
        """Yields the positive and negative pairs of some examples with later examples.

        Each item has the index of the first of these examples, and two bool arrays `(some_rows,
        rows)`. An array for all examples would take too much memory.
        """
        numbers = np.arange(len(self.targets))
        for start in range(0, len(numbers), _ROWS_AT_ONCE):
            rows = numbers[start : start + _ROWS_AT_ONCE, None]
            is_positive = self.targets[rows[:, 0]] @ self.targets.T > 0
            # An example without labels is not a negative for itself.
            yield start, [is_positive & (numbers >= rows), ~is_positive & (numbers > rows)]

    def fit_head(self) -> None:
        """Sets the head's weights to a logistic regression on the embeddings."""
        vectors = self.embedder.embed(self.texts)
        if self.classifier.multi_label:
            label_kernels = [
                logistic_regression(vectors, np.stack([1 - y, y], axis=1)) for y in self.targets.T
            ]
            # The label's logit is the difference between the logits of both classes.
            weights = np.stack([both[:, 1] - both[:, 0] for both in label_kernels], axis=1)
        else:
            weights = logistic_regression(vectors, self.targets)
        dense = self.classifier.head.dense
        dense.kernel.assign(weights[:-1])
        dense.bias.assign(weights[-1])


def _sample_indices(total: int, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Samples at most `count` distinct indices below `total`, in random order."""
    if total <= 4 * count:
        return permutation(total, seed)[:count]
    bits = np.random.Philox(np.random.SeedSequence(seed)).random_raw(2 * count)
    numbers, place = np.unique(bits % np.uint64(total), return_index=True)
    indices: np.ndarray[Any, Any] = numbers[np.argsort(place)][:count].astype("int64")
    return indices


def logistic_regression(
    vectors: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Fits a logistic regression with scikit-learn's default L2 penalty, C = 1.

    It minimizes the summed cross-entropy plus half the sum of squared weights. For two classes, the
    penalty applies to the weights of the difference between both logits. Biases are not penalized.

    Each step minimizes an upper bound on the loss, so the loss never increases. The bound exists
    because the cross-entropy's Hessian is at most half the least-squares Hessian, for all weights.

    Args:
        vectors: Features, `(rows, dim)`.
        targets: One-hot classes, `(rows, classes)`.

    Returns:
        The weights, with the biases in the last row, float64 `(dim + 1, classes)`.

    Reference:
        Böhning (1992), Multinomial logistic regression algorithm.
    """
    num_rows, dim = vectors.shape
    x = np.column_stack([vectors, np.ones(num_rows)]).astype("float64")
    penalty = np.where(np.arange(dim + 1) < dim, 2.0 if targets.shape[1] == 2 else 1.0, 0.0)
    inverse = np.linalg.inv(x.T @ x / 2 + np.diag(penalty))
    weights = np.zeros((dim + 1, targets.shape[1]))
    for _ in range(_MAX_STEPS):
        gradient = x.T @ (softmax(x @ weights) - targets) + penalty[:, None] * weights
        if np.abs(gradient).max() < _TOLERANCE:
            break
        weights -= inverse @ gradient
    return weights

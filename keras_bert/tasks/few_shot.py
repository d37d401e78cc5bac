# SPDX-License-Identifier: Apache-2.0
"""Few-shot classification as in SetFit: pairs train the encoder, then a logistic regression."""

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

# The most steps of a logistic regression, and the largest gradient that ends it
_MAX_STEPS = 20_000
_TOLERANCE = 1e-6
# The number of rows to pair with all others at a time
_ROWS_AT_ONCE = 256


class FewShotTraining:
    """The parts of `TextClassifier.fit_few_shot`: pairs, the embedder that learns them, the head.

    Args:
        classifier: A `TextClassifier` with a `SentencePooling` as its only top layer.
        texts: Single texts in any form that `fit` takes, in memory.
        labels: The class ids `(rows,)`; with `multi_label`, 0 and 1 `(rows, classes)`.

    Attributes:
        embedder: A `TextEmbedder` of the encoder of the classifier, with the same pooling.

    Raises:
        ValueError: If the classifier pools in another way, is a regression, or there are pairs of
            texts.
    """

    def __init__(self, classifier: Any, texts: Any, labels: np.ndarray[Any, Any]) -> None:
        layers = classifier.top_layers
        if len(layers) != 1 or not isinstance(layers[0], SentencePooling):
            raise ValueError(
                "Few-shot training classifies sentence embeddings; expected a TextClassifier with "
                "top_layers=[keras_bert.layers.SentencePooling()]."
            )
        if classifier.is_regression:
            raise ValueError("Few-shot training is for classes; received a regression.")
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
        """Draws the pairs of an epoch, by Python's random generator.

        They are all pairs of rows, each row with itself too, or at most `max_pairs`. The positive
        ones have a label in common. The smaller kind is repeated until there are as many of both;
        without negative pairs, it is a ValueError.

        Returns:
            A tuple of two lists of texts, and their similarities, 1 or 0, float32 `(pairs,)`.
        """
        checks.POSITIVE_INT.check_optional(max_pairs=max_pairs)
        totals = np.sum([[np.sum(kind) for kind in kinds] for _, kinds in self._kinds()], axis=0)
        if not totals.all():
            raise ValueError("All texts have the same labels; expected two classes or more.")
        most = int(totals.max())
        if max_pairs is not None:
            most = min(most, max(1, max_pairs // 2))
        seed = random.getrandbits(31)
        drawn = [np.resize(_drawn(int(total), most, seed), most) for total in totals]
        # The rows of the pairs of each kind, (2, kinds, pairs)
        rows = np.empty((2, 2, most), "int64")
        num_before = [0, 0]
        for first_row, kinds in self._kinds():
            for kind, is_pair in enumerate(kinds):
                count = int(np.count_nonzero(is_pair))
                place = drawn[kind] - num_before[kind]
                num_before[kind] += count
                is_here = (place >= 0) & (place < count)
                if is_here.any():  # Indices of all pairs would take long.
                    rows[:, kind, is_here] = np.argwhere(is_pair)[place[is_here]].T
                    rows[0, kind, is_here] += first_row
        first, second = np.array(self.texts, dtype=object)[rows.reshape(2, -1)].tolist()
        return (first, second), np.repeat(np.array([1, 0], "float32"), most)

    def _kinds(self) -> Iterator[tuple[int, list[np.ndarray[Any, Any]]]]:
        """Yields the index of the first of some rows, and with which later rows they are a pair.

        These are for positive and for negative pairs, bool `(some_rows, rows)`: all pairs of many
        rows would need too much memory.
        """
        numbers = np.arange(len(self.targets))
        for start in range(0, len(numbers), _ROWS_AT_ONCE):
            rows = numbers[start : start + _ROWS_AT_ONCE, None]
            is_positive = self.targets[rows[:, 0]] @ self.targets.T > 0
            # (A row without labels is no negative of itself.)
            yield start, [is_positive & (numbers >= rows), ~is_positive & (numbers > rows)]

    def fit_head(self) -> None:
        """Sets the weights of the head to the logistic regression on the embeddings."""
        vectors = self.embedder.embed(self.texts)
        if self.classifier.multi_label:
            label_kernels = [
                logistic_regression(vectors, np.stack([1 - y, y], axis=1)) for y in self.targets.T
            ]
            # The difference of the logits of both classes is the logit of the label.
            weights = np.stack([both[:, 1] - both[:, 0] for both in label_kernels], axis=1)
        else:
            weights = logistic_regression(vectors, self.targets)
        dense = self.classifier.head.dense
        dense.kernel.assign(weights[:-1])
        dense.bias.assign(weights[-1])


def _drawn(total: int, count: int, seed: int) -> np.ndarray[Any, Any]:
    """Draws different numbers below `total`, at most `count` of them, in random order."""
    if total <= 4 * count:
        return permutation(total, seed)[:count]
    bits = np.random.Philox(np.random.SeedSequence(seed)).random_raw(2 * count)
    numbers, place = np.unique(bits % np.uint64(total), return_index=True)
    in_order: np.ndarray[Any, Any] = numbers[np.argsort(place)][:count].astype("int64")
    return in_order


def logistic_regression(
    vectors: np.ndarray[Any, Any], targets: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Fits a logistic regression with the L2 penalty of scikit-learn's default, C = 1.

    It minimizes the sum of the cross-entropies plus half of the sum of the squared weights. Of two
    classes, the weights are those of the difference of both logits. Biases have no penalty.

    Each step minimizes an upper bound of the loss: the Hessian of the cross-entropy is at most half
    of that of least squares, whatever the weights are. So the loss falls in each step.

    Args:
        vectors: The features, `(rows, dim)`.
        targets: The classes, one-hot `(rows, classes)`.

    Returns:
        The weights, and below them the biases, float64 `(dim + 1, classes)`.

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

# SPDX-License-Identifier: Apache-2.0
"""Few-shot classification as in SetFit: pairs train the encoder, then a logistic regression."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from keras_bert import checks
from keras_bert.data.adapters.texts import single_texts
from keras_bert.data.columns import one_for_each
from keras_bert.data.labels import softmax
from keras_bert.data.loader import permutation
from keras_bert.layers.pooling import SentencePooling
from keras_bert.tasks.text_embedder import TextEmbedder

# The most steps of a logistic regression, and the largest gradient that ends it
_MAX_STEPS = 20_000
_TOLERANCE = 1e-6


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
        one_for_each(labels, self.texts, with_columns=True)
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
        checks.POSITIVE_INT.check_given(max_pairs=max_pairs)
        first, second = np.triu_indices(len(self.targets))
        is_positive = (self.targets @ self.targets.T)[first, second] > 0
        # (A row without labels is no negative of itself.)
        kinds = [np.flatnonzero(is_positive), np.flatnonzero(~is_positive & (first != second))]
        if not all(map(len, kinds)):
            raise ValueError("All texts have the same labels; expected two classes or more.")
        most = max(map(len, kinds))
        if max_pairs is not None:
            most = min(most, max(1, max_pairs // 2))
        seed = random.getrandbits(31)
        rows = np.concatenate(
            [np.resize(kind[permutation(len(kind), seed)], most) for kind in kinds]
        )
        texts = np.array(self.texts, dtype=object)
        scores = np.repeat(np.array([1, 0], "float32"), most)
        return (texts[first[rows]].tolist(), texts[second[rows]].tolist()), scores

    def fit_head(self) -> None:
        """Sets the weights of the head to the logistic regression on the embeddings."""
        vectors = self.embedder.embed(self.texts)
        if self.classifier.multi_label:
            of_labels = [
                logistic_regression(vectors, np.stack([1 - y, y], axis=1)) for y in self.targets.T
            ]
            # The difference of the logits of both classes is the logit of the label.
            weights = np.stack([both[:, 1] - both[:, 0] for both in of_labels], axis=1)
        else:
            weights = logistic_regression(vectors, self.targets)
        dense = self.classifier.head.dense
        dense.kernel.assign(weights[:-1])
        dense.bias.assign(weights[-1])


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

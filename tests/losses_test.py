# SPDX-License-Identifier: Apache-2.0
"""Losses match NumPy implementations."""

import keras
import numpy as np
import pytest

from keras_bert.layers import ConditionalRandomField
from keras_bert.losses import (
    CosineDistance,
    CosineSimilarityLoss,
    CRFLoss,
    InBatchNegatives,
    ListNetLoss,
    MarginMSELoss,
    SoftTargetDivergence,
)

VECTORS = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")


def cross_entropies(first, second, scale):
    scores = scale * first @ second.T
    return np.log(np.exp(scores).sum(1)) - np.diag(scores)


def value(loss, numbers, vectors=VECTORS, **arguments):
    tensors = (keras.ops.convert_to_tensor(np.asarray(part)) for part in (numbers, vectors))
    return float(keras.ops.convert_to_numpy(loss(*tensors, **arguments)))


@pytest.mark.parametrize("symmetric", [False, True])
def test_in_batch_negatives_matches_numpy(symmetric):
    first, second = VECTORS[::2], VECTORS[1::2]
    expected = cross_entropies(first, second, 2.0)
    if symmetric:
        expected = (expected + cross_entropies(second, first, 2.0)) / 2
    loss = InBatchNegatives(2.0, symmetric)
    assert value(loss, np.repeat(np.arange(4), 2)) == pytest.approx(expected.mean(), rel=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_padding_rows_are_ignored(symmetric):
    loss = InBatchNegatives(2.0, symmetric)
    expected = value(loss, [0, 0, 1, 1, 2, 2], VECTORS[:6])
    weights = np.array([1, 1, 1, 1, 1, 1, 0, 0], "float32")
    padded_loss = value(loss, [0, 0, 1, 1, 2, 2, -1, -1], sample_weight=weights)
    assert padded_loss == pytest.approx(expected, rel=1e-5)


def test_same_index_pairs_are_not_negatives():
    first, second = VECTORS[::2], VECTORS[1::2]
    scores = first @ second.T
    scores[0, 3] = scores[3, 0] = -np.inf
    expected = (np.log(np.exp(scores).sum(1)) - np.diag(scores)).mean()
    # The same pair, pairs with the same first text, and a first text that equals a second text
    for numbers in ([5, 5, 1, 1, 2, 2, 5, 5], [5, 6, 1, 1, 2, 2, 5, 8], [6, 5, 1, 1, 2, 2, 5, 8]):
        assert value(InBatchNegatives(1.0), numbers) == pytest.approx(expected, rel=1e-5)


def test_cosine_similarity_loss_matches_numpy():
    first, second = (part / np.linalg.norm(part, axis=1)[:, None] for part in np.split(VECTORS, 2))
    vectors = np.stack([first, 3 * second], axis=1).reshape(8, 5)
    scores = np.array([1, 0, 0.5, -1], "float32")
    expected = np.mean((scores - np.sum(first * second, axis=1)) ** 2)
    assert value(CosineSimilarityLoss(), np.repeat(scores, 2), vectors) == pytest.approx(
        expected, rel=1e-5
    )


def test_config_round_trip():
    loss = InBatchNegatives(7.0, True)
    same = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert (same.scale, same.symmetric, same.reduction) == (7.0, True, "mean_with_sample_weight")


def test_soft_target_divergence_matches_numpy():
    loss = SoftTargetDivergence(temperature=3.0)
    # Adding a constant to all logits does not change the distribution.
    assert value(loss, VECTORS, VECTORS + 1) == pytest.approx(0, abs=1e-5)
    teacher, student = (np.exp(part / 3) for part in (VECTORS, VECTORS[::-1]))
    teacher, student = (part / part.sum(-1, keepdims=True) for part in (teacher, student))
    expected = 9 * (teacher * np.log(teacher / student)).sum(-1)
    weights = np.arange(8.0)
    received = value(loss, VECTORS, VECTORS[::-1].copy(), sample_weight=weights)
    assert received == pytest.approx(np.average(expected, weights=weights), rel=1e-5)
    assert SoftTargetDivergence.from_config(loss.get_config()).temperature == 3.0


def test_cosine_distance_matches_numpy():
    reversed_vectors = VECTORS[::-1].copy()
    cosines = (VECTORS * reversed_vectors).sum(-1) / np.square(np.linalg.norm(VECTORS, axis=-1))
    cosines *= np.linalg.norm(VECTORS, axis=-1) / np.linalg.norm(reversed_vectors, axis=-1)
    assert value(CosineDistance(), VECTORS, reversed_vectors) == pytest.approx(
        1 - cosines.mean(), rel=1e-5
    )
    assert value(CosineDistance(), VECTORS, 3 * VECTORS) == pytest.approx(0, abs=1e-6)


def test_crf_loss_is_the_mean_over_labels():
    crf = ConditionalRandomField()
    emissions = keras.ops.zeros((2, 3, 4))  # Each label has the probability 1/4.
    crf(emissions)
    loss = CRFLoss(crf)
    labels = np.array([[0, 1, -1], [2, -1, -1]])
    for weights in (None, [0.5, 2.0], np.array([[1.0, 1.0, 9.0], [3.0, 9.0, 9.0]])):
        mean = keras.ops.convert_to_numpy(loss(labels, emissions, weights))
        assert mean == pytest.approx(np.log(4), abs=1e-6)


def test_ranking_losses_match_numpy():
    """Missing candidates have neither a loss nor a gradient, whatever their score is."""
    teacher = np.array([[9.0, 2.0, 4.5], [1.0, 3.0, -np.inf]], "float32")
    student = np.array([[1.5, 2.0, -1.0], [0.5, 0.25, 7.0]], "float32")
    rows = [(teacher[0], student[0]), (teacher[1, :2], student[1, :2])]
    errors = [s[0] - s[1:] - (t[0] - t[1:]) for t, s in rows]
    probabilities = [[np.exp(x) / np.exp(x).sum() for x in row] for row in rows]
    for loss, values, gradients in (
        (
            MarginMSELoss(),
            [np.mean(error**2) for error in errors],
            [[2 * error.mean(), *(-2 * error / len(error))] for error in errors],
        ),
        (
            ListNetLoss(),
            [-t @ np.log(s) for t, s in probabilities],
            [s - t for t, s in probabilities],
        ),
    ):
        assert value(loss, teacher, student) == pytest.approx(np.mean(values), rel=1e-6)
        # The weights are the scores, so the update is the gradient.
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, use_bias=False)])
        model.compile(keras.optimizers.SGD(1.0), loss)
        model.set_weights([student])
        model.train_on_batch(np.eye(2), teacher)
        expected = np.stack([gradients[0], [*gradients[1], 0]]) / 2
        assert student - model.get_weights()[0] == pytest.approx(expected, abs=1e-6)

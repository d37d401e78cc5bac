# SPDX-License-Identifier: Apache-2.0
"""Losses match NumPy implementations."""

import keras
import numpy as np
import pytest

from keras_bert.layers import ConditionalRandomField
from keras_bert.losses import (
    CosineDistance,
    CRFLoss,
    InBatchNegatives,
    ListNetLoss,
    MarginMSELoss,
    MatryoshkaLoss,
    SoftTargetDivergence,
    SpladeLoss,
    TripletLoss,
)

VECTORS = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
TUPLES = VECTORS.reshape(4, 2, 5)


def cross_entropies(first, second, scale):
    scores = scale * first @ second.T
    return np.log(np.exp(scores).sum(1)) - np.diag(scores)


def value(loss, numbers, vectors=VECTORS, **arguments):
    tensors = (keras.ops.convert_to_tensor(np.asarray(part)) for part in (numbers, vectors))
    return float(keras.ops.convert_to_numpy(loss(*tensors, **arguments)))


def test_symmetric_negatives_match_numpy():
    first, second = TUPLES[:, 0], TUPLES[:, 1]
    expected = cross_entropies(first, second, 2.0) + cross_entropies(second, first, 2.0)
    loss = InBatchNegatives(2.0, symmetric=True)
    numbers = np.arange(8).reshape(4, 2)
    assert value(loss, numbers, TUPLES) == pytest.approx(expected.mean() / 2, rel=1e-5)


@pytest.mark.parametrize("symmetric", [False, True])
def test_padding_rows_are_ignored(symmetric):
    loss = InBatchNegatives(2.0, symmetric)
    expected = value(loss, [[0, 1], [2, 3], [4, 5]], TUPLES[:3])
    weights = np.array([1, 1, 1, 0], "float32")
    numbers = [[0, 1], [2, 3], [4, 5], [-1, -1]]
    padded_loss = value(loss, numbers, TUPLES, sample_weight=weights)
    assert padded_loss == pytest.approx(expected, rel=1e-5)


def test_splade_loss_adds_the_squared_mean_weights():
    """Missing negatives and padding tuples do not count."""
    vectors = np.random.default_rng(0).random((3, 3, 5), "float32")
    numbers = np.array([[0, 1, 2], [3, 4, -1], [-1, -1, -1]])
    weights = np.array([1, 1, 0], "float32")
    documents = vectors[[0, 0, 1], [1, 2, 1]]
    expected = value(InBatchNegatives(1.0), numbers, vectors, sample_weight=weights)
    expected += 2.0 * np.sum(vectors[:2, 0].mean(axis=0) ** 2)
    expected += 3.0 * np.sum(documents.mean(axis=0) ** 2)
    actual = value(SpladeLoss(2.0, 3.0), numbers, vectors, sample_weight=weights)
    assert actual == pytest.approx(expected, rel=1e-5)


def test_same_index_pairs_are_not_negatives():
    scores = TUPLES[:, 0] @ TUPLES[:, 1].T
    scores[0, 3] = scores[3, 0] = -np.inf
    expected = (np.log(np.exp(scores).sum(1)) - np.diag(scores)).mean()
    # The same pair, pairs with the same first text, and a first text that equals a second text
    for numbers in ([5, 5, 1, 1, 2, 2, 5, 5], [5, 6, 1, 1, 2, 2, 5, 8], [6, 5, 1, 1, 2, 2, 5, 8]):
        numbers = np.reshape(numbers, (4, 2))
        assert value(InBatchNegatives(1.0), numbers, TUPLES) == pytest.approx(expected, rel=1e-5)


def test_hard_negatives_are_candidates_of_all_queries():
    """Missing negatives, a query's own texts and repeated texts do not count."""
    vectors = np.random.default_rng(0).normal(size=(3, 4, 5)).astype("float32")
    numbers = np.array([[0, 1, 2, 3], [4, 5, 1, -1], [6, 7, 2, 8]])
    scores = np.einsum("id,jkd->ijk", vectors[:, 0], vectors[:, 1:])
    scores[0, 1, 1] = -np.inf  # It is the relevant text of query 0.
    scores[:, 1, 1] = -np.inf  # It is the same text as an earlier candidate.
    scores[:, 1, 2] = -np.inf  # It is missing.
    scores[:, 2, 1] = -np.inf  # It is the same text as an earlier candidate.
    expected = np.log(np.exp(scores).sum((1, 2))) - scores[range(3), range(3), 0]
    actual = value(InBatchNegatives(1.0), numbers, vectors)
    assert actual == pytest.approx(expected.mean(), rel=1e-5)
    # If query 2 had the same relevant text as query 0, text 1 would not be its negative.
    numbers[2, 1] = 1
    scores[2, 0, 0] = scores[0, 2, 0] = scores[1, 2, 0] = -np.inf
    expected = np.log(np.exp(scores).sum((1, 2))) - scores[range(3), range(3), 0]
    actual = value(InBatchNegatives(1.0), numbers, vectors)
    assert actual == pytest.approx(expected.mean(), rel=1e-5)


def test_texts_of_linked_pairs_are_not_negatives():
    """A pair is linked to a query's pair if it shares a text with it. Repeated texts count once."""
    random = np.random.default_rng(0)
    vectors = random.normal(size=(12, 3, 5)).astype("float32")
    scores = vectors[:, 0] @ vectors[:, 1:].reshape(-1, 5).T
    for numbers in random.integers(0, 40, (4, 12, 3)):
        pairs, candidates = numbers[:, :2].tolist(), numbers[:, 1:].reshape(-1).tolist()
        expected = []
        for row, pair in enumerate(pairs):
            linked = {text for other in pairs if {*pair} & {*other} for text in other}
            columns = [2 * row]
            for column, text in enumerate(candidates):
                is_again = text in candidates[:column] and text != pairs[column // 2][0]
                columns += [column] * (text not in linked and not is_again)
            expected.append(np.log(np.exp(scores[row, columns]).sum()) - scores[row, 2 * row])
        actual = value(InBatchNegatives(1.0), numbers, vectors)
        assert actual == pytest.approx(np.mean(expected), rel=1e-5)


def test_triplet_loss_ignores_missing_negatives():
    vectors = np.random.default_rng(0).normal(size=(2, 4, 5)).astype("float32")
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    distances = 1 - np.sum(unit[:, :1] * unit[:, 1:], axis=-1)
    excess = np.maximum(distances[:, :1] - distances[:, 1:] + 1, 0)
    expected = (excess[0].mean() + excess[1, 0]) / 2
    numbers = np.array([[0, 1, 2, 3], [4, 5, 6, -1]])
    assert value(TripletLoss(1.0), numbers, vectors) == pytest.approx(expected, rel=1e-5)


def test_matryoshka_loss_of_candidate_scores():
    vectors, teacher = VECTORS[:6].reshape(2, 3, 5), VECTORS[6:, :2]
    parts = [
        vectors[..., :dim] / np.linalg.norm(vectors[..., :dim], axis=-1, keepdims=True)
        for dim in (2, 5)
    ]
    dots = [np.sum(part[:, :1] * part[:, 1:], axis=-1) for part in parts]
    first, second = (value(MarginMSELoss(), teacher, part) for part in dots)
    loss = MatryoshkaLoss(MarginMSELoss(), [2, 5], weights=[1, 0.5])
    same = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert value(same, teacher, vectors) == pytest.approx(first + second / 2, rel=1e-5)
    with pytest.raises(ValueError, match=r"must be at most 5, .* Received: \[2, 6\]"):
        value(MatryoshkaLoss(InBatchNegatives(), [2, 6]), [[0, 1, 2], [3, 4, 5]], vectors)
    with pytest.raises(ValueError, match="loss must be a loss of tuples of texts"):
        MatryoshkaLoss(CosineDistance(), [2])


def test_config_round_trip():
    loss = InBatchNegatives(7.0, True)
    same = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert (same.scale, same.symmetric, same.reduction) == (7.0, True, "mean_with_sample_weight")


def test_soft_target_divergence_edge_cases():
    """Missing candidates do not count. A constant does not change the distribution."""
    loss = SoftTargetDivergence(temperature=3.0)
    assert value(loss, VECTORS, VECTORS + 1) == pytest.approx(0, abs=1e-5)
    scores, teacher = VECTORS[:2, :4], VECTORS[2:4, :4].copy()
    expected = value(loss, teacher[:, :3], scores[:, :3])
    teacher[:, 3] = -np.inf
    assert value(loss, teacher, scores) == pytest.approx(expected, rel=1e-5)
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

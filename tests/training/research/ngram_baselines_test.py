# SPDX-License-Identifier: Apache-2.0

import math

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from training.pretraining.unigrams import UnigramModel  # noqa: E402
from training.research.ngram_baselines import NgramModel, score  # noqa: E402

ROWS = np.array([[2, 5, 6, 5, 6, 3], [2, 5, 6, 3, 0, 0]])


def model():
    counted = NgramModel(8)
    counted.add(ROWS, ROWS != 0)
    return counted


def test_unigram_is_counts_and_one():
    np.testing.assert_allclose(
        model().unigrams.probabilities(), np.array([1, 1, 3, 3, 1, 4, 4, 1]) / 18
    )


def test_ids_that_are_never_labels_have_no_probability_and_are_never_the_most_frequent():
    counted = UnigramModel(8, never_predicted=(0, 2, 3, 4))
    counted.add(ROWS)
    probabilities = np.array([0, 1, 0, 0, 0, 4, 4, 1]) / 10
    np.testing.assert_allclose(counted.probabilities(), probabilities)
    batch = {"mask_ids": np.array([[5, 7, 0]]), "mask_weights": np.array([[1.0, 1.0, 0.0]])}
    scores = counted.score([batch])
    assert scores["masked_accuracy"] == 0.5
    assert scores["perplexity"] == pytest.approx(1 / math.sqrt(0.4 * 0.1))


def test_bigram_is_mixed_by_how_often_the_token_before_was_seen():
    behind_five, behind_seven = model().bigram(np.array([5, 7]))
    unigram = model().unigrams.probabilities()
    expected = (5 / 8) * unigram
    expected[6] += 3 / 8
    np.testing.assert_allclose(behind_five, expected)
    np.testing.assert_allclose(behind_seven, unigram)


def test_scores_of_masked_tokens():
    batch = {
        "token_ids": np.array([[2, 5, 4, 4, 3, 0]]),
        "mask_positions": np.array([[2, 3, 0]]),
        "mask_ids": np.array([[6, 7, 0]]),
        "mask_weights": np.array([[1.0, 1.0, 0.0]]),
    }
    scores = score(model(), [batch])
    unigram = model().unigrams.probabilities()
    assert scores["unigram"]["masked_accuracy"] == 0
    assert scores["bigram"]["masked_accuracy"] == 0.5
    loss = -(math.log(unigram[6]) + math.log(unigram[7])) / 2
    assert scores["unigram"]["perplexity"] == pytest.approx(math.exp(loss))
    # After [MASK], which was never counted, the bigram is the unigram.
    loss = -(math.log((3 + 5 * unigram[6]) / 8) + math.log(unigram[7])) / 2
    assert scores["bigram"]["perplexity"] == pytest.approx(math.exp(loss))


def test_a_causal_run_predicts_the_token_behind_each_position():
    batch = {
        "token_ids": np.array([[2, 5, 6, 3, 0]]),
        "mask_positions": np.array([[0, 1, 2, 0]]),
        "mask_ids": np.array([[5, 6, 3, 0]]),
        "mask_weights": np.array([[1.0, 1.0, 1.0, 0.0]]),
    }
    bigrams = model().bigram(np.array([2, 5, 6]))
    expected = math.exp(-np.mean(np.log(bigrams[range(3), [5, 6, 3]])))
    assert score(model(), [batch], causal=True)["bigram"]["perplexity"] == pytest.approx(expected)

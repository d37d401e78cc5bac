# SPDX-License-Identifier: Apache-2.0
"""Compares linear-chain CRFs with sums over all label sequences."""

import itertools

import numpy as np

from keras_bert.ops import linear_chain
from keras_bert.ops.linear_chain import Potentials
from tests.ops.backend_gradients import as_tensors, to_numpy, value_and_gradients

CLASSES, LENGTH = 3, 5
# Sequences with positions left out anywhere, and an example without positions
MASK = np.array([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]], bool)
LABELS = np.array([[0, 1, 1, 2, 0], [2, 1, 2, 0, 0], [0, 0, 0, 2, 1], [0, 0, 0, 0, 0]], "int32")
UPSTREAM = np.array([0.5, -1.0, 2.0, 3.0], "float32")


def counts(row, labels):
    """Returns how often each score occurs in a sequence, in the order of `ARRAYS`."""
    emissions, start, transitions, end = (np.zeros(array.shape) for array in ARRAYS)
    positions = np.flatnonzero(MASK[row])
    emissions[row, positions, labels] = 1
    start[labels[:1]] = 1
    end[labels[-1:]] = 1
    np.add.at(transitions, (labels[:-1], labels[1:]), 1)
    return emissions, start, transitions, end


_random = np.random.default_rng(0)
_SHAPES = (len(MASK), LENGTH, CLASSES), (CLASSES,), (CLASSES, CLASSES), (CLASSES,)
ARRAYS = [_random.normal(0, 2, shape).astype("float32") for shape in _SHAPES]


def sequences(row):
    """Returns all label sequences of an example, their counts, and their probabilities."""
    labels = np.array(list(itertools.product(range(CLASSES), repeat=MASK[row].sum())), int)
    all_counts = [counts(row, each) for each in labels]
    scores = [sum((a * b).sum() for a, b in zip(each, ARRAYS, strict=True)) for each in all_counts]
    odds = np.exp(scores - np.max(scores))
    return labels, all_counts, odds / odds.sum()


def test_likelihood_and_gradients_match_enumeration():
    expected, gradients = np.zeros(len(MASK)), [np.zeros(array.shape) for array in ARRAYS]
    for row in range(3):
        labels, all_counts, probabilities = sequences(row)
        index = labels.tolist().index(LABELS[row][MASK[row]].tolist())
        expected[row] = np.log(probabilities[index])
        for part, gradient in enumerate(gradients):
            mean = sum(p * each[part] for p, each in zip(probabilities, all_counts, strict=True))
            gradient += UPSTREAM[row] * (all_counts[index][part] - mean)

    def likelihood(emissions, *chain):
        mask, labels = as_tensors([MASK], "bool") + as_tensors([LABELS], "int32")
        return linear_chain.log_likelihood(emissions, labels, mask, Potentials(*chain))

    tensors = as_tensors(ARRAYS, "float32")
    value, computed = value_and_gradients(likelihood, tensors, *as_tensors([UPSTREAM], "float32"))
    np.testing.assert_allclose(value, expected, atol=1e-5)
    for gradient, reference in zip(computed, gradients, strict=True):
        np.testing.assert_allclose(gradient, reference, atol=1e-5)


def test_decoding_and_marginals_match_enumeration():
    chain = Potentials(*ARRAYS[1:])
    decoded, scores = linear_chain.run(linear_chain.decode_with_scores, ARRAYS[0], MASK, chain)
    logs = to_numpy(linear_chain.log_marginals(*as_tensors(ARRAYS[:1], "float32"), MASK, chain))
    assert (decoded[~MASK] == -1).all()
    for row in range(3):
        labels, all_counts, probabilities = sequences(row)
        positions = np.flatnonzero(MASK[row])
        best = labels[np.argmax(probabilities)]
        assert decoded[row, positions].tolist() == best.tolist()
        marginals = sum(p * each[0][row] for p, each in zip(probabilities, all_counts, strict=True))
        np.testing.assert_allclose(np.exp(logs[row])[positions], marginals[positions], atol=1e-5)
        expected = marginals[positions, best]
        np.testing.assert_allclose(scores[row, positions], expected, atol=1e-5)


def test_long_sequences_keep_float32_digits():
    # Without transitions, the likelihood is a sum of independent log probabilities.
    emissions = np.random.default_rng(1).normal(0, 5, (1, 2000, 4)).astype("float32")
    zeros = Potentials(np.zeros(4, "float32"), np.zeros((4, 4), "float32"), np.zeros(4, "float32"))
    labels, mask = emissions.argmax(-1).astype("int32"), np.ones((1, 2000), bool)
    value = linear_chain.run(linear_chain.log_likelihood, emissions, labels, mask, zeros)
    wide = emissions.astype("float64")
    exact = (wide.max(-1) - np.log(np.exp(wide).sum(-1))).sum()
    np.testing.assert_allclose(value, [exact], rtol=1e-5)

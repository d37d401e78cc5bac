# SPDX-License-Identifier: Apache-2.0
"""Compares sentence pairs with a plain implementation.

Statistics are checked to within 4.5 standard errors. With random seeds, a correct implementation
would fail one check in 150,000.
"""

import random

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert.data.pretraining.instances import (  # noqa: E402
    PAIR_MAKERS,
    next_sentence_pairs,
    sentence_order_pairs,
    single_sentence_pairs,
    truncate_pair_randomly,
)
from tests.data.pretraining import plain_pairs  # noqa: E402
from tests.data.pretraining.plain_pairs import document_index  # noqa: E402


def make_pairs(documents, max_tokens, short=0.1, seed=1, times=1, make=next_sentence_pairs):
    rng = np.random.default_rng(seed)
    return [
        pair
        for _ in range(times)
        for index in range(len(documents))
        for pair in make(documents, index, rng, max_tokens, short)
    ]


def reference_pairs(documents, max_tokens, short=0.1, seed=1, times=1):
    source = random.Random(seed)
    return [
        pair
        for _ in range(times)
        for index in range(len(documents))
        for pair in plain_pairs.next_sentence_pairs(documents, index, source, max_tokens, short)
    ]


def assert_same_mean(first, second):
    first, second = np.asarray(first, float), np.asarray(second, float)
    error = np.sqrt(first.var() / len(first) + second.var() / len(second))
    assert abs(first.mean() - second.mean()) <= 4.5 * error + 1e-12


@pytest.mark.parametrize(("max_tokens", "short"), [(61, 0.0), (61, 0.1), (20, 0.0), (29, 1.0)])
def test_pair_statistics_match_reference(max_tokens, short):
    documents = plain_pairs.make_corpus(100)
    pairs = make_pairs(documents, max_tokens, short, times=4)
    expected = reference_pairs(documents, max_tokens, short, times=4)
    statistics = [
        lambda first, second, label: label,
        lambda first, second, label: len(first),
        lambda first, second, label: len(second),
        lambda first, second, label: len(first) ** 2,
        lambda first, second, label: len(second) ** 2,
        lambda first, second, label: len(first) + len(second) == max_tokens,
        lambda first, second, label: label * len(second),
        # The positions at which the segments start in their documents
        lambda first, second, label: first[0] % plain_pairs.TOKENS_PER_DOCUMENT,
        lambda first, second, label: second[0] % plain_pairs.TOKENS_PER_DOCUMENT,
    ]
    for statistic in statistics:
        assert_same_mean(
            [statistic(*pair) for pair in pairs], [statistic(*pair) for pair in expected]
        )
    counts = [len(pairs), len(expected)]
    assert counts[0] == pytest.approx(counts[1], rel=0.05)


def test_label_0_means_consecutive_segments():
    for first, second, label in make_pairs(plain_pairs.make_corpus(50), 10_000, short=0.5):
        is_foreign = document_index(first[0]) != document_index(second[0])
        assert is_foreign == bool(label)
        if not is_foreign:
            assert second[0] == first[-1] + 1


@pytest.mark.parametrize("make", PAIR_MAKERS.values(), ids=PAIR_MAKERS)
def test_each_sentence_is_used_once(make):
    # All sentences have the same length, so chunks need no truncation.
    documents = [
        list(np.arange(6 * size, dtype=np.int32).reshape(size, 6) + 10_000 * index)
        for index, size in enumerate([1, 2, 3, 7, 20, 31])
    ]
    for seed in range(20):
        for index, document in enumerate(documents):
            rng = np.random.default_rng(seed)
            pairs = list(make(documents, index, rng, 24, 0.0))
            tokens = np.concatenate([part for pair in pairs for part in pair[:2]])
            document_tokens = tokens[document_index(tokens) == index]
            assert sorted(document_tokens) == sorted(np.concatenate(document))


def test_single_sentence_gets_random_partner():
    documents = [[np.array([7, 8], np.int32)], [np.array([10_001], np.int32)]]
    for make in PAIR_MAKERS.values():
        (pair,) = make(documents, 0, np.random.default_rng(0), 10, 0.0)
        assert (pair.first.tolist(), pair.second.tolist(), pair.label) == ([7, 8], [10_001], 1)


def test_half_of_sentence_order_pairs_are_swapped():
    documents = plain_pairs.make_corpus(150)
    pairs = make_pairs(documents, 10_000, short=0.3, times=3, make=sentence_order_pairs)
    same_document = [
        pair for pair in pairs if document_index(pair.first[0]) == document_index(pair.second[0])
    ]
    for first, second, label in same_document:
        before, after = (second, first) if label else (first, second)
        assert after[0] == before[-1] + 1
    fraction = np.mean([pair.label for pair in same_document])
    assert abs(fraction - 0.5) < 4.5 * 0.5 / np.sqrt(len(same_document))
    foreign = [
        pair for pair in pairs if document_index(pair.first[0]) != document_index(pair.second[0])
    ]
    assert len(foreign) > 0
    assert all(pair.label == 1 for pair in foreign)


def test_single_sentence_pairs():
    documents = plain_pairs.make_corpus(60)
    sentences = {tuple(sentence) for document in documents for sentence in document}
    pairs = make_pairs(documents, 60, times=2, make=single_sentence_pairs)
    assert all(tuple(pair.first) in sentences and tuple(pair.second) in sentences for pair in pairs)
    assert 0.5 < np.mean([pair.label for pair in pairs]) < 0.6


def test_truncation_matches_one_token_loop():
    rng, source = np.random.default_rng(0), random.Random(0)
    for first_length in range(1, 12):
        for second_length in range(1, 12):
            for max_tokens in range(2, 23):
                first, second = np.arange(first_length), np.arange(second_length)
                actual = truncate_pair_randomly(first, second, max_tokens, rng)
                expected = list(first), list(second)
                plain_pairs.truncate(*expected, max_tokens, source)
                assert [len(part) for part in actual] == [len(part) for part in expected]
                assert all((np.diff(part) == 1).all() for part in actual)

# SPDX-License-Identifier: Apache-2.0
"""Rates are checked to within 4.5 standard errors, with fixed seeds."""

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert.data.pretraining.static_masking import StaticMasker, default_max_predictions  # noqa: E402

MASK, VOCABULARY_SIZE = 4, 5000


def make_row(length, rng):
    """Returns ids between [CLS] and [SEP] in which a third of the tokens continue a word."""
    ids = rng.integers(5, VOCABULARY_SIZE, size=length).astype(np.int32)
    ids[[0, -1]] = 2, 3
    candidates = np.ones(length, bool)
    candidates[[0, -1]] = False
    starts = rng.random(length) < 2 / 3
    starts[[0, 1, -1]] = True
    return ids, starts, candidates


def mask_rows(num_rows, length, **options):
    options = {"max_predictions": 20, **options}
    masker = StaticMasker(MASK, VOCABULARY_SIZE, **options)
    rng = np.random.default_rng(0)
    for _ in range(num_rows):
        row = make_row(length, rng)
        yield row, masker(*row, rng)


@pytest.mark.parametrize("whole_words", [False, True])
def test_replacement_rates(whole_words):
    counts, total = np.zeros(3), 0
    for (ids, _, _), masked in mask_rows(800, 128, whole_words=whole_words):
        after = masked.token_ids[masked.positions]
        is_mask, is_kept = after == MASK, after == masked.ids
        counts += is_mask.sum(), is_kept.sum(), (~is_mask & ~is_kept).sum()
        total += len(after)
        unchanged = np.ones(128, bool)
        unchanged[masked.positions] = False
        assert (masked.token_ids == ids)[unchanged].all()
    rates = np.array([0.8, 0.1, 0.1])
    assert (np.abs(counts / total - rates) < 4.5 * np.sqrt(rates * (1 - rates) / total)).all()


def test_number_of_masks_matches_original_bert():
    for length, number in [(3, 1), (10, 2), (30, 4), (100, 15), (128, 19), (200, 20)]:
        for _, masked in mask_rows(3, length):
            assert len(masked.positions) == min(number, length - 2)
    assert [default_max_predictions(length) for length in (128, 512, 3)] == [20, 77, 1]


def test_non_special_tokens_are_equally_likely():
    counts = np.zeros(42)
    for _, masked in mask_rows(3000, 42):
        assert (np.diff(masked.positions) > 0).all()
        counts[masked.positions] += 1
    assert counts[[0, -1]].sum() == 0
    expected = 3000 * 6 / 40
    assert np.abs(counts[1:-1] - expected).max() < 4.5 * np.sqrt(expected)


def test_whole_words_fit_the_budget():
    unused_budgets = []
    for (_, starts, candidates), masked in mask_rows(300, 128, whole_words=True):
        words = np.cumsum(starts)
        is_masked = np.isin(np.arange(128), masked.positions)
        for word in set(words[is_masked]):
            assert is_masked[(words == word) & candidates].all()
        unused_budgets.append(19 - len(masked.positions))
    assert min(unused_budgets) >= 0
    assert np.mean(unused_budgets) < 0.1

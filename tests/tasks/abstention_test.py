# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest
from scipy.stats import binomtest

from keras_bert.tasks.abstention import error_upper_bound, select_min_score

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    ("num_wrong", "num_examples"), [(0, 40), (3, 40), (39, 40), (40, 40), (120, 5000)]
)
def test_error_upper_bound_matches_scipy(num_wrong, num_examples):
    test = binomtest(num_wrong, num_examples, alternative="less")
    expected = test.proportion_ci(0.99, method="exact").high
    assert error_upper_bound(num_wrong, num_examples, 0.01) == pytest.approx(expected, abs=1e-9)


def test_selected_error_is_rarely_exceeded():
    """On new texts, the error is above the requested error in at most 5% of the runs."""
    rng = np.random.default_rng(0)
    exceeded, coverages = 0, []
    for _ in range(50):
        # A calibrated model with an error of 25% on all texts
        scores = rng.uniform(0.5, 1, size=5000)
        abstention = select_min_score(scores, rng.random(5000) < scores, 0.1)
        # The expected accuracy of texts above a score is their mean score.
        exceeded += 1 - (abstention.min_score + 1) / 2 > 0.1
        coverages.append(abstention.coverage)
        assert abstention.error < abstention.error_bound < 0.1
    assert exceeded <= 0.05 * 50
    # The best threshold for an error of 10% is 0.8, with a coverage of 40%.
    assert 0.2 < np.mean(coverages) < 0.4


def test_equal_scores_are_selected_together():
    scores = np.repeat([0.4, 0.9], 200)
    abstention = select_min_score(scores, np.repeat([False, True], 200), 0.05)
    assert abstention.coverage == 0.5
    assert abstention.min_score == pytest.approx(0.65)
    assert abstention.error == 0


def test_unreachable_error_raises():
    with pytest.raises(
        ValueError, match=r"error=0\.05 with 20 texts, of which 0 are .* more texts"
    ):
        select_min_score(np.linspace(0.5, 1, 20), np.ones(20, bool), 0.05)

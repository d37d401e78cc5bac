# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals match tables and formulas."""

import math

import numpy as np
import pytest

from keras_bert.intervals import bootstrap_interval, mean_and_interval, proportion_interval

pytestmark = pytest.mark.backend_independent


def test_mean_interval_matches_student_t():
    # In tables, t(0.975, 4 degrees of freedom) = 2.7764. The sample deviation is sqrt(2.5).
    mean, half_width = mean_and_interval([1, 2, 3, 4, 5])
    assert mean == 3
    assert half_width == pytest.approx(2.7764 * math.sqrt(2.5 / 5), rel=1e-4)
    mean, half_width = mean_and_interval([88.0])
    assert mean == 88.0
    assert math.isnan(half_width)
    assert mean_and_interval([70.0, 70.0]) == (70.0, 0.0)
    with pytest.raises(ValueError, match="Received: 0 scores"):
        mean_and_interval([])


@pytest.mark.parametrize(("count", "total"), [(0, 7), (3, 7), (7, 7), (120, 1000)])
def test_proportion_interval_matches_wilson(count, total):
    z, proportion = 1.959964, count / total
    center = proportion + z * z / (2 * total)
    margin = z * math.sqrt(proportion * (1 - proportion) / total + (z / (2 * total)) ** 2)
    expected = (center - margin) / (1 + z * z / total), (center + margin) / (1 + z * z / total)
    assert proportion_interval(count, total) == pytest.approx(expected, abs=1e-6)


def test_bootstrap_interval_of_mean():
    values = np.random.default_rng(0).normal(size=(80, 1))
    low, high = bootstrap_interval(values, samples=20000)
    deviation = 1.96 * values.std() / math.sqrt(80)
    assert (low, high) == pytest.approx(
        (values.mean() - deviation, values.mean() + deviation), abs=0.02
    )
    # Samples are computed in chunks to limit memory.
    assert bootstrap_interval(np.repeat(values, 50, axis=0), samples=600)[0] < values.mean()


def test_bootstrap_interval_of_ratio():
    values = np.random.default_rng(1).normal(size=(50, 2))
    ratio = bootstrap_interval(values + 5, lambda means: means[..., 0] / means[..., 1])
    assert 0.9 < ratio[0] < 1 < ratio[1] < 1.1
    assert bootstrap_interval(values[:1]) == (values[0, 0], values[0, 0])

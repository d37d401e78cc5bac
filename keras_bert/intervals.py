# SPDX-License-Identifier: Apache-2.0
"""Confidence intervals for means, proportions and functions of means, computed with SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from keras_bert.checks import importing

CONFIDENCE = 0.95
SAMPLES = 2000
# Number of indices to sample at once
_MAX_SAMPLED = 1 << 21


def mean_and_interval(values: npt.ArrayLike) -> tuple[float, float]:
    """Returns the mean over seeds and the half-width of its 95% confidence interval (Student's t).

    Args:
        values: The score of each seed, `(seeds,)`.

    Returns:
        The mean and the half-width. The half-width is NaN for a single score.

    Raises:
        ValueError: If `values` is empty.

    Example:

    >>> mean, half_width = mean_and_interval([90.0, 91.0, 92.0])
    >>> round(mean, 2), round(half_width, 2)
    (91.0, 2.48)
    """
    scores = np.asarray(values, "float64")
    if not scores.size:
        raise ValueError("values must contain at least one score. Received: 0 scores")
    if scores.size == 1:
        return float(scores[0]), float("nan")
    stats = _scipy_stats()
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, scores.size - 1)
    return float(scores.mean()), float(quantile * stats.sem(scores))


def mean_text(values: npt.ArrayLike, digits: int = 1) -> str:
    """Formats the mean over seeds, followed by its half-width unless there is only one seed.

    Example:

    >>> mean_text([81.0]), mean_text([80.0, 82.0])
    ('81.0', '81.0 ± 12.7')
    """
    mean, half_width = mean_and_interval(values)
    return f"{mean:.{digits}f}" + ("" if np.isnan(half_width) else f" ± {half_width:.{digits}f}")


def proportion_interval(
    count: int, total: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Returns Wilson's interval for a proportion. It is also valid for few units and near 0 or 1.

    Example:

    >>> low, high = proportion_interval(1, 10)
    >>> round(low, 3), round(high, 3)
    (0.018, 0.404)

    Reference:
        [Probable inference](https://doi.org/10.2307/2276774).
    """
    interval = _scipy_stats().binomtest(count, total).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def first_column(means: np.ndarray) -> np.ndarray:
    """Returns the first column of means `(..., columns)`."""
    return np.asarray(means[..., 0])


def bootstrap_interval(
    values: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray] = first_column,
    confidence: float = CONFIDENCE,
    samples: int = SAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Returns the bootstrap percentile interval for a function of means.

    Args:
        values: Values of each sampling unit, `(units, columns)`.
        statistic: Function from column means `(samples, columns)` to values `(samples,)`.
        confidence: Confidence level of the interval.
        samples: Number of bootstrap samples. Each sample has the same number of units as `values`.
        seed: Seed of the sampling.

    Returns:
        The lower and upper bound. With a single unit, both are its value.

    Reference:
        [Bootstrap methods: another look at the jackknife](https://doi.org/10.1214/aos/1176344552).
    """
    if len(values) == 1:
        value = float(statistic(values[0]))
        return value, value
    # Sample unit indices, so that a unit's columns are sampled together.
    result = _scipy_stats().bootstrap(
        (np.arange(len(values)),),
        lambda units, axis: statistic(values[units].mean(axis=axis - 1)),
        n_resamples=samples,
        batch=max(1, _MAX_SAMPLED // len(values)),
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def _scipy_stats() -> Any:
    with importing("training", "A confidence interval"):
        from scipy import stats
    return stats

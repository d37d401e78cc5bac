# SPDX-License-Identifier: Apache-2.0
"""Selective classification: predicts no label if the most probable label is too uncertain."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

# With this probability, the error on new texts is at most the bound.
CONFIDENCE = 0.95
_BISECTIONS = 60

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True)
class Abstention:
    """The lowest score at which a classifier predicts a label, and its effect on some texts.

    Args:
        min_score: The lowest score.
        coverage: Fraction of the texts with a label.
        error: Fraction of wrong labels among these texts.
        error_bound: Upper 95% confidence bound of the error on similar texts.
    """

    min_score: float
    coverage: float
    error: float
    error_bound: float


def select_min_score(scores: Array, is_right: Array, error: float) -> Abstention:
    """Finds the lowest threshold whose error bound is below `error`, by bisection.

    Each bound is a Clopper-Pearson bound for one of the `ceil(log2(examples))` thresholds of the
    bisection, so that together they hold with 95% confidence (Bonferroni).

    Args:
        scores: The probability of each predicted label, float `(examples,)`.
        is_right: Whether each label is right, bool `(examples,)`.
        error: The highest allowed error.

    Raises:
        ValueError: If no threshold of the bisection has a low enough bound.

    Reference:
        [Geifman & El-Yaniv, 2017](https://arxiv.org/abs/1705.08500), algorithm 2.
    """
    order = np.argsort(scores, kind="stable")
    scores, wrong = scores[order].astype("float64"), ~is_right[order].astype(bool)
    num_examples = len(scores)
    num_tests = max(1, math.ceil(math.log2(max(1, num_examples))))
    low, high = 0, num_examples - 1
    best: Abstention | None = None
    for _ in range(num_tests):
        middle = (low + high + 1) // 2
        first = int(np.searchsorted(scores, scores[middle])) if num_examples else 0
        num_answered, num_wrong = num_examples - first, int(wrong[first:].sum())
        bound = error_upper_bound(num_wrong, num_answered, (1 - CONFIDENCE) / num_tests)
        if bound < error:
            high = middle
            # Halfway to the next lower score, so that rounding does not matter.
            below = scores[first - 1] if first else 0.0
            best = Abstention(
                float(scores[first] + below) / 2,
                num_answered / num_examples,
                num_wrong / num_answered,
                bound,
            )
        else:
            low = middle
    if best is None:
        raise ValueError(
            "error must be above the 95% confidence bound of the error at some minimum score. "
            f"Received: error={error} with {num_examples} texts, of which {int(wrong.sum())} are "
            "classified wrongly. Pass more texts, or a higher error."
        )
    return best


def error_upper_bound(num_wrong: int, num_examples: int, significance: float) -> float:
    """Returns the upper Clopper-Pearson bound of a proportion, one-sided.

    The bound is the proportion at which at most `num_wrong` of the examples are wrong with a
    probability of `significance`.
    """
    if num_wrong >= num_examples:
        return 1.0
    counts = np.arange(num_wrong + 1)
    steps = (num_examples - counts[1:] + 1) / counts[1:]
    log_binomials = np.append(0.0, np.cumsum(np.log(steps)))
    low, high = num_wrong / num_examples, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        logs = (
            log_binomials
            + counts * math.log(max(middle, 1e-300))
            + (num_examples - counts) * math.log1p(-min(middle, 1 - 1e-16))
        )
        is_above = np.exp(logs).sum() > significance
        low, high = (middle, high) if is_above else (low, middle)
    return high

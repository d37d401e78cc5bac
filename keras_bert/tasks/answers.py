# SPDX-License-Identifier: Apache-2.0
"""From logits to answers."""

from __future__ import annotations

from typing import Any

import numpy as np


def as_given(x: Any, answers: list[dict[str, Any]]) -> Any:
    """Answers in the form of what was asked.

    Args:
        x: A string, which has one answer; a series or data frame of pandas; or any other batch.
        answers: One for each row.

    Returns:
        A dict for a string; a data frame with the index of a series or data frame; else the list.
    """
    if isinstance(x, str):
        return answers[0]
    if hasattr(x, "index") and hasattr(x, "iloc"):
        import pandas  # is there: `x` is of it

        return pandas.DataFrame(answers, index=x.index)
    return answers


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of logits over the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))

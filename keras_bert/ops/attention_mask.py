# SPDX-License-Identifier: Apache-2.0
"""The attention score of masked keys."""

from __future__ import annotations


def masked_score(dtype: str) -> float:
    """Returns the score of masked keys: far below all others, but finite.

    A query all of whose keys are masked then gets the average of their values, and not NaN.

    Args:
        dtype: The name of a float dtype.
    """
    return -3e4 if dtype == "float16" else -1e9

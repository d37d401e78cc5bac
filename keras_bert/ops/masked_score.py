# SPDX-License-Identifier: Apache-2.0
"""What the score of a masked key is."""

from __future__ import annotations


def masked_score(dtype: str) -> float:
    """Far below any score, but finite: a row without a single key gives an average, not NaN.

    Args:
        dtype: The name of a float dtype.
    """
    return -3e4 if dtype == "float16" else -1e9

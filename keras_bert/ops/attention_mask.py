# SPDX-License-Identifier: Apache-2.0
"""The score of masked keys in attention."""

from __future__ import annotations


def masked_score(dtype: str) -> float:
    """A score far below all others, but finite: without any key a row gets an average, not NaN.

    Args:
        dtype: The name of a float dtype.
    """
    return -3e4 if dtype == "float16" else -1e9

# SPDX-License-Identifier: Apache-2.0
"""Which keys are attended to, by their distance, and the attention score of masked ones."""

from __future__ import annotations

from keras import ops

from keras_bert.ops.annotations import Tensor


def masked_score(dtype: str) -> float:
    """Returns the score of masked keys: far below all others, but finite.

    A query all of whose keys are masked then gets the average of their values, and not NaN.

    Args:
        dtype: The name of a float dtype.
    """
    return -3e4 if dtype == "float16" else -1e9


def in_sliding_window(distances: Tensor, window: int | None, causal: bool) -> Tensor:
    """Returns a bool tensor, True where queries may attend to keys.

    Args:
        distances: The positions of queries minus those of keys, int, of any shape.
        window: The largest distance; `None`, if `causal`, for no limit.
        causal: Whether keys after the query are not attended to.
    """
    if window is None:
        return distances >= 0
    near = ops.abs(distances) <= window
    return ops.logical_and(near, distances >= 0) if causal else near

# SPDX-License-Identifier: Apache-2.0
"""Checks of the shapes of inputs, which several layers have in common."""

from __future__ import annotations

from typing import Any


def check_length(length: int | None, max_sequence_length: int) -> None:
    """Checks that an input is no longer than `max_sequence_length`, if its length is known."""
    if length is not None and length > max_sequence_length:
        raise ValueError(
            f"The input is {length} tokens long; this model has positions for at most "
            f"{max_sequence_length} (max_sequence_length). Truncate it, or split it into windows."
        )


def check_same_shape(name: str, received: Any, expected: Any) -> None:
    """Checks that an input's static shape `(batch, length)` may be that of `token_ids`."""
    received, expected = tuple(received), tuple(expected)
    matches = len(received) == len(expected) and all(
        a is None or b is None or a == b for a, b in zip(received, expected, strict=True)
    )
    if not matches:
        raise ValueError(
            f"`{name}` has shape {received}; it must have the shape of token_ids, {expected}."
        )

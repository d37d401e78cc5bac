# SPDX-License-Identifier: Apache-2.0
"""From logits to answers."""

from __future__ import annotations

import numpy as np


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities of logits over the last axis."""
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))

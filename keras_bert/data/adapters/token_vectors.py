# SPDX-License-Identifier: Apache-2.0
"""Reads queries or documents in memory, and returns the vectors of their tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_bert.data.adapters.base import BatchOutputs
from keras_bert.data.adapters.texts import TextAdapter
from keras_bert.data.late_interaction import LateInteractionExamples
from keras_bert.data.loader import Examples


@dataclasses.dataclass(frozen=True, eq=False)
class TokenVectorsAdapter(TextAdapter):
    """Queries or documents in memory, for late interaction.

    Args:
        is_query: Whether the texts are queries.
    """

    outputs_are_joined = False

    is_query: bool = False

    def examples(self, preprocessor: Any) -> Examples:
        return LateInteractionExamples(self.columns["text"], preprocessor, self.is_query)

    def restore(
        self, outputs_of_batches: Iterable[BatchOutputs], shape: Any
    ) -> list[np.ndarray[Any, Any]]:
        """Returns the vectors of each text's tokens `(tokens, dim)` in the order of the input."""
        vectors: list[Any] = [None] * len(self)
        for features, index, outputs in outputs_of_batches:
            for row, mask, output in zip(index, features["pooling_mask"], outputs, strict=True):
                vectors[row] = output[mask > 0]
        return vectors

# SPDX-License-Identifier: Apache-2.0
"""Reverses rows of tokens, so that a causal encoder learns to predict the previous token."""

from __future__ import annotations

from typing import Any

import numpy as np

from keras_bert.data import NextTokenTargets
from keras_bert.data.pretraining.masking import dense_features, non_padding_tokens


class PreviousTokenTargets(NextTokenTargets):
    """Reverses the tokens in each row, and then adds the next token as each position's target.

    Its arguments and its result are the same as for `NextTokenTargets`, but the features must be
    NumPy arrays, and packed rows are not supported. Padding stays at the end.
    """

    def __call__(self, features: Any, step: Any = None) -> dict[str, Any]:
        xp, features = dense_features(features)
        lengths = non_padding_tokens(xp, features, self.pad_token_id).sum(axis=-1, keepdims=True)
        positions = np.arange(features["token_ids"].shape[-1])
        index = np.where(positions < lengths, lengths - 1 - positions, positions)
        rows = {
            name: np.take_along_axis(values, index, axis=-1) for name, values in features.items()
        }
        return super().__call__(rows, step)

# SPDX-License-Identifier: Apache-2.0
"""Masks that are drawn once, when records are written, as BERT's released code does it."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from keras_bert.data.pretraining.token_store import Ids

Flags = np.ndarray[Any, np.dtype[np.bool_]]


class MaskedTokens(NamedTuple):
    """A masked row.

    Attributes:
        token_ids: int32 `(length,)`, masked.
        positions: int32 `(predictions,)`, ascending: the positions to predict.
        ids: int32 `(predictions,)`: the tokens before masking.
    """

    token_ids: Ids
    positions: Ids
    ids: Ids


class StaticMasker:
    """Chooses tokens or whole words to predict, and masks 80 % of them, changes 10 %, keeps 10 %.

    The share is taken of the row's length, special tokens counted, and the kind of change is drawn
    for each token, in whole words too. A changed token is uniform over the vocabulary.

    Args:
        mask_token_id: Id of `[MASK]`.
        vocabulary_size: How many ids there are.
        max_predictions: The most tokens to choose in a row.
        masked_lm_probability: The share of tokens to choose.
        whole_words: Whether to choose words, of which all pieces are then chosen; a word that would
            exceed the number wanted is skipped.

    Example:

    >>> from keras_bert.data.pretraining.static_masking import StaticMasker
    >>> masker = StaticMasker(mask_token_id=4, vocabulary_size=9, max_predictions=2)
    >>> row = np.array([2, 5, 6, 7, 8, 3], np.int32)
    >>> starts = np.array([False, True, True, False, True, False])
    >>> candidates = np.array([False, True, True, True, True, False])
    >>> masked = masker(row, starts, candidates, np.random.default_rng(0))
    >>> bool((row[masked.positions] == masked.ids).all())
    True

    Reference:
        [BERT](https://arxiv.org/abs/1810.04805), section 3.1, task 1, and appendix A.1.
    """

    def __init__(
        self,
        mask_token_id: int,
        vocabulary_size: int,
        max_predictions: int,
        masked_lm_probability: float = 0.15,
        whole_words: bool = False,
    ) -> None:
        self.mask_token_id = mask_token_id
        self.vocabulary_size = vocabulary_size
        self.max_predictions = max_predictions
        self.masked_lm_probability = masked_lm_probability
        self.whole_words = whole_words

    def __call__(
        self, token_ids: Ids, word_starts: Flags, candidates: Flags, rng: np.random.Generator
    ) -> MaskedTokens:
        """Masks one row.

        Args:
            token_ids: int32 `(length,)`, special tokens among them.
            word_starts: bool `(length,)`: where a word begins.
            candidates: bool `(length,)`: the tokens that may be chosen: all but special tokens.
            rng: The source of random numbers.
        """
        wanted = round(self.masked_lm_probability * len(token_ids))
        wanted = min(self.max_predictions, max(1, wanted))
        selectable = np.flatnonzero(candidates)
        if self.whole_words:
            chosen = _choose_words(selectable, word_starts, wanted, rng)
        else:
            chosen = rng.permutation(selectable)[:wanted]
        positions = np.sort(chosen).astype(np.int32)
        masked = token_ids.copy()
        masked[positions] = self._replacements(token_ids[positions], rng)
        return MaskedTokens(masked, positions, token_ids[positions])

    def _replacements(self, ids: Ids, rng: np.random.Generator) -> Ids:
        draw = rng.random(len(ids))
        random_ids = rng.integers(self.vocabulary_size, size=len(ids), dtype=np.int32)
        return np.where(draw < 0.8, self.mask_token_id, np.where(draw < 0.9, ids, random_ids))


def default_max_predictions(sequence_length: int, masked_lm_probability: float = 0.15) -> int:
    """As many predictions as the longest row asks for: 20 at 128 tokens, 77 at 512."""
    return max(1, math.ceil(masked_lm_probability * sequence_length))


def _choose_words(positions: Any, word_starts: Flags, wanted: int, rng: np.random.Generator) -> Any:
    """Random words with `wanted` tokens or fewer; those that do not fit are skipped."""
    inner_starts = np.flatnonzero(word_starts[positions][1:]) + 1
    bounds = [0, *inner_starts.tolist(), len(positions)]
    chosen: list[Any] = []
    left = wanted
    for word in rng.permutation(len(bounds) - 1).tolist():
        if left == 0:
            break
        start, end = bounds[word], bounds[word + 1]
        if end - start <= left:
            chosen.append(positions[start:end])
            left -= end - start
    return np.concatenate(chosen) if chosen else positions[:0]

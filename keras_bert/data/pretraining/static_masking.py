# SPDX-License-Identifier: Apache-2.0
"""Samples masks once, when records are written (static masking), as in the original BERT code."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from keras_bert import checks
from keras_bert.data.pretraining.token_store import Ids

# The units to select are single tokens, whole words, or n-grams of words.
UNITS = ("token", "word", "ngram")
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class MaskedTokens(NamedTuple):
    """A masked sequence.

    Attributes:
        token_ids: int32 `(length,)`, with the selected tokens replaced.
        positions: int32 `(predictions,)`, the positions to predict, ascending.
        ids: int32 `(predictions,)`, the selected tokens before replacement.
    """

    token_ids: Ids
    positions: Ids
    ids: Ids


# `mask_selection` processes batches. For single sequences, this class is nine times as fast.
class StaticMasker:
    """Selects tokens or whole words to predict. 80% are masked, 10% random and 10% unchanged.

    The number of selected tokens is `masked_lm_probability` times the sequence length, including
    special tokens, but at least 1 and at most `max_predictions`. Replacements are sampled
    independently for each token, even within a word. Random tokens are uniform over the vocabulary.

    Args:
        mask_token_id: The id of `[MASK]`.
        vocabulary_size: Number of token ids.
        max_predictions: Maximum number of tokens to select in a sequence.
        masked_lm_probability: Fraction of tokens to select. Defaults to 0.15.
        whole_words: Whether to select whole words, with all of their subwords. A word that would
            exceed the number of tokens to select is skipped. Defaults to `False`.

    Call arguments:
        token_ids: int32 `(length,)`, including special tokens.
        word_starts: bool `(length,)`, True at the first token of each word.
        candidates: bool `(length,)`, True at selectable tokens (all tokens except special tokens).
        rng: The random number generator.

    Returns:
        `MaskedTokens`.

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
        checks.POSITIVE_INT.check(vocabulary_size=vocabulary_size, max_predictions=max_predictions)
        checks.NumberRange(above=0, below=1).check(masked_lm_probability=masked_lm_probability)
        self.mask_token_id = mask_token_id
        self.vocabulary_size = vocabulary_size
        self.max_predictions = max_predictions
        self.masked_lm_probability = masked_lm_probability
        self.whole_words = whole_words

    def __call__(
        self, token_ids: Ids, word_starts: Flags, candidates: Flags, rng: np.random.Generator
    ) -> MaskedTokens:
        """Masks a sequence."""
        num_masks = round(self.masked_lm_probability * len(token_ids))
        num_masks = min(self.max_predictions, max(1, num_masks))
        selectable = np.flatnonzero(candidates)
        if self.whole_words:
            selection = _choose_words(selectable, word_starts, num_masks, rng)
        else:
            selection = rng.permutation(selectable)[:num_masks]
        positions = np.sort(selection).astype(np.int32)
        masked_ids = token_ids.copy()
        masked_ids[positions] = self._replacements(token_ids[positions], rng)
        return MaskedTokens(masked_ids, positions, token_ids[positions])

    def _replacements(self, ids: Ids, rng: np.random.Generator) -> Ids:
        draw = rng.random(len(ids))
        random_ids = rng.integers(self.vocabulary_size, size=len(ids), dtype=np.int32)
        return np.where(draw < 0.8, self.mask_token_id, np.where(draw < 0.9, ids, random_ids))


def default_max_predictions(sequence_length: int, masked_lm_probability: float = 0.15) -> int:
    """Returns the number of predictions in the longest sequence: 20 for 128 tokens, 77 for 512."""
    return max(1, math.ceil(masked_lm_probability * sequence_length))


def _choose_words(positions: Any, word_starts: Flags, budget: int, rng: np.random.Generator) -> Any:
    """Selects random words with at most `budget` tokens in total. Skips words that exceed it."""
    inner_starts = np.flatnonzero(word_starts[positions][1:]) + 1
    bounds = [0, *inner_starts.tolist(), len(positions)]
    words: list[Any] = []
    remaining = budget
    for word in rng.permutation(len(bounds) - 1).tolist():
        if remaining == 0:
            break
        start, end = bounds[word], bounds[word + 1]
        if end - start <= remaining:
            words.append(positions[start:end])
            remaining -= end - start
    return np.concatenate(words) if words else positions[:0]

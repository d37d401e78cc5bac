# SPDX-License-Identifier: Apache-2.0
"""The unigram baseline of pre-training: masked tokens predicted by their frequency alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from keras_bert.text.tokenizer import Tokenizer

# Training tokens that a run's baseline is counted on; to read them takes two seconds of a busy core
MAX_TOKENS = 2_000_000
_ROWS_AT_ONCE = 1024

Integers = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]


class UnigramModel:
    """Counts of tokens with add-one smoothing.

    Ids that are never predicted are not counted, and have the probability 0.
    """

    def __init__(self, vocabulary_size: int, never_predicted: Collection[int] = ()) -> None:
        self._counts = np.zeros(vocabulary_size, np.int64)
        self._is_counted = np.ones(vocabulary_size, bool)
        self._is_counted[list(never_predicted)] = False

    def add(self, token_ids: Integers) -> None:
        """Counts tokens of any shape."""
        self._counts += np.bincount(token_ids.reshape(-1), minlength=len(self._counts))

    def probabilities(self) -> Floats:
        """Returns the probabilities `(vocabulary,)`."""
        smoothed = np.where(self._is_counted, self._counts + 1.0, 0.0)
        return np.asarray(smoothed / smoothed.sum())

    def score(self, batches: Iterable[dict[str, Any]]) -> dict[str, float]:
        """Returns the accuracy and the perplexity on the masked tokens of a `PretrainingStream`."""
        probabilities = self.probabilities()
        best = int(np.argmax(probabilities))
        right, loss, count = 0, 0.0, 0
        for batch in batches:
            labels = batch["mask_ids"][batch["mask_weights"] > 0]
            right += int((labels == best).sum())
            loss -= float(np.log(probabilities[labels]).sum())
            count += len(labels)
        return {"masked_accuracy": right / count, "perplexity": math.exp(loss / count)}


def never_predicted(tokenizer: Tokenizer, causal: bool) -> set[int]:
    """Returns the ids that are no label of pre-training: those of the special tokens.

    `[UNK]` is one, and so is the `[SEP]` that a causal model predicts.
    """
    labels = {tokenizer.unk_token_id} | ({tokenizer.sep_token_id} if causal else set())
    return set(tokenizer.special_token_ids) - labels


def unmasked_rows(records: str, sequence_length: int) -> Iterator[tuple[Integers, np.ndarray]]:
    """Reads the original tokens of records, also of those that have masks.

    Yields:
        Token ids int64 `(rows, length)`, and bool `(rows, length)`, which is False at padding. The
        order is always the same.
    """
    from keras_bert.data import pretraining_batches
    from keras_bert.data.pretraining.records import record_paths

    # One after another, since batches count the records of their files first.
    each = (
        pretraining_batches(path, batch_size=_ROWS_AT_ONCE, sequence_length=sequence_length)
        for path in record_paths(records)
    )
    for batch in itertools.chain.from_iterable(each):
        token_ids = batch["token_ids"].astype("int64")
        if "mask_ids" in batch:
            rows, slots = np.nonzero(batch["mask_weights"])
            positions = batch["mask_positions"][rows, slots]
            token_ids[rows, positions] = batch["mask_ids"][rows, slots]
        yield token_ids, batch["padding_mask"]


def unigram_model(
    records: str,
    sequence_length: int,
    tokenizer: Tokenizer,
    causal: bool,
    max_tokens: int = MAX_TOKENS,
) -> UnigramModel:
    """Returns the unigram model of the first `max_tokens` training tokens, or a few more."""
    model = UnigramModel(tokenizer.vocabulary_size, never_predicted(tokenizer, causal))
    num_left = max_tokens
    for token_ids, is_real in unmasked_rows(records, sequence_length):
        model.add(token_ids[is_real])
        num_left -= int(is_real.sum())
        if num_left <= 0:
            break
    return model

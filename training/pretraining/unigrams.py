# SPDX-License-Identifier: Apache-2.0
"""The unigram baseline for pre-training. It predicts masked tokens only by their frequency."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from keras_bert.data import PretrainingStream, pretraining_batches
from keras_bert.data.pretraining.record_files import record_paths
from keras_bert.text.tokenizer import Tokenizer

from .config import EncoderOptions

# Number of training tokens to count. Reading them takes two seconds on a busy core.
_MAX_TOKENS = 2_000_000
_ROWS_AT_ONCE = 1024


def unigram_scores(
    records: str,
    sequence_length: int,
    tokenizer: Tokenizer,
    encoder: EncoderOptions,
    stream: PretrainingStream,
    num_batches: int,
) -> dict[str, float]:
    """Scores the records' unigram model on a stream's first batches."""
    probabilities = unigram_probabilities(records, sequence_length, tokenizer, encoder)
    return score(probabilities, stream.first_batches(num_batches))


def unigram_probabilities(
    records: str, sequence_length: int, tokenizer: Tokenizer, encoder: EncoderOptions
) -> np.ndarray:
    """Returns token frequencies `(vocabulary,)` in about two million training tokens."""
    counts, num_left = np.zeros(tokenizer.vocabulary_size, np.int64), _MAX_TOKENS
    for token_ids in _unmasked_tokens(records, sequence_length):
        counts += np.bincount(token_ids, minlength=len(counts))
        num_left -= len(token_ids)
        if num_left <= 0:
            break
    # The only special tokens that occur as labels are [UNK], for causal models [SEP], and for
    # right-to-left models [CLS].
    labels = {tokenizer.unk_token_id}
    labels |= {tokenizer.sep_token_id} if encoder.causal else set()
    labels |= {tokenizer.cls_token_id} if encoder.right_to_left else set()
    return smoothed(counts, set(tokenizer.special_token_ids) - labels)


def smoothed(counts: np.ndarray, never_predicted: Collection[int]) -> np.ndarray:
    """Returns frequencies with add-one smoothing, and 0 for the ids in `never_predicted`."""
    frequencies = counts + 1.0
    frequencies[list(never_predicted)] = 0.0
    return np.asarray(frequencies / frequencies.sum())


def score(probabilities: np.ndarray, batches: Iterable[dict[str, Any]]) -> dict[str, float]:
    """Returns the accuracy and perplexity on a `PretrainingStream`'s masked tokens."""
    best = int(np.argmax(probabilities))
    right, loss, count = 0, 0.0, 0
    for batch in batches:
        labels = batch["mask_ids"][batch["mask_weights"] > 0]
        right += int((labels == best).sum())
        loss -= float(np.log(probabilities[labels]).sum())
        count += len(labels)
    return {
        "unigram_accuracy": round(right / count, 6),
        "unigram_perplexity": round(math.exp(loss / count), 3),
    }


def _unmasked_tokens(records: str, sequence_length: int) -> Iterator[np.ndarray]:
    """Yields the records' original tokens batch by batch, even if the records have masks."""
    # Read one file at a time, because a batch stream first counts the records in all its files.
    for path in record_paths(records):
        batches = pretraining_batches(
            path, batch_size=_ROWS_AT_ONCE, sequence_length=sequence_length
        )
        for batch in batches:
            token_ids = batch["token_ids"].astype("int64")
            if "mask_ids" in batch:
                rows, slots = np.nonzero(batch["mask_weights"])
                positions = batch["mask_positions"][rows, slots]
                token_ids[rows, positions] = batch["mask_ids"][rows, slots]
            yield token_ids[batch["padding_mask"]]

# SPDX-License-Identifier: Apache-2.0
"""Benchmark of dynamic masking against KerasHub's `MaskedLMMaskGenerator`, in one run.

Both process the same batches of ids in `tf.data.Dataset.map` with the same number of threads. They
take turns, one round each, so that other load on the machine affects both alike.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from keras_bert.data import MaskedLMMasker
from keras_bert.data.pretraining.static_masking import UNITS

BATCH_SIZE = 256
VOCABULARY_SIZE = 30522
PADDING, CLASSIFY, SEPARATE, MASK = 0, 101, 102, 103
# The first id of a word, and the first id of a continuation token; a fifth are continuation tokens
FIRST_WORD, FIRST_PIECE = 1000, 24618

Masked = dict[str, tf.Tensor]


def run(
    rounds: int = 7, num_batches: int = 64, length: int = 128, threads: int = 2
) -> dict[str, Any]:
    """Measures the masking of random rows `[CLS] ... [SEP]` without padding.

    Args:
        rounds: Number of passes over the rows, after one to warm up.
        num_batches: Number of batches of 256 rows.
        length: Tokens in a row.
        threads: Number of threads for each subject.

    Returns:
        A dict of `tokens` (in all rows) and, for each subject (KerasHub's generator, and this
        project's masker with each unit): `masked` (the share of the tokens that is to be
        predicted), `tokens_per_second` (of all tokens, the median over the rounds), `slowest`,
        `fastest` (tokens per second in a round) and `speedup` (relative to KerasHub).
    """
    batches = _batches(num_batches, length)
    subjects = {f"keras_bert {unit}": _keras_bert(unit) for unit in UNITS}
    subjects["keras_hub"] = _keras_hub(length)
    datasets = {
        name: batches.map(mask, num_parallel_calls=threads) for name, mask in subjects.items()
    }
    tokens = num_batches * BATCH_SIZE * length
    masked = {name: _count_masked(dataset) / tokens for name, dataset in datasets.items()}
    speeds: dict[str, list[float]] = {name: [] for name in datasets}
    for _ in range(rounds):
        for name, dataset in datasets.items():
            start = time.perf_counter()
            for _ in dataset:
                pass
            speeds[name].append(tokens / (time.perf_counter() - start))
    medians = {name: statistics.median(each) for name, each in speeds.items()}
    return {
        "tokens": tokens,
        "masked": masked,
        "tokens_per_second": medians,
        "slowest": {name: min(each) for name, each in speeds.items()},
        "fastest": {name: max(each) for name, each in speeds.items()},
        "speedup": {name: median / medians["keras_hub"] for name, median in medians.items()},
    }


def _batches(num_batches: int, length: int) -> tf.data.Dataset:
    """Returns a dataset of `(step, ids)`."""
    shape = (num_batches, BATCH_SIZE, length)
    ids = np.random.default_rng(0).integers(FIRST_WORD, VOCABULARY_SIZE, shape, np.int32)
    ids[..., 0], ids[..., -1] = CLASSIFY, SEPARATE
    return tf.data.Dataset.from_tensor_slices(ids).enumerate()


def _keras_bert(unit: str) -> Callable[[tf.Tensor, tf.Tensor], Masked]:
    masker = MaskedLMMasker(
        VOCABULARY_SIZE,
        MASK,
        [PADDING, CLASSIFY, SEPARATE, MASK],
        unit=unit,
        continuation_token_ids=range(FIRST_PIECE, VOCABULARY_SIZE),
    )
    return lambda step, ids: masker(ids, step)


def _keras_hub(length: int) -> Callable[[tf.Tensor, tf.Tensor], Masked]:
    import keras_hub

    masker = keras_hub.layers.MaskedLMMaskGenerator(
        VOCABULARY_SIZE,
        mask_selection_rate=0.15,
        mask_token_id=MASK,
        mask_selection_length=max(1, round(0.15 * length)),
        unselectable_token_ids=[PADDING, CLASSIFY, SEPARATE, MASK],
    )
    return lambda step, ids: masker(ids)


def _count_masked(dataset: tf.data.Dataset) -> float:
    return sum(float(tf.reduce_sum(masked["mask_weights"])) for masked in dataset)

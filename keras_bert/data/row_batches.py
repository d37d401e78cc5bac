# SPDX-License-Identifier: Apache-2.0
"""Batches of a preprocessor's rows, whatever a row is to its task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Required, TypedDict, Unpack

import tensorflow as tf

from keras_bert.data.batching import WINDOW_BATCHES, bucket_lengths, length_bucketed_batches
from keras_bert.text.tokenizer import Tokenizer


class BatchOptions(TypedDict, total=False):
    """How rows become batches.

    Attributes:
        batch_size: Rows in a batch.
        shuffle_seed: Shuffles the order of batches, and rows if their number is known; `None`
            keeps the order within a window of like lengths.
        reshuffle: Whether each iteration has another order (by default), or all have one.
        coarse_buckets: Few lengths to pad to, for compilers that need seconds for each.
        pad_last_batch: Fills the last batch up with rows of weight 0, so that every batch of a
            bucket has one static shape.
        window_batches: Batches whose rows are sorted by length among themselves. By default 64;
            where rows are shuffled and their number is known, no more than a sixteenth of an epoch.
    """

    batch_size: Required[int]
    shuffle_seed: int | None
    reshuffle: bool
    coarse_buckets: bool
    pad_last_batch: bool
    window_batches: int


class RowPreprocessor(Protocol):
    """What batches need to know of a preprocessor."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def sequence_length(self) -> int: ...


def row_batches(
    rows: tf.data.Dataset | int,
    featurize: Callable[..., tuple[dict[str, tf.RaggedTensor], tuple[Any, ...]]],
    preprocessor: RowPreprocessor,
    **options: Unpack[BatchOptions],
) -> tf.data.Dataset:
    """Length-bucketed batches of rows.

    Args:
        rows: A dataset of them; or how many there are, where `featurize` takes their numbers.
        featurize: As in `length_bucketed_batches`.
        preprocessor: Whose rows they are: says how long they may be, and what pads them.
        **options: `BatchOptions`.

    Returns:
        A dataset of `(features, rest)`, as `length_bucketed_batches` gives it.
    """
    if isinstance(rows, int):
        rows = tf.data.Dataset.range(rows)
    seed, reshuffle = options.get("shuffle_seed"), options.get("reshuffle", True)
    window = WINDOW_BATCHES
    if seed is not None and (num_rows := int(rows.cardinality())) > 0:
        rows = rows.shuffle(num_rows, seed=seed, reshuffle_each_iteration=reshuffle)
        # Were an epoch one window, its batches would be of the same rows in every epoch.
        window = max(1, min(window, num_rows // (16 * options["batch_size"])))
    coarse = options.get("coarse_buckets", False)
    return length_bucketed_batches(
        rows,
        featurize,
        batch_size=options["batch_size"],
        buckets=bucket_lengths(preprocessor.sequence_length, coarse=coarse),
        shuffle_seed=seed,
        reshuffle=reshuffle,
        pad_last_batch=options.get("pad_last_batch", False),
        pad_token_id=preprocessor.tokenizer.pad_token_id,
        window_batches=options.get("window_batches", window),
    )

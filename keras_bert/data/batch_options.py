# SPDX-License-Identifier: Apache-2.0
"""Batching options, and the shard of each batch for a process or device."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from keras_bert import checks

DEFAULT_BATCH_SIZE = 32
# The number of batches in a bucketing window. The examples in a window are sorted by length
# together. The number is large enough that examples in a batch differ by only a token or two, and
# small enough that the epoch's order stays random. Gradients from batches of similar examples have
# a larger variance, so the window is smaller for small data sets.
WINDOW_BATCHES = 64
# The minimum number of windows per epoch of shuffled examples. With fewer windows, long and short
# examples would never share a batch. With one window, every epoch would have the same batches.
WINDOWS_IN_EPOCH = 16


class ShardedMap(Protocol):
    """Splits a function of examples among processes. See `keras_bert.ops.jax_steps.sharded_map`."""

    def __call__(
        self, function: Callable[[np.ndarray], np.ndarray], num_rows: int, **same: int
    ) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """Options for batching in one call of `fit`, `evaluate` or `predict`.

    Args:
        batch_size: Number of examples in a batch. `None` means 32.
        compiles: Whether every new batch shape triggers a compilation that takes seconds. Then
            batches have few different lengths, and the last training batch is padded with examples
            of weight 0.
        batches_for_more_lengths: Minimum number of batches in an epoch to use the same lengths as
            without compilation, because less padding then saves more time than the compilations
            take. `None` means never.
        shuffle_seed: Seed for shuffling examples and batches, differently in each epoch. `None`
            does not shuffle. In a dataset, an example moves forward by at most 1,024 batches.
        training: Whether the batches are for training.
        negative_fraction: Fraction of the windows without an answer to keep, if other windows of
            the question contain an answer.
        duplicate_factor: Number of times to use each document, with different segment pairs.
        bucketing_window: Number of batches whose examples are sorted by length together. 1 does not
            regroup examples. Defaults to 64. For shuffled examples, the default is limited to a
            sixteenth of the epoch or, if its size is unknown, a sixteenth of the examples read so
            far.
        merge_windows: In predictions, returns each text's output, given the outputs of all windows
            and each text's number of windows. See `TextClassifierPreprocessor.merge_windows`.
        num_replicas: Number of devices in this process that share each batch. Above 1, the last
            batch is also padded with examples, so that all devices have the same number.
        shard: `(index, count)`: the index of this process and the number of processes that share
            each batch. Each process has an equal number of consecutive examples, padded to the
            length of the whole batch.
        sharded_map: Splits a function of examples among the processes, and checks that all
            processes have the same options. A process then packs its shard of the examples in
            memory to share their lengths, and later its shard of each batch. Without it, every
            process packs all examples.
        allow_unlabeled: Whether the label -1 (NaN in regression) marks an example without a label.

    Raises:
        ValueError: If an option is out of range, or if a batch cannot be split equally among
            replicas or processes.
    """

    batch_size: int | None = None
    compiles: bool = False
    batches_for_more_lengths: int | None = None
    shuffle_seed: int | None = None
    training: bool = False
    negative_fraction: float = 1.0
    duplicate_factor: int = 1
    bucketing_window: int | None = None
    merge_windows: Callable[[Any, Any], Any] | None = None
    num_replicas: int = 1
    shard: tuple[int, int] = (0, 1)
    sharded_map: ShardedMap | None = None
    allow_unlabeled: bool = False

    def __post_init__(self) -> None:
        checks.POSITIVE_INT.check_optional(
            batch_size=self.batch_size, bucketing_window=self.bucketing_window
        )
        if self.rows_in_batch % self.num_replicas:
            raise ValueError(
                f"batch_size must be a multiple of the {self.num_replicas} devices that share each "
                f"batch. Received: {self.rows_in_batch}"
            )
        check_shard(self.shard, self.rows_in_batch)

    @property
    def rows_in_batch(self) -> int:
        """The number of examples in a batch."""
        return self.batch_size or DEFAULT_BATCH_SIZE

    @property
    def pads_last_batch(self) -> bool:
        """Whether the last batch is padded with repeated examples of weight 0."""
        is_shared = self.num_replicas > 1 or self.shard[1] > 1
        return (self.compiles and self.training) or is_shared

    def has_few_lengths(self, num_batches: int | None) -> bool:
        """Returns whether an epoch uses few different lengths. `num_batches` may be unknown."""
        least = self.batches_for_more_lengths
        return self.compiles and (num_batches is None or least is None or num_batches < least)

    def window(self, num_rows: int | None) -> int | None:
        """Returns the number of batches per window, or `None` if it grows during the epoch."""
        if self.bucketing_window is not None or self.shuffle_seed is None:
            return self.bucketing_window or WINDOW_BATCHES
        if num_rows is None:
            return None
        return max(1, min(WINDOW_BATCHES, num_rows // (WINDOWS_IN_EPOCH * self.rows_in_batch)))


def check_shard(shard: tuple[int, int], batch_size: int) -> None:
    """Checks that a batch can be split equally into shards `(index, count)`."""
    index, count = shard
    if not 0 <= index < count or batch_size % count:
        raise ValueError(
            f"shard must be (index, count) with an index below the count, and batch_size must be a "
            f"multiple of the count. Received: shard={shard} and batch_size={batch_size}"
        )


def rows_of_shard(shard: tuple[int, int], batch_size: int) -> slice:
    """Returns the slice of each batch for the process `(index, count)`."""
    index, count = shard
    return slice(index * batch_size // count, (index + 1) * batch_size // count)

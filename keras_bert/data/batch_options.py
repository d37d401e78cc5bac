# SPDX-License-Identifier: Apache-2.0
"""The options of batches, and the shard of each batch that a process or device has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np

from keras_bert import checks

DEFAULT_BATCH_SIZE = 32
# The number of batches in a bucketing window. Its rows are sorted by length together: large
# enough that the rows of a batch differ by a token or two, small enough that the order of an epoch
# stays random. Gradients of batches of similar rows have a larger variance, so the window is
# smaller for small data sets.
WINDOW_BATCHES = 64
# The smallest number of windows in an epoch of shuffled rows: with fewer, long and short rows would
# never be in the same batch; with one, batches would hold the same rows in every epoch.
WINDOWS_IN_EPOCH = 16


class ShardedMap(Protocol):
    """A function of rows, computed by several processes: `keras_bert.ops.jax_steps.sharded_map`."""

    def __call__(
        self, function: Callable[[np.ndarray], np.ndarray], num_rows: int, **same: int
    ) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True)
class BatchOptions:
    """The options of batching for a call of `fit`, `evaluate` or `predict`.

    Args:
        batch_size: Number of rows in a batch; `None` for the default, 32.
        compiles: Whether each new batch shape is compiled, which takes seconds. Then batches have
            few different lengths, and padding rows complete the last batch of training data.
        batches_for_more_lengths: The number of batches in an epoch from which on they have as many
            lengths as without compilation, since less padding then saves more time than compilation
            takes; `None` for never.
        shuffle_seed: Seed for shuffling the rows and the batches, differently in each epoch; `None`
            does not shuffle. A row of a dataset is at most 1,024 batches earlier than in the input.
        training: Whether the rows are training data.
        negative_fraction: The fraction of the windows without answers, of questions that have
            answers in other windows.
        bucketing_window: Number of batches with rows that are sorted by length together; 1 does not
            regroup rows. Defaults to 64; if rows are shuffled, to at most a sixteenth of an epoch,
            or, if its size is unknown, of the rows so far.
        num_replicas: Number of devices of this process that share each batch. The last batch
            is then completed with padding rows too, so that each device has as many.
        shard: The index of this process and the number of processes that share each batch: each has
            an equal number of consecutive rows, padded to the length of the whole batch.
        sharded_map: Computes a function of rows, each process for its shard, and checks that all
            processes have the same options. With it, a process packs its shard of the rows in
            memory, from which all learn the lengths, and then its shard of each batch; without, it
            packs all rows.
        allow_unlabeled: Whether a label may be -1 (for regression NaN), which means that the row
            has none.

    Raises:
        ValueError: If an option is out of range, or the replicas or processes cannot have equal
            shards of a batch.
    """

    batch_size: int | None = None
    compiles: bool = False
    batches_for_more_lengths: int | None = None
    shuffle_seed: int | None = None
    training: bool = False
    negative_fraction: float = 1.0
    bucketing_window: int | None = None
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
                f"batch_size is {self.rows_in_batch}, in a distribution over {self.num_replicas} "
                "devices, which share each batch; expected a multiple of their number."
            )
        check_shard(self.shard, self.rows_in_batch)

    @property
    def rows_in_batch(self) -> int:
        """The number of rows in a batch."""
        return self.batch_size or DEFAULT_BATCH_SIZE

    @property
    def pads_last_batch(self) -> bool:
        """Whether the last batch is completed with repeated rows of weight 0."""
        is_shared = self.num_replicas > 1 or self.shard[1] > 1
        return (self.compiles and self.training) or is_shared

    def has_few_lengths(self, num_batches: int | None) -> bool:
        """Returns whether an epoch of so many batches, if known, has few different lengths."""
        least = self.batches_for_more_lengths
        return self.compiles and (num_batches is None or least is None or num_batches < least)

    def window(self, num_rows: int | None) -> int | None:
        """Returns the number of batches in a window; `None` if it grows with the rows so far."""
        if self.bucketing_window is not None or self.shuffle_seed is None:
            return self.bucketing_window or WINDOW_BATCHES
        if num_rows is None:
            return None
        return max(1, min(WINDOW_BATCHES, num_rows // (WINDOWS_IN_EPOCH * self.rows_in_batch)))


def check_shard(shard: tuple[int, int], batch_size: int) -> None:
    """Checks that processes can have equal shards `(index, count)` of a batch."""
    index, count = shard
    if not 0 <= index < count or batch_size % count:
        raise ValueError(
            f"shard is {shard}, with a batch_size of {batch_size}; expected an index below the "
            "number of processes, and a batch_size that is a multiple of this number."
        )


def rows_of_shard(shard: tuple[int, int], batch_size: int) -> slice:
    """Returns the rows of a batch that a process `(index, count)` has."""
    index, count = shard
    return slice(index * batch_size // count, (index + 1) * batch_size // count)

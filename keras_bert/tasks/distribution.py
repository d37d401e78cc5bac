# SPDX-License-Identifier: Apache-2.0
"""Batches that several devices, and the processes that have them, share."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import keras
import numpy as np

from keras_bert.data.batch_options import rows_of_shard
from keras_bert.data.batches import Batches, MappedBatches
from keras_bert.ops.dispatch import has_accelerator

# The number of batches in an epoch from which on, on a CPU, more lengths are compiled for
_BATCHES_ON_CPU = 512


def pad_to_power_of_two(
    features: dict[str, np.ndarray], num_replicas: int = 1
) -> dict[str, np.ndarray]:
    """Repeats rows up to a power of two for each replica, so that a compiler sees few shapes."""
    rows_per_replica = -(-len(features["token_ids"]) // num_replicas)
    num_rows = num_replicas << (rows_per_replica - 1).bit_length()
    repeated: dict[str, np.ndarray] = _repeated(features, num_rows)
    return repeated


def _repeated(rows: Any, num_rows: int) -> Any:
    """Repeats the rows of arrays, in any nesting, up to a number."""
    return keras.tree.map_structure(lambda x: np.resize(x, (num_rows, *x.shape[1:])), rows)


def rows_of_process(rows: Any, shard: tuple[int, int]) -> Any:
    """Returns a process's shard `(index, count)` of the rows of arrays, in any nesting."""
    return keras.tree.map_structure(lambda x: x[rows_of_shard(shard, len(x))], rows)


def shared_predictions(batches: Batches, num_devices: int, shard: tuple[int, int]) -> Batches:
    """Returns a process's shard of batches that the devices of several processes predict.

    Rows are repeated so that each device has as many.
    """

    def share(batch: Any, _: int) -> tuple[Any, Any]:
        features, index = batch
        num_rows = -(-len(index) // num_devices) * num_devices
        if num_rows > len(index):
            features, index = _repeated((features, index), num_rows)
        # The outputs are those of all rows.
        return rows_of_process(features, shard), index

    return MappedBatches(batches, share)


class ArrayBatches(Batches):
    """Batches of consecutive rows of arrays `(rows, ...)`, in any nesting, with their indices."""

    def __init__(self, x: Any, batch_size: int) -> None:
        super().__init__()
        self._x = keras.tree.map_structure(keras.ops.convert_to_numpy, x)
        self._batch_size = batch_size
        self.num_rows = len(keras.tree.flatten(self._x)[0])

    @property
    def num_batches(self) -> int:
        """The number of batches."""
        return -(-self.num_rows // self._batch_size)

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        for start in range(first * self._batch_size, self.num_rows, self._batch_size):
            rows = np.arange(start, min(start + self._batch_size, self.num_rows))
            yield keras.tree.map_structure(lambda x, rows=rows: x[rows], self._x), rows


def batches_for_more_lengths() -> int | None:
    """Returns the number of batches from which on compiling for more lengths saves time.

    On a CPU, compiling for a length takes as long as ten steps, and there are two to three times as
    many lengths, which leave out a fifth of the tokens or more. An accelerator executes hundreds of
    steps meanwhile.
    """
    return None if has_accelerator() else _BATCHES_ON_CPU


def num_devices() -> int:
    """Returns the number of devices of all processes that share each batch on JAX."""
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else int(distribution.num_model_replicas)


def shard_over_devices(features: dict[str, np.ndarray]) -> dict[str, Any]:
    """Shards rows that every process has in full over the devices of a `keras.distribution`."""
    if keras.distribution.distribution() is None:
        return features
    from keras_bert.ops import jax_steps

    rows = rows_of_process(features, process_shard())
    shared: dict[str, Any] = jax_steps.shard_over_devices(rows)
    return shared


def sharing() -> dict[str, Any]:
    """Returns the options of batching for batches that several processes share."""
    shard = process_shard()
    if shard[1] == 1:
        return {}
    from keras_bert.ops.jax_steps import sharded_map

    return {"shard": shard, "sharded_map": sharded_map}


def process_shard() -> tuple[int, int]:
    """Returns the index of this process, and the number of those that share each batch.

    There are several in a `keras.distribution`. Its own sharding of data is for `tf.data` only.
    """
    distribution = keras.distribution.distribution()
    if distribution is None or distribution.num_processes == 1:
        return 0, 1
    count = min(distribution.num_model_replicas, distribution.num_processes)
    return distribution.data_shard_id, count

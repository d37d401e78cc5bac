# SPDX-License-Identifier: Apache-2.0
"""Shares batches among multiple devices and processes."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import keras
import numpy as np

from keras_bert.data.batch_options import rows_of_shard
from keras_bert.data.batches import Batches, MappedBatches
from keras_bert.ops.dispatch import has_accelerator

# On a CPU, compiling for more lengths pays off from this number of batches per epoch.
_BATCHES_ON_CPU = 512


def pad_to_power_of_two(
    features: dict[str, np.ndarray], num_replicas: int = 1
) -> dict[str, np.ndarray]:
    """Repeats examples up to a power of two per replica, so that few shapes are compiled."""
    rows_per_replica = -(-len(features["token_ids"]) // num_replicas)
    num_rows = num_replicas << (rows_per_replica - 1).bit_length()
    repeated: dict[str, np.ndarray] = _repeated(features, num_rows)
    return repeated


def _repeated(rows: Any, num_rows: int) -> Any:
    """Repeats the rows of arrays, in any nesting, to get `num_rows` rows."""
    return keras.tree.map_structure(lambda x: np.resize(x, (num_rows, *x.shape[1:])), rows)


def rows_of_process(rows: Any, shard: tuple[int, int]) -> Any:
    """Returns a process's shard `(index, count)` of the rows in arrays, in any nesting."""
    return keras.tree.map_structure(lambda x: x[rows_of_shard(shard, len(x))], rows)


def shared_predictions(batches: Batches, num_devices: int, shard: tuple[int, int]) -> Batches:
    """Returns one process's shard of the batches in a multi-process `predict`.

    Examples are repeated so that each device has the same number.
    """

    def share(batch: Any, _: int) -> tuple[Any, Any]:
        features, index = batch
        num_rows = -(-len(index) // num_devices) * num_devices
        if num_rows > len(index):
            features, index = _repeated((features, index), num_rows)
        # The outputs contain all examples.
        return rows_of_process(features, shard), index

    return MappedBatches(batches, share)


class ArrayBatches(Batches):
    """Batches of consecutive rows in arrays `(rows, ...)`, in any nesting, with their indices."""

    def __init__(self, x: Any, batch_size: int) -> None:
        super().__init__()
        self._x = keras.tree.map_structure(keras.ops.convert_to_numpy, x)
        self._batch_size = batch_size
        self.num_rows = len(keras.tree.flatten(self._x)[0])

    @property
    def num_batches(self) -> int:
        """Number of batches."""
        return -(-self.num_rows // self._batch_size)

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        for start in range(first * self._batch_size, self.num_rows, self._batch_size):
            rows = np.arange(start, min(start + self._batch_size, self.num_rows))
            yield keras.tree.map_structure(lambda x, rows=rows: x[rows], self._x), rows


def batches_for_more_lengths() -> int | None:
    """Returns the minimum number of batches for which compiling more lengths saves time.

    The result is `None` if it never saves time. On a CPU, compiling for a length takes as long as
    ten steps. Two to three times the number of lengths saves a fifth of the tokens or more. An
    accelerator executes hundreds of steps in the time it takes to compile.
    """
    return None if has_accelerator() else _BATCHES_ON_CPU


def num_devices() -> int:
    """Returns the number of devices, in all processes, that share each batch on JAX."""
    distribution = keras.distribution.distribution()
    return 1 if distribution is None else int(distribution.num_model_replicas)


def shard_over_devices(features: dict[str, np.ndarray]) -> dict[str, Any]:
    """Shards examples over the devices of a `keras.distribution`. Each process has all examples."""
    if keras.distribution.distribution() is None:
        return features
    from keras_bert.ops import jax_steps

    rows = rows_of_process(features, process_shard())
    shared: dict[str, Any] = jax_steps.shard_over_devices(rows)
    return shared


def sharing() -> dict[str, Any]:
    """Returns the batching options for batches that multiple processes share."""
    shard = process_shard()
    if shard[1] == 1:
        return {}
    from keras_bert.ops.jax_steps import sharded_map

    return {"shard": shard, "sharded_map": sharded_map}


def process_shard() -> tuple[int, int]:
    """Returns the index of this process, and the number of processes that share each batch.

    A `keras.distribution` may have multiple processes. Keras only shards `tf.data` itself.
    """
    distribution = keras.distribution.distribution()
    if distribution is None or distribution.num_processes == 1:
        return 0, 1
    count = min(distribution.num_model_replicas, distribution.num_processes)
    return distribution.data_shard_id, count

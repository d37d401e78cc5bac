# SPDX-License-Identifier: Apache-2.0
"""Checks of features, and of batches of them, before Keras reads them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any

import keras
import numpy as np

from keras_bert.data.input_forms import dataset_has_labels, is_dataset, split_index
from keras_bert.data.loader import Batches, MappedBatches, rows_of_share


def lacks_labels(x: Any, y: Any) -> bool:
    """Returns whether data for Keras has no labels; on JAX, it would be trained on all the same."""
    if is_dataset(x):
        return not dataset_has_labels(x)
    # Of other objects, such as generators, the labels are seen only when they are read
    return y is None and are_arrays(x)


def are_arrays(x: Any) -> bool:
    """Returns whether features are in memory, and not a dataset or a generator of batches."""
    return isinstance(x, (Mapping, np.ndarray, list, tuple)) or keras.ops.is_tensor(x)


def num_batches_of_features(x: Any, batch_size: int, validation_split: float) -> int:
    """Returns the number of batches that Keras' `fit` makes of features."""
    if is_dataset(x):
        from keras_bert.data.tfdata.text_datasets import num_elements

        return num_elements(x)
    if not are_arrays(x):
        try:
            # A `PyDataset` may have no length; an infinite one has neither.
            count = x.num_batches if hasattr(x, "num_batches") else len(x)
        except TypeError:
            count = None
        if count is None:
            raise ValueError(
                f"x is a {type(x).__name__}, whose batches cannot be counted; expected rows in "
                "memory, or a dataset."
            )
        return int(count)
    num_rows = len(keras.tree.flatten(x)[0])
    if validation_split:
        num_rows = split_index(num_rows, validation_split)
    return -(-num_rows // batch_size)


def second_axis(x: Any) -> int | None:
    """Returns the size of axis 1 of features (length, or number of choices); `None` if unknown."""
    shape: Any = getattr(x.get("token_ids") if isinstance(x, dict) else x, "shape", ())
    return int(shape[1]) if len(shape) > 1 else None


def filled_up(features: dict[str, np.ndarray], num_replicas: int = 1) -> dict[str, np.ndarray]:
    """Repeats rows of features up to a power of two, so that a compiler sees few shapes.

    Args:
        features: The features.
        num_replicas: Number of devices that share the rows; each has that many.
    """
    of_replica = -(-len(features["token_ids"]) // num_replicas)
    num_rows = num_replicas << (of_replica - 1).bit_length()
    repeated: dict[str, np.ndarray] = _repeated(features, num_rows)
    return repeated


def _repeated(rows: Any, num_rows: int) -> Any:
    """Repeats the rows of arrays, in any nesting, up to a number."""
    return keras.tree.map_structure(lambda x: np.resize(x, (num_rows, *x.shape[1:])), rows)


def rows_of_process(rows: Any, shard: tuple[int, int]) -> Any:
    """Returns a process's shard of the rows of arrays, in any nesting.

    Args:
        rows: Arrays `(rows, ...)`.
        shard: The index of the process, and the number of processes, a divisor of the rows.
    """
    return keras.tree.map_structure(lambda x: x[rows_of_share(shard, len(x))], rows)


def shared_predictions(batches: Batches, num_devices: int, shard: tuple[int, int]) -> Batches:
    """Returns a process's shards of batches that the devices of several processes predict.

    Rows are repeated so that each device has as many.

    Args:
        batches: Batches of `(features, index)`, the same in each process.
        num_devices: The number of devices of all processes.
        shard: The index of this process, and the number of processes that share each batch.
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
    """Batches of consecutive rows of arrays, with their indices.

    Args:
        x: Arrays `(rows, ...)`, in any nesting.
        batch_size: Number of rows in a batch.
    """

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


def without_first(batches: Any, count: int, epochs: int, read: int = 0) -> Any:
    """Checks that a single epoch can begin with a given batch, and skips batches of a dataset.

    The last of these, if any must be `read`, are not skipped.
    """
    num_batches = batches.num_batches if isinstance(batches, Batches) else None
    if is_dataset(batches) and int(batches.cardinality()) >= 0:
        num_batches = int(batches.cardinality())
    takes_first = isinstance(batches, Batches) or is_dataset(batches)
    if not takes_first or epochs != 1 or (num_batches is not None and num_batches < count):
        raise ValueError(
            f"initial_batch is {count}, with {epochs} epochs of {type(batches).__name__}; expected "
            "from 0 to the number of batches, with a single epoch of text or of a tf.data.Dataset."
        )
    return batches.skip(count - read) if is_dataset(batches) else batches

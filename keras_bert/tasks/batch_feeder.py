# SPDX-License-Identifier: Apache-2.0
"""Passes batches to Keras, as a `PyDataset`, or on TensorFlow as a `tf.data.Dataset`."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import keras

from keras_bert.data.adapters.reading import has_ended, no_rows
from keras_bert.data.batches import Batches
from keras_bert.models.threads import computing_for
from keras_bert.ops.keras_private import DataAdapter, get_torch_dataloader
from keras_bert.tasks.batch_plan import ALL_BATCHES, BatchPlan


class BatchFeeder(keras.callbacks.Callback):
    """Passes data to Keras' `fit`, `evaluate` or `predict`.

    As a callback of `fit`, it keeps track of the epoch, because Keras may start to read an epoch
    more than once. The epoch determines the order of shuffled examples. It also adds each epoch's
    waiting time for batches to the model's `seconds_waited`.

    Args:
        data: `Batches`. Anything else is passed on unchanged.
        epoch: Index of the first epoch.
        epochs: Number of epochs. Must be 1 if the plan has an `initial_batch`.
        plan: Which batches to read in each epoch. With `steps_per_epoch`, no more batches are read
            from a source of unknown size, because it may lose batches read ahead.
        with_targets: Whether to pass on labels and weights.
        evaluated: The model to evaluate on the data. `None` for training and prediction.
    """

    # Otherwise, on JAX, Keras waits for the result of each batch before it calls callbacks.
    async_safe = True

    def __init__(
        self,
        data: Any,
        *,
        epoch: int = 0,
        epochs: int = 1,
        plan: BatchPlan = ALL_BATCHES,
        with_targets: bool = True,
        evaluated: Any = None,
    ) -> None:
        super().__init__()
        if plan.initial_batch:
            _check_initial_batch(data, plan.initial_batch, epochs)
        self._data = data
        self._epoch = epoch
        self._plan = plan
        self._max_read = plan.max_read(epochs)
        self._num_read = 0
        self._with_targets = with_targets
        self._evaluated = evaluated
        self._error: Exception | None = None
        self._thread = threading.get_ident()
        self.targets: list[Any] = []
        """If `with_targets` is False, the labels and weights of each batch in the latest epoch."""

    @property
    def num_batches(self) -> int | None:
        """Number of batches per epoch, or `None` if unknown."""
        count = self._data.num_batches
        return None if count is None else count - self._plan.first_read

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch
        self._waited_before = self._seconds_waited()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._end_epoch()
        waited = self._seconds_waited() - self._waited_before
        # For features, the model can be any Keras model.
        self.model.seconds_waited = getattr(self.model, "seconds_waited", 0.0) + waited

    def _end_epoch(self) -> None:
        if isinstance(self._data, Batches):
            self._data.end_epoch()

    def _seconds_waited(self) -> float:
        return self._data.seconds_waited if isinstance(self._data, Batches) else 0.0

    def read(self) -> Iterator[Any]:
        """Yields an epoch's batches.

        Raises:
            ValueError: If the data has no more batches.
        """
        self.targets = []
        plan = self._plan
        batches: Iterator[Any] = self._data.epoch(self._epoch, plan.first_read)
        if self._data.num_batches is None and self._max_read is not None:
            batches = itertools.islice(batches, self._max_read - self._num_read)
        num_in_epoch = 0
        try:
            while (batch := self._next(batches)) is not None:
                num_in_epoch += 1
                self._num_read += 1
                if self._with_targets:
                    yield batch
                else:
                    self.targets.append(batch[1])
                    yield batch[:1]
            if num_in_epoch <= plan.num_read_again:
                start_batch = plan.initial_batch
                raise _no_batch_left(start_batch, "fewer batches") if start_batch else has_ended()
        except Exception as error:
            # TensorFlow would replace it with its own error.
            self._error = error
            raise

    def _next(self, batches: Iterator[Any]) -> Any:
        with computing_for(self._thread, self._evaluated):
            return next(batches, None)

    def to_keras_data(self) -> Any:
        """Returns the data in the form that Keras' methods accept on this backend.

        Raises:
            ValueError: If the data has no batches.
        """
        batches = self._data
        if not isinstance(batches, Batches):
            return batches.skip(self._plan.first_read) if self._plan.initial_batch else batches
        example = self.example
        sequence = _BatchSequence(self)
        if keras.backend.backend() != "tensorflow":
            return _BatchAdapter(self) if self.num_batches is None else sequence
        from keras_bert.data.tfdata.text_datasets import as_dataset

        return as_dataset(sequence, example if self._with_targets else example[:1], batches)

    @functools.cached_property
    def example(self) -> Any:
        """A small batch, read without losing any examples, or `None` if the data is not `Batches`.

        Raises:
            ValueError: If the data has no batches.
        """
        if not isinstance(self._data, Batches):
            return None
        example = None if self._data.num_batches == 0 else self._data.example()
        if example is None:
            raise no_rows()
        return example

    @contextlib.contextmanager
    def raising_errors(self) -> Iterator[None]:
        """Raises an error from the batches unchanged if it made Keras' call fail."""
        try:
            with self._accepting_end_of_data():
                yield
            self._end_epoch()
        except Exception:
            if self._error is not None:
                raise self._error from None
            raise

    @contextlib.contextmanager
    def _accepting_end_of_data(self) -> Iterator[None]:
        """Hides Keras' warning at the end of an epoch whose number of batches is unknown."""
        is_unknown = isinstance(self._data, Batches) and self._data.num_batches is None
        if not is_unknown or self._max_read is not None:
            yield
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Your input ran out of data")
            yield


def _check_initial_batch(batches: Any, first: int, epochs: int) -> None:
    """Checks that a single epoch can start at a given batch."""
    count: int | None = 0  # Batches of arrays cannot be skipped.
    if isinstance(batches, Batches):
        count = batches.num_batches
    elif hasattr(batches, "cardinality"):  # A dataset. A negative number means unknown.
        count = None if int(batches.cardinality()) < 0 else int(batches.cardinality())
    if epochs != 1 or (count is not None and count <= first):
        data = f"{count} batches" if count else type(batches).__name__
        raise _no_batch_left(first, f"{epochs} epochs of {data}")


def _no_batch_left(first: int, data: str) -> ValueError:
    return ValueError(
        "initial_batch must be less than the number of batches, in a single epoch of text or a "
        f"tf.data.Dataset. Received: {first}, with {data}. After an epoch's last batch, resume "
        "with the next initial_epoch."
    )


class _BatchSequence(keras.utils.PyDataset):
    """Batches that Keras reads in order, starting at the first batch in each epoch."""

    def __init__(self, feed: BatchFeeder) -> None:
        super().__init__()
        self._feed = feed
        self._reader: Iterator[Any] | None = None

    @property
    def num_batches(self) -> int | None:
        """Number of batches per epoch."""
        return self._feed.num_batches

    def __getitem__(self, index: int) -> Any:
        if index == 0 or self._reader is None:
            self._reader = self._feed.read()
        return next(self._reader)

    def __iter__(self) -> Iterator[Any]:
        return self._feed.read()


class _BatchAdapter(DataAdapter):
    """An unknown number of batches, one epoch per iteration, for Keras on JAX and PyTorch.

    Keras has no public class for this. A `PyDataset` of unknown length is infinite, a generator is
    only read once, and the other types belong to TensorFlow, PyTorch and Grain. So this class
    implements Keras' internal adapter interface.
    """

    num_batches = None
    batch_size = None

    def __init__(self, feed: BatchFeeder) -> None:
        self._feed = feed

    def get_numpy_iterator(self) -> Any:
        return self._feed.read()

    def get_jax_iterator(self) -> Any:
        return self._feed.read()

    def get_torch_dataloader(self) -> Any:
        return get_torch_dataloader(self._feed.read())

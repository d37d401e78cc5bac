# SPDX-License-Identifier: Apache-2.0
"""How Keras reads batches: as a `PyDataset`, or on TensorFlow as a `tf.data.Dataset`.

With gradient accumulation, the micro-batches of an update are read together, and each gets the
divisors of its losses.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np

from keras_bert.data.adapters.reading import has_ended, no_rows
from keras_bert.data.batches import Batches
from keras_bert.models.inputs import LOSS_DIVISORS
from keras_bert.models.threads import computing_for
from keras_bert.ops import dispatch
from keras_bert.ops.keras_private import DataAdapter, get_data_adapter, get_torch_dataloader


class Feed(keras.callbacks.Callback):
    """Hands data to a call of Keras' `fit`, `evaluate` or `predict`.

    As a callback of `fit`, it is told the number of each epoch, which determines the order of
    shuffled rows: Keras may begin to read an epoch more than once. It adds the time that each epoch
    has waited for batches to the model's `seconds_waited`.

    Args:
        data: `Batches`; anything else is handed over unchanged.
        epoch: The number of the first epoch.
        epochs: The number of epochs, which is 1 if batches are skipped.
        first: The number of batches of an epoch to skip.
        read: Number of these, the last ones, that are read all the same.
        steps_per_epoch: The number of batches in each epoch, if it is given. No more are read of a
            source of unknown size, which may lose batches that are read ahead.
        with_targets: Whether to hand over labels and weights.
        evaluated: The model that is evaluated on the data, if it is not trained on them.
    """

    # If a callback of batches is not, Keras waits for the result of each batch on JAX.
    async_safe = True

    def __init__(
        self,
        data: Any,
        *,
        epoch: int = 0,
        epochs: int = 1,
        first: int = 0,
        read: int = 0,
        steps_per_epoch: int | None = None,
        with_targets: bool = True,
        evaluated: Any = None,
    ) -> None:
        super().__init__()
        if first:
            _check_first(data, first, epochs)
        self._data = data
        self._epoch = epoch
        self._first = first
        self._read = read
        self._num_unread = None if steps_per_epoch is None else read + epochs * steps_per_epoch
        self._with_targets = with_targets
        self._evaluated = evaluated
        self._error: Exception | None = None
        self._thread = threading.get_ident()
        self.targets: list[Any] = []
        """Without targets, the labels and weights of each batch of the last reading."""

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch; `None` if it is unknown."""
        count = self._data.num_batches
        return None if count is None else count - self._first + self._read

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch
        self._waited_before = self._seconds_waited()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._end_epoch()
        waited = self._seconds_waited() - self._waited_before
        # (A model of features is any Keras model.)
        self.model.seconds_waited = getattr(self.model, "seconds_waited", 0.0) + waited

    def _end_epoch(self) -> None:
        if isinstance(self._data, Batches):
            self._data.end_epoch()

    def _seconds_waited(self) -> float:
        return self._data.seconds_waited if isinstance(self._data, Batches) else 0.0

    def read(self) -> Iterator[Any]:
        """Yields the batches of an epoch.

        Raises:
            ValueError: If there are no batches any more.
        """
        self.targets = []
        batches: Iterator[Any] = self._data.epoch(self._epoch, self._first - self._read)
        if self._data.num_batches is None:
            batches = itertools.islice(batches, self._num_unread)
        num_read = 0
        try:
            while (batch := self._next(batches)) is not None:
                num_read += 1
                self._num_unread = self._num_unread and self._num_unread - 1
                if self._with_targets:
                    yield batch
                else:
                    self.targets.append(batch[1])
                    yield batch[:1]
            if num_read <= self._read:
                raise _no_batch_left(self._first, "fewer batches") if self._first else has_ended()
        except Exception as error:
            # TensorFlow would replace it by one of its own.
            self._error = error
            raise

    def _next(self, batches: Iterator[Any]) -> Any:
        with computing_for(self._thread, self._evaluated):
            return next(batches, None)

    def for_keras(self) -> Any:
        """Returns the data in the form that Keras' methods take on the backend.

        Raises:
            ValueError: If there are no batches.
        """
        batches = self._data
        if not isinstance(batches, Batches):
            return batches.skip(self._first - self._read) if self._first else batches
        example = self.example
        sequence = _BatchSequence(self)
        if keras.backend.backend() != "tensorflow":
            return _BatchAdapter(self) if self.num_batches is None else sequence
        from keras_bert.data.tfdata.text_datasets import as_dataset

        return as_dataset(sequence, example if self._with_targets else example[:1], batches)

    @functools.cached_property
    def example(self) -> Any:
        """A batch of few rows, of which no reading loses any; `None` without `Batches`.

        Raises:
            ValueError: If there are no batches.
        """
        if not isinstance(self._data, Batches):
            return None
        example = None if self._data.num_batches == 0 else self._data.example()
        if example is None:
            raise no_rows()
        return example

    @contextlib.contextmanager
    def raising_errors(self) -> Iterator[None]:
        """Raises an error of the batches as it is, if it made the call of Keras fail."""
        try:
            yield
            self._end_epoch()
        except Exception:
            if self._error is not None:
                raise self._error from None
            raise


def _check_first(batches: Any, first: int, epochs: int) -> None:
    """Checks that a single epoch can begin with a given batch."""
    count: int | None = 0  # such as arrays, whose batches are not skipped
    if isinstance(batches, Batches):
        count = batches.num_batches
    elif hasattr(batches, "cardinality"):  # of a dataset; negative if it is unknown
        count = None if int(batches.cardinality()) < 0 else int(batches.cardinality())
    if epochs != 1 or (count is not None and count <= first):
        data = f"{count} batches" if count else type(batches).__name__
        raise _no_batch_left(first, f"{epochs} epochs of {data}")


def _no_batch_left(first: int, data: str) -> ValueError:
    return ValueError(
        "initial_batch must be less than the number of batches of text or of a tf.data.Dataset, in "
        f"a fit of a single epoch. Received: {first}, with {data}. After the last batch of an "
        "epoch, resume with the next initial_epoch."
    )


class _BatchSequence(keras.utils.PyDataset):
    """Batches that Keras reads one after another, from the first in each epoch."""

    def __init__(self, feed: Feed) -> None:
        super().__init__()
        self._feed = feed
        self._reader: Iterator[Any] | None = None

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch."""
        return self._feed.num_batches

    def __getitem__(self, index: int) -> Any:
        if index == 0 or self._reader is None:
            self._reader = self._feed.read()
        return next(self._reader)

    def __iter__(self) -> Iterator[Any]:
        return self._feed.read()


class _BatchAdapter(DataAdapter):
    """Batches of unknown number, an epoch in each reading, for Keras on JAX and PyTorch.

    Keras has no public form for them: an unknown number of a `PyDataset` is infinite, a generator
    is read once, and the other forms belong to TensorFlow, PyTorch and Grain. Therefore this is one
    of the adapters that Keras itself makes of them.
    """

    num_batches = None
    batch_size = None

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def get_numpy_iterator(self) -> Any:
        return self._feed.read()

    def get_jax_iterator(self) -> Any:
        return self._feed.read()

    def get_torch_dataloader(self) -> Any:
        return get_torch_dataloader(self._feed.read())


class MicroBatches(DataAdapter):
    """Training data with the divisors of its losses in each batch, for gradient accumulation.

    An optimizer takes the mean of the gradients of micro-batches. Losses are means over rows or
    tokens, and micro-batches differ in their numbers, so this would be a mean of means.
    If each micro-batch divides its sum by the mean of the divisors of all micro-batches of the
    update, it is the mean over all rows or tokens. This is a further feature, `LOSS_DIVISORS`.

    Args:
        model: The compiled task.
        in_update: The number of micro-batches in an update. There are fewer in the last update of
            an epoch, if its number of batches is not a multiple.
        steps_per_epoch: See `keras.Model.fit`.
        skipped: The number of batches that are read, but not trained on, at the beginning.
        first: The place in its epoch of the first batch that is read.
        **data: The arguments of `keras.Model.fit` on data.
    """

    def __init__(
        self,
        model: Any,
        in_update: int,
        steps_per_epoch: int | None,
        skipped: int = 0,
        first: int = 0,
        **data: Any,
    ) -> None:
        self._data = get_data_adapter(steps_per_epoch=steps_per_epoch, **data)
        self._model = model
        self._in_update = in_update
        self._steps = steps_per_epoch
        self._skipped = skipped
        self._first = first

    @property
    def num_batches(self) -> int | None:
        count = self._data.num_batches
        return None if count is None else count - self._skipped

    @property
    def batch_size(self) -> int | None:
        return self._data.batch_size  # type: ignore[no-any-return]

    def on_epoch_begin(self) -> None:
        self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._data.on_epoch_end()

    @functools.cached_property
    def example(self) -> Any:
        """The first batch, which Keras' adapters yield again."""
        return next(iter(self._data.get_numpy_iterator()), None)

    def get_numpy_iterator(self) -> Any:
        return self._with_mean_divisors(self._data.get_numpy_iterator())

    def get_jax_iterator(self) -> Any:
        return self._with_mean_divisors(self._data.get_jax_iterator())

    def get_torch_dataloader(self) -> Any:
        return self._with_mean_divisors(self._data.get_torch_dataloader())

    def get_tf_dataset(self) -> Any:
        from keras_bert.data.tfdata.text_datasets import map_with_group_mean

        return map_with_group_mean(
            self._data.get_tf_dataset(),
            measure=self._divisors,
            function=_with_divisors,
            size=self._in_update,
            period=self._steps,
            first=self._first,
        ).skip(self._skipped)

    def _with_mean_divisors(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Adds to each batch the mean divisors of its update, and leaves out the skipped batches.

        With three micro-batches in an update, of which one is skipped, and batches of 8, 8, 5, 6
        rows, it yields three batches: 8 and 5 with the divisor 7, and 6 with the divisor 6.
        """
        unread = iter(batches)
        sizes = group_sizes(self._in_update, self._steps, self._first)
        groups = itertools.takewhile(bool, (list(itertools.islice(unread, n)) for n in sizes))
        completed = itertools.chain.from_iterable(map(self._completed, groups))
        return itertools.islice(completed, self._skipped, None)

    def _completed(self, group: list[Any]) -> list[Any]:
        """Adds the mean divisors to the micro-batches of an update."""
        with dispatch.on_cpu():
            divisors = [keras.ops.convert_to_numpy(self._divisors(batch)) for batch in group]
        mean = np.mean(divisors, axis=0)
        return [_with_divisors(batch, mean) for batch in group]

    def _divisors(self, batch: Any) -> Any:
        return self._model._loss_divisors(*keras.utils.unpack_x_y_sample_weight(batch))


def group_sizes(in_update: int, steps_per_epoch: int | None, first: int = 0) -> Iterator[int]:
    """Yields the number of micro-batches of each update, of which an epoch's last may have fewer.

    Example:

    >>> list(itertools.islice(group_sizes(2, 5), 6))
    [2, 2, 1, 2, 2, 1]

    If training resumes at batch 4 of five, that batch has an update of its own:

    >>> list(itertools.islice(group_sizes(2, 5, first=4), 4))
    [1, 2, 2, 1]
    """
    period = steps_per_epoch or in_update
    while True:
        for start in range(first % period, period, in_update):
            yield min(in_update, period - start)
        first = 0


def _with_divisors(batch: Any, divisors: Any) -> Any:
    """Adds `LOSS_DIVISORS` to a batch, equal parts of the divisors in each of the rows."""
    x, *targets = batch if isinstance(batch, (tuple, list)) else (batch,)
    features = x if isinstance(x, Mapping) else {"token_ids": x}
    if isinstance(divisors, np.ndarray):
        num_rows = len(features["token_ids"])
        parts = np.tile((divisors / num_rows).astype("float32"), (num_rows, 1))
    else:
        (num_rows,) = keras.ops.shape(features["token_ids"])[:1]
        parts = keras.ops.tile(divisors[None] / keras.ops.cast(num_rows, "float32"), (num_rows, 1))
    return {**features, LOSS_DIVISORS: parts}, *targets

# SPDX-License-Identifier: Apache-2.0
"""Base classes for batches from any source."""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

from keras_bert.data.prefetching import prefetch


class Batches(abc.ABC):
    """Base class for batches that can be read multiple times."""

    targets_have_length = False
    """Whether labels and weights have one value for each token."""

    rows_in_batch: int | None = None
    """The number of examples in every batch, or `None` if it varies."""

    prefetches = True
    """Whether a thread makes batches in advance, perhaps more than are used."""

    has_one_shape = False
    """Whether the arrays of all batches have the same shapes."""

    def __init__(self) -> None:
        self.seconds_waited = 0.0
        """The time that consumers have waited for batches, in seconds."""

    @property
    @abc.abstractmethod
    def num_batches(self) -> int | None:
        """The number of batches in an epoch, or `None` if it is unknown."""

    def end_epoch(self) -> None:  # noqa: B027
        """Notifies the source that an epoch has ended."""

    def __len__(self) -> int:
        if self.num_batches is None:
            raise TypeError("The number of batches is unknown.")
        return self.num_batches

    def __iter__(self) -> Iterator[Any]:
        return self.epoch()

    def epoch(self, number: int = 0, start_batch: int = 0) -> Generator[Any, None, None]:
        """Yields the batches in an epoch. A thread makes them in advance.

        Args:
            number: The epoch number. It determines the shuffled order.
            start_batch: The number of batches to skip.
        """
        batches = self._epoch(number, start_batch)
        # For a single batch, a thread would cost more time than it saves.
        is_single = self.num_batches is not None and self.num_batches - start_batch <= 1
        prefetches = self.prefetches and not is_single
        with contextlib.closing(prefetch(batches) if prefetches else batches) as batches:
            while True:
                start = time.perf_counter()
                batch = next(batches, None)
                self.seconds_waited += time.perf_counter() - start
                if batch is None:
                    return
                yield batch

    def example(self) -> Any:
        """Returns a batch with few examples to show its structure, or `None` without examples."""
        with contextlib.closing(self._epoch(0, 0)) as batches:
            return next(batches, None)

    def first_targets(self) -> tuple[Any, Any]:
        """Returns the labels and weights (or `None`) of the examples in memory.

        Other sources only return the labels and weights of the first examples.
        """
        _, labels, weights = (*(self.example() or (None,)), None, None)[:3]
        return labels, weights

    @abc.abstractmethod
    def _epoch(self, number: int, start_batch: int) -> Generator[Any, None, None]:
        """Yields the batches in an epoch."""


class WrappedBatches(Batches):
    """Base class for batches derived from other batches, one by one."""

    def __init__(self, batches: Batches) -> None:
        super().__init__()
        self._batches = batches
        self.rows_in_batch = batches.rows_in_batch
        self.prefetches = batches.prefetches
        self.has_one_shape = batches.has_one_shape

    @property
    def num_batches(self) -> int | None:
        """The number of batches in an epoch, or `None` if it is unknown."""
        return self._batches.num_batches

    def example(self) -> Any:
        """Returns a batch with few examples to show its structure, or `None` without examples."""
        return self._batches.example()

    def end_epoch(self) -> None:
        """Notifies the source that an epoch has ended."""
        self._batches.end_epoch()


class MappedBatches(WrappedBatches):
    """Applies a function to batches.

    The function accepts a batch and a unique number. Its upper 32 bits contain the epoch, and its
    lower 32 bits contain the index of the batch in the epoch.
    """

    def __init__(
        self,
        batches: Batches,
        function: Callable[[Any, int], Any],
        *,
        targets_have_length: bool = False,
    ) -> None:
        super().__init__(batches)
        self._function = function
        self.targets_have_length = targets_have_length

    def example(self) -> Any:
        """Returns a batch with few examples to show its structure, or `None` without examples."""
        batch = super().example()
        return None if batch is None else self._function(batch, 0)

    def _epoch(self, number: int, first: int) -> Generator[Any, None, None]:
        for index, batch in enumerate(self._batches._epoch(number, first), first):
            yield self._function(batch, (number << 32) + index)


def batch_of(features: Any, labels: Any = None, weights: Any = None) -> tuple[Any, ...]:
    """Creates a batch for Keras, a tuple without trailing `None` values.

    Example:

    >>> batch_of("features", "labels"), batch_of("features", weights="weights")
    (('features', 'labels'), ('features', None, 'weights'))
    """
    if weights is not None:
        return features, labels, weights
    return (features,) if labels is None else (features, labels)

# SPDX-License-Identifier: Apache-2.0
"""Micro-batches for gradient accumulation, with the divisors of their losses."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_bert.ops import dispatch
from keras_bert.ops.keras_private import DataAdapter, get_data_adapter
from keras_bert.tasks.batch_plan import BatchPlan
from keras_bert.tasks.loss_divisors import add_mean_divisors


class MicroBatches(DataAdapter):
    """Training data with loss divisors in each batch, for gradient accumulation.

    Each micro-batch has an additional feature, `LOSS_DIVISORS`, with the mean divisors over all
    micro-batches in its optimizer step, see `keras_bert.tasks.loss_divisors`.

    Args:
        model: The compiled task.
        plan: Which batches form an optimizer step together, and where training starts.
        **data: The data arguments of `keras.Model.fit`, starting at the plan's `first_read`.
    """

    def __init__(self, model: Any, plan: BatchPlan, **data: Any) -> None:
        self._data = get_data_adapter(steps_per_epoch=plan.steps_per_epoch, **data)
        self._model = model
        self._plan = plan

    @property
    def num_batches(self) -> int | None:
        count = self._data.num_batches
        return None if count is None else count - self._plan.num_read_again

    @property
    def batch_size(self) -> int | None:
        return self._data.batch_size  # type: ignore[no-any-return]

    def on_epoch_begin(self) -> None:
        self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._data.on_epoch_end()

    @functools.cached_property
    def example(self) -> Any:
        """The first batch. Keras' adapters yield it again."""
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
            function=add_mean_divisors,
            size=self._plan.batches_per_update,
            period=self._plan.steps_per_epoch,
            first=self._plan.first_read,
        ).skip(self._plan.num_read_again)

    def _with_mean_divisors(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yields the batches to train on, each with the mean divisors of its optimizer step.

        For example, batches of 8, 8, 5 and 6 examples are read, but training skips the first batch.
        With three micro-batches per step, this yields batches of 8 and 5 examples with the divisor
        7, and a batch of 6 examples with the divisor 6.
        """
        unread = iter(batches)
        num_read_again = self._plan.num_read_again
        for size in self._plan.update_sizes():
            update = list(itertools.islice(unread, size))
            if not update:
                return
            with dispatch.on_cpu():
                divisors = [keras.ops.convert_to_numpy(self._divisors(batch)) for batch in update]
            mean = np.mean(divisors, axis=0)
            for batch in update[num_read_again:]:
                yield add_mean_divisors(batch, mean)
            num_read_again = 0  # These batches are in the first step.

    def _divisors(self, batch: Any) -> Any:
        return self._model._loss_divisors(*keras.utils.unpack_x_y_sample_weight(batch))

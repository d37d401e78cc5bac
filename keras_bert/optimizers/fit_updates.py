# SPDX-License-Identifier: Apache-2.0
"""Makes the optimizer steps that Keras omits in `fit`, and warns about steps without effect."""

from __future__ import annotations

import bisect
import warnings
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bert.ops import optimizer_updates
from keras_bert.optimizers.base import DecoupledDecayOptimizer


class FitUpdates(keras.callbacks.Callback):
    """Completes the last optimizer step in each epoch and checks the learning rate schedule.

    - With gradient accumulation, the remaining micro-batches at the end of each epoch also make a
      step, with the mean of their gradients. Keras would carry these gradients into the next epoch
      and discard them after the last epoch, so a short epoch might not change any weight.
    - If the number of batches is unknown, Keras' TensorFlow trainer starts one more step in each
      epoch. It finds no data, but the optimizer counts it. This callback corrects the count.
    - It warns if the learning rate schedule ends before the training does.

    Put this callback before callbacks that evaluate or save the model at the end of each epoch.

    Raises:
        ValueError: If the schedule has ended before training starts, so no weight would change.
    """

    # Otherwise, on JAX, Keras waits for the result of each batch before it calls callbacks.
    async_safe = True

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._is_first_epoch = True
        self._has_warned = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        optimizer = self._optimizer()
        self._count_before = _count(optimizer)
        self._num_batches: int | None = 0
        # Another callback may change the initial epoch after `on_train_begin`, when it resumes a
        # run. So the first epoch is only known here.
        num_batches = self.params.get("steps")
        if self._is_first_epoch:
            epochs = self.params.get("epochs", epoch + 1) - epoch
            self._check_rates(optimizer, epochs if num_batches else 1, num_batches or 1)
        elif num_batches is None and not self._has_warned:
            self._check_rates(optimizer, 1, 1)
        self._is_first_epoch = False

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._num_batches = batch + 1

    def on_test_begin(self, logs: dict[str, Any] | None = None) -> None:
        # `fit` validates before the end of the epoch.
        self._complete()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._complete()

    def _complete(self) -> None:
        optimizer = self._optimizer()
        if self._num_batches is not None and keras.backend.backend() == "tensorflow":
            count = self._count_before + self._num_batches
            if _count(optimizer) > count:
                optimizer._iterations.assign(count)
        self._num_batches = None
        apply_accumulated(optimizer, self.model.trainable_variables)

    def _optimizer(self) -> Any:
        return _inner(self.model.optimizer)

    def _check_rates(self, optimizer: Any, epochs: int, num_batches: int) -> None:
        """Raises an error or warns if the learning rate is 0 in the last steps.

        For example, 3 epochs of 5 batches are 9 steps of at most 2 micro-batches. With a schedule
        of 6 steps, the learning rate is 0 from the seventh step, so the last 3 steps have no
        effect.
        """
        schedule = optimizer._learning_rate
        if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            return
        micro_batches = optimizer.gradient_accumulation_steps or 1
        num_made = self._count_before // micro_batches
        num_updates = epochs * -(-num_batches // micro_batches)
        counts_updates = isinstance(optimizer, DecoupledDecayOptimizer)

        def rate(step: int) -> float:
            return float(ops.convert_to_numpy(schedule(step)))

        def is_over(update: int) -> bool:
            # Keras' own optimizers call schedules with the number of micro-batches. The last
            # micro-batch in a step determines its learning rate.
            number = num_made + update
            step = number if counts_updates else (number + 1) * micro_batches - 1
            # A warmup may also start at 0.
            return step > 0 and rate(step) == 0

        # A learning rate of 0 from the start is intentional, so do not warn.
        if not is_over(num_updates - 1) or rate(0) == rate(1) == 0:
            return
        advice = (
            f"The optimizer has made {num_made} updates, and the learning rate of its schedule, "
            f"{_describe(schedule)}, falls to 0. Compile the task with a schedule for all updates "
            "of the training. The task's `num_steps` counts them."
        )
        if is_over(0) and self._is_first_epoch:
            raise ValueError(f"This training would change no weight. {advice}")
        self._has_warned = True
        first_over = bisect.bisect_left(range(num_updates), True, key=is_over)
        warnings.warn(
            f"The last {num_updates - first_over} of {num_updates} updates of this training change "
            f"no weight. {advice}"
            if self.params.get("steps")
            else f"The training no longer changes any weight. {advice}",
            stacklevel=2,
        )


def apply_accumulated(optimizer: Any, variables: Sequence[keras.Variable]) -> None:
    """Makes an optimizer step with the mean of accumulated gradients that have not been applied."""
    micro_batches_per_update = optimizer.gradient_accumulation_steps
    remaining = _count(optimizer) % micro_batches_per_update if micro_batches_per_update else 0
    if not remaining:
        return
    # The gradients of float8 scales are their new values, not changes.
    variables_to_update = [v for v in variables if not getattr(v, "overwrite_with_gradient", False)]

    def apply() -> None:
        # The missing micro-batches count as gradients of 0. The optimizer divides the sum by
        # `micro_batches_per_update`, so the accumulators are scaled up to give the mean of the
        # existing gradients.
        for accumulator in optimizer._accumulated_gradients:
            if accumulator is not None:
                accumulator.assign(accumulator * (micro_batches_per_update / remaining))
        optimizer._iterations.assign_add(micro_batches_per_update - 1 - remaining)
        optimizer.apply(
            [ops.zeros(v.shape, v.dtype) for v in variables_to_update], variables_to_update
        )

    optimizer_updates.outside_of_training_steps(optimizer, apply)


def with_fit_updates(callbacks: Any, model: keras.Model, *others: keras.callbacks.Callback) -> Any:
    """Puts a `FitUpdates` and other callbacks before the user's callbacks of `fit`."""
    own_callbacks = [FitUpdates(), *others]
    if not isinstance(callbacks, keras.callbacks.CallbackList):
        return [*own_callbacks, *([] if callbacks is None else keras.tree.flatten(callbacks))]
    kinds = {type(callback) for callback in own_callbacks}
    user_callbacks = [callback for callback in callbacks.callbacks if type(callback) not in kinds]
    for callback in own_callbacks:
        callback.set_model(model)
        callback.set_params(callbacks.params)
    callbacks.callbacks = [*own_callbacks, *user_callbacks]
    return callbacks


def micro_batches_per_update_of(optimizer: Any) -> int:
    """Returns the number of micro-batches per optimizer step."""
    return _inner(optimizer).gradient_accumulation_steps or 1


def _inner(optimizer: Any) -> Any:
    return getattr(optimizer, "inner_optimizer", optimizer)  # a LossScaleOptimizer has one


def _count(optimizer: Any) -> int:
    """Returns the number of micro-batches, as counted by Keras' `_iterations`."""
    return int(ops.convert_to_numpy(optimizer._iterations))


def _describe(schedule: Any) -> str:
    steps = getattr(schedule, "num_train_steps", None)
    suffix = "" if steps is None else f" of {steps} steps"
    return f"a {type(schedule).__name__}{suffix}"

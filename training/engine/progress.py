# SPDX-License-Identifier: Apache-2.0
"""Shows a progress bar, and after each epoch a line with the whole run's remaining time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_bert.progress import bar

from .run_report import duration


class TimeLeft:
    """Estimates a run's remaining time over all seeds or phases.

    The estimate is the remaining work divided by this process's speed so far. The speed includes
    everything between the steps, such as building models, scoring and checkpoints. Only the first
    step is excluded, because it is traced or compiled. Work done before a run was resumed does not
    affect the speed.

    Args:
        total: The work of the whole run, in any unit, such as epochs.
        at_most: Whether the run may stop early.
        note: Text to add after the time, such as "for all 5 seeds".
    """

    def __init__(self, total: float, at_most: bool = False, note: str = "") -> None:
        self.total = total
        self.at_most = at_most
        self.note = note
        self.done = 0.0
        self._measured = 0.0  # work
        self._start: float | None = None

    def skip_to(self, done: float) -> None:
        """Counts work that this process did not do, because it was done before or is skipped."""
        self.done = done

    def reach(self, done: float) -> None:
        """Counts work that this process has done."""
        if self._start is None:
            self._start = time.perf_counter()
        else:
            self._measured += done - self.done
        self.done = done

    def seconds(self) -> float | None:
        """Returns the remaining time in seconds, or `None` before the second step."""
        if self._start is None or self._measured <= 0:
            return None
        elapsed = time.perf_counter() - self._start
        return max(0.0, self.total - self.done) * elapsed / self._measured

    def text(self) -> str:
        """Returns text such as `at most 3 min 20 s left`, or `""` if unknown or finished."""
        seconds = self.seconds()
        # The tolerance is for rounding errors when fractions of epochs are added.
        if seconds is None or self.total - self.done < 1e-6 * self.total:
            return ""
        words = ("at most" if self.at_most else "", duration(seconds), "left", self.note)
        return " ".join(filter(None, words))


class Progress(keras.callbacks.Callback):
    """Shows a bar with the remaining time of the run, and prints a line after each epoch.

    Args:
        epochs: Total number of epochs, if `fit` is called once per epoch. `None` uses the `epochs`
            argument of `fit`.
        unit: The word for one of Keras' epochs, such as "interval".
        first_epoch: Number of epochs before the first call of `fit`, if `fit` does not count them.
        metrics: Formats a step's metrics. By default, they are shown under Keras' names.
        summary: Returns the line to print after an epoch instead of its metrics.
        time_left: The estimate for the run, with everything before epoch 0 counted. By default, the
            run consists of `epochs` epochs.
        epoch_work: The work per epoch, in the unit of `time_left`.
        first_batch: Returns the number of batches in the epoch that were done before `fit`.
    """

    def __init__(
        self,
        epochs: int | None = None,
        unit: str = "epoch",
        first_epoch: int = 0,
        metrics: Callable[[dict[str, Any]], str] | None = None,
        summary: Callable[[], str] | None = None,
        time_left: TimeLeft | None = None,
        epoch_work: float = 1.0,
        first_batch: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__()
        self.epochs = epochs
        self.unit = unit
        self.first_epoch = first_epoch
        self.metrics = metrics or _metrics
        self.summary = summary
        self.time_left = time_left
        self.epoch_work = epoch_work
        self.first_batch = first_batch
        self._work_before = 0.0 if time_left is None else time_left.done
        self._bar: Any = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = self.first_epoch + epoch + 1
        self._epochs = self.epochs or self.params["epochs"]
        self._title = f"{self.unit} {self._epoch}/{self._epochs}"
        self._begin = self._last = time.perf_counter()
        self._done = 0
        self._first = self.first_batch()
        # The number of steps in the whole epoch
        self._steps = self.params["steps"] + self._first if self.params.get("steps") else 0
        if self.time_left is None:
            self.time_left = TimeLeft(self._epochs * self.epoch_work)
        self._epoch_start = self._work_before + epoch * self.epoch_work
        self.time_left.skip_to(self._work_at(0))

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._last = time.perf_counter()
        # With `steps_per_execution`, one call covers multiple batches.
        count, self._done = batch + 1 - self._done, batch + 1
        assert self.time_left is not None
        self.time_left.reach(self._work_at(self._done))
        if self._bar is None:
            # The speed excludes the first step, because it is traced.
            self._bar = bar(
                self._title,
                self._steps * self._epochs or None,
                "steps",
                sys.stdout,
                time_left=False,
                initial=self._steps * (self._epoch - 1) + self._first + count,
                miniters=1,
                leave=False,
            )
            count = 0
        # Formatting metrics waits for the step that computes them, so only do it for display.
        if time.time() - self._bar.last_print_t >= self._bar.mininterval:
            self._bar.set_description_str(self._title, refresh=False)
            words = [self.metrics(logs or {}), self.time_left.text()]
            self._bar.set_postfix_str(", ".join(filter(None, words)), refresh=False)
        self._bar.update(count)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._bar is not None:
            self._bar.clear()
        assert self.time_left is not None
        stops = getattr(self.model, "stop_training", False)
        end = self._work_before + self._epochs * self.epoch_work
        self.time_left.skip_to(end if stops else self._epoch_start + self.epoch_work)
        if self.summary is not None:
            line = self.summary()
        else:
            # Stop at the last batch, because scoring the validation set is not training time.
            seconds = duration(self._last - self._begin)
            metrics = self.metrics(logs or {})
            time_left = self.time_left.text()
            steps = f"{self._done}{f' of {self._steps}' if self._first else ''} steps"
            words = [self._title, steps, metrics, seconds, time_left]
            line = ", ".join(filter(None, words))
        print(line, flush=True)

    def _work_at(self, batches: int) -> float:
        """Returns the work done after `fit` has processed some batches of this epoch."""
        if not self._steps:
            return self._epoch_start
        return self._epoch_start + self.epoch_work * (self._first + batches) / self._steps

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def in_percent(logs: Mapping[str, Any]) -> dict[str, float]:
    """Converts Keras' accuracies and F1 scores to percent, the unit of the validation scores.

    Example:

    >>> in_percent({"accuracy": 0.5, "micro_f1": 0.25, "dev_micro_f1": 75.0, "loss": 0.7})
    {'accuracy': 50.0, 'micro_f1': 25.0, 'dev_micro_f1': 75.0, 'loss': 0.7}
    """

    def factor(name: str) -> int:
        return 100 if name.endswith(("accuracy", "f1")) and not name.startswith("dev_") else 1

    return {name: factor(name) * float(value) for name, value in logs.items()}


def _metrics(logs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in in_percent(logs).items())

# SPDX-License-Identifier: Apache-2.0
"""Training progress: a bar with the time left of the run, and a line after each epoch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import IO, Any

import keras

from keras_bert.progress import bar

from .run_report import duration


class Progress(keras.callbacks.Callback):
    """Shows a bar of the run with the time left, and prints a line after each epoch.

    Args:
        file: The output file, standard output by default.
        epochs: Total number of epochs, if `fit` is called for each; `None` takes `fit`'s number.
        unit: The word for an epoch of Keras, such as "interval".
        first_epoch: Number of epochs before those of `fit`, if `fit` does not count them.
        metrics: Formats the metrics of a step; by default each is written as Keras names it.
        summary: Returns the line that is printed after an epoch, instead of its metrics.
        **options: Further arguments of `tqdm`.
    """

    def __init__(
        self,
        file: IO[str] | None = None,
        epochs: int | None = None,
        unit: str = "epoch",
        first_epoch: int = 0,
        metrics: Callable[[dict[str, Any]], str] | None = None,
        summary: Callable[[], str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.file = file or sys.stdout
        self.epochs = epochs
        self.unit = unit
        self.first_epoch = first_epoch
        self.metrics = metrics or _metrics
        self.summary = summary
        self.options = options
        self._bar: Any = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = self.first_epoch + epoch + 1
        self._epochs = self.epochs or self.params["epochs"]
        self._title = f"{self.unit} {self._epoch}/{self._epochs}"
        self._begin = self._last = time.perf_counter()
        self._done = 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._last = time.perf_counter()
        # With `steps_per_execution`, one call covers several batches.
        count, self._done = batch + 1 - self._done, batch + 1
        if self._bar is None:
            # The estimate leaves out the first step, which is traced.
            steps = self.params.get("steps") or 0
            self._bar = bar(
                self._title,
                steps * self._epochs or None,
                "steps",
                self.file,
                initial=steps * (self._epoch - 1) + count,
                miniters=1,
                leave=False,
                **self.options,
            )
            count = 0
        # Formatting metrics waits for the step that computes them, so it is done for display alone.
        if time.time() - self._bar.last_print_t >= self._bar.mininterval:
            self._bar.set_description_str(self._title, refresh=False)
            self._bar.set_postfix_str(self.metrics(logs or {}), refresh=False)
        self._bar.update(count)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._bar is not None:
            self._bar.clear()
        if self.summary is not None:
            line = self.summary()
        else:
            # Until the last batch: scoring the development set is not training time.
            seconds = duration(self._last - self._begin)
            words = [self._title, f"{self._done} steps", self.metrics(logs or {}), seconds]
            line = ", ".join(filter(None, words))
        print(line, file=self.file, flush=True)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _metrics(logs: dict[str, Any]) -> str:
    """Formats metrics; accuracies of Keras are fractions, scores on development sets percents."""
    percents = {
        name: 100 * float(value)
        for name, value in logs.items()
        if "accuracy" in name and not name.startswith("dev_")
    }
    return ", ".join(f"{name} {float(percents.get(name, logs[name])):.4g}" for name in logs)

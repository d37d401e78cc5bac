# SPDX-License-Identifier: Apache-2.0
"""Training progress: one line that is updated on a terminal, plain lines elsewhere."""

from __future__ import annotations

import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import IO, Any

import keras

from .run_report import duration

_SECONDS_ON_TERMINAL = 0.2
_SECONDS_BETWEEN_LINES = 30.0
# A step longer than this multiple of the median is taken to include tracing or compilation.
_TRACED = 5.0
# Minimum number of steps for an estimate, not counting the first, which is always traced.
_FEWEST_STEPS = 3
_STEPS_LOOKED_AT = 200


class Progress(keras.callbacks.Callback):
    """Prints the step, the metrics and the estimated time left in the epoch.

    The estimate ignores steps that were traced or compiled, and is shown only after a few steps.

    Args:
        file: The output file, standard output by default.
        seconds_between_lines: Seconds between lines if `file` is not a terminal.
        clock: Returns the time in seconds.
        epochs: Total number of epochs, if `fit` is called for each; `None` takes `fit`'s number.
        unit: The word for an epoch of Keras, such as "interval".
        first_epoch: Number of epochs before those of `fit`, if `fit` does not count them.
        metrics: Formats the metrics of a line; by default each is written as Keras names it.
        summary: Returns the line that is written after an epoch, instead of its metrics.
    """

    def __init__(
        self,
        file: IO[str] | None = None,
        seconds_between_lines: float = _SECONDS_BETWEEN_LINES,
        clock: Callable[[], float] = time.perf_counter,
        epochs: int | None = None,
        unit: str = "epoch",
        first_epoch: int = 0,
        metrics: Callable[[dict[str, Any]], str] | None = None,
        summary: Callable[[], str] | None = None,
    ) -> None:
        super().__init__()
        self.epochs = epochs
        self.unit = unit
        self.first_epoch = first_epoch
        self.metrics = metrics or _metrics
        self.summary = summary
        self.file = file or sys.stdout
        self.is_terminal = self.file.isatty()
        self.pause = _SECONDS_ON_TERMINAL if self.is_terminal else seconds_between_lines
        self.clock = clock
        self._steps: deque[float] = deque(maxlen=_STEPS_LOOKED_AT)
        self._epoch = 0
        self._length = 0
        self._known_steps: int | None = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = self.first_epoch + epoch + 1
        self._steps.clear()
        self._begin = self._last = self._shown = self.clock()
        self._batch = -1

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        now = self.clock()
        # With `steps_per_execution`, one call covers several batches.
        self._steps.append((now - self._last) / max(1, batch - self._batch))
        self._last, self._batch = now, batch
        if now - self._shown >= self.pause:
            self._shown = now
            self._write(self._line(batch + 1, logs or {}), ends=not self.is_terminal)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        # Until the last batch: scoring the development set is not training time.
        seconds = self._last - self._begin
        self._known_steps = self._batch + 1
        if self.summary is not None:
            self._write(self.summary(), ends=True)
            return
        words = [
            f"{self.unit} {self._of_epochs()}",
            f"{self._batch + 1} steps",
            self.metrics(logs or {}),
        ]
        self._write(", ".join([*filter(None, words), duration(seconds)]), ends=True)

    def _line(self, done: int, logs: dict[str, Any]) -> str:
        total = self.params.get("steps") or self._known_steps
        of_steps = f"step {done}/{total}" if total else f"step {done}"
        words = [f"{self.unit} {self._of_epochs()}", of_steps, self.metrics(logs)]
        seconds = step_seconds(list(self._steps))
        if total and seconds is not None:
            words.append(f"{duration(seconds * (total - done))} left in the {self.unit}")
        return ", ".join(filter(None, words))

    def _of_epochs(self) -> str:
        return f"{self._epoch}/{self.epochs or self.params.get('epochs', self._epoch)}"

    def _write(self, line: str, ends: bool) -> None:
        if self.is_terminal:
            print("\r" + line.ljust(self._length), end="\n" if ends else "", file=self.file)
            self._length = 0 if ends else len(line)
        else:
            print(line, file=self.file)
        self.file.flush()


def step_seconds(steps: list[float]) -> float | None:
    """Returns the mean duration of steps, without the first and those traced or compiled.

    Args:
        steps: Duration of each step of an epoch, in seconds, in order.

    Returns:
        The mean in seconds, or `None` if there are too few steps.
    """
    steps = steps[1:]
    if len(steps) < _FEWEST_STEPS:
        return None
    limit = _TRACED * statistics.median(steps)
    return statistics.fmean(step for step in steps if step <= limit)


def _metrics(logs: dict[str, Any]) -> str:
    """Formats metrics; accuracies of Keras are fractions, scores on development sets percents."""
    percents = {
        name: 100 * float(value)
        for name, value in logs.items()
        if "accuracy" in name and not name.startswith("dev_")
    }
    return ", ".join(f"{name} {float(percents.get(name, logs[name])):.4g}" for name in logs)

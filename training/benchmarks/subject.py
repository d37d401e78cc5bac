# SPDX-License-Identifier: Apache-2.0
"""What a benchmark measures: by rounds, in turns with others."""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Callable
from typing import Self


@dataclasses.dataclass(frozen=True)
class Load:
    """The requests that a model is to answer.

    Args:
        clients: Number of requests at a time, each sent as soon as the previous one is answered.
        rate: Requests per second, sent whether earlier ones are answered or not; 0 for `clients`.
    """

    clients: int = 1
    rate: float = 0.0

    def __str__(self) -> str:
        return f"{self.rate:g} requests/s" if self.rate else f"{self.clients} at a time"


@dataclasses.dataclass(frozen=True)
class Round:
    """The result of a round.

    Args:
        seconds: Its duration.
        steps: Number of steps, or of requests that were answered.
        tokens: Number of tokens in them, padding excluded; 0 if they are not counted.
        milliseconds: The time of each request that was answered; empty if they are not measured.
        requests: Number of requests, answered or not; 0 for steps.
        errors: What was wrong with a request or its answer, for each with an error.
        peak_bytes: Peak memory so far; 0 if it is unknown.
    """

    seconds: float
    steps: int
    tokens: int = 0
    milliseconds: tuple[float, ...] = ()
    requests: int = 0
    errors: tuple[str, ...] = ()
    peak_bytes: int = 0


class Subject(abc.ABC):
    """What is measured: a row of the table.

    Args:
        name: Its name in `--subjects`, and in the table.
        load: The load, for a model that is served.
    """

    def __init__(self, name: str, load: Load | None = None) -> None:
        self.name = name
        self.load = load
        self.rounds: list[Round] = []
        self.unavailable = ""

    @abc.abstractmethod
    def start(self) -> None:
        """Builds, compiles and warms up."""

    @abc.abstractmethod
    def run(self) -> Round:
        """Runs a round."""

    def close(self) -> None:  # noqa: B027  (most have nothing to end)
        """Ends its process."""

    def prepare(self) -> None:
        """Starts the subject; if that fails, it is `unavailable`, and others are measured."""
        try:
            self.start()
        except Exception as error:
            self.unavailable = str(error)

    def measure(self) -> None:
        """Runs a round, unless the subject is unavailable."""
        if not self.unavailable:
            try:
                self.rounds.append(self.run())
            except Exception as error:
                self.unavailable = str(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Function(Subject):
    """A function in this process.

    Args:
        name: Its name in the table.
        call: Processes the data once, and returns the number of its tokens.
        steps: Number of batches of the data.
    """

    def __init__(self, name: str, call: Callable[[], int], steps: int) -> None:
        super().__init__(name)
        self._call = call
        self._steps = steps

    def start(self) -> None:
        self._call()

    def run(self) -> Round:
        start = time.perf_counter()
        tokens = self._call()
        return Round(time.perf_counter() - start, self._steps, tokens)

# SPDX-License-Identifier: Apache-2.0
"""Benchmark subjects. They are measured in alternating rounds."""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Callable
from typing import Self


@dataclasses.dataclass(frozen=True)
class Load:
    """The requests that a model receives.

    Args:
        clients: Number of concurrent requests. Each client waits for a response before it sends
            the next request.
        rate: Requests per second, sent without waiting for responses. 0 uses `clients` instead.
    """

    clients: int = 1
    rate: float = 0.0

    def __str__(self) -> str:
        return f"{self.rate:g} requests/s" if self.rate else f"{self.clients} at a time"


@dataclasses.dataclass(frozen=True)
class Round:
    """Result of one round.

    Args:
        seconds: Duration of the round.
        steps: Number of steps or successful requests.
        tokens: Number of tokens in them, excluding padding. 0 if they are not counted.
        milliseconds: The latency of each successful request. Empty if it is not measured.
        requests: Number of all requests. 0 for steps.
        errors: The error messages of failed requests.
        peak_bytes: Peak memory so far. 0 if it is unknown.
    """

    seconds: float
    steps: int
    tokens: int = 0
    milliseconds: tuple[float, ...] = ()
    requests: int = 0
    errors: tuple[str, ...] = ()
    peak_bytes: int = 0


class Subject(abc.ABC):
    """A measured library, server or function, with one result per load.

    Args:
        name: Name in `--subjects` and in the table.
        load: The load, for subjects that receive requests.
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

    def close(self) -> None:  # noqa: B027  (most subjects have nothing to stop)
        """Stops the subject's process."""

    def prepare(self) -> None:
        """Starts the subject. If that fails, it becomes `unavailable`."""
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
        name: Name in the table.
        call: Processes the data once and returns the number of tokens.
        steps: Number of batches in the data.
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

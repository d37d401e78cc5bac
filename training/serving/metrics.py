# SPDX-License-Identifier: Apache-2.0
"""What a server measures, for Prometheus."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import prometheus_client
from prometheus_client.core import CounterMetricFamily

from .batching import BatchReport

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclasses.dataclass(frozen=True)
class _Total:
    """A counter whose value another object has."""

    name: str
    description: str
    value: Callable[[], int]

    def collect(self) -> list[CounterMetricFamily]:
        name = f"keras_bert_{self.name}"
        return [CounterMetricFamily(name, self.description, self.value())]


class Metrics:
    """The metrics of a server.

    Args:
        waiting: Returns the number of rows that wait.
        cut: Returns the number of rows that were cut until now; `None` where it is not known.
    """

    def __init__(self, waiting: Callable[[], int], cut: Callable[[], int] | None = None) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self.requests = prometheus_client.Counter(
            "keras_bert_requests",
            "Requests for predictions, by the HTTP status of their answer",
            ["status"],
            registry=self.registry,
        )
        self.request_seconds = self._histogram(
            "request_seconds", "Time from a request to its answer"
        )
        self._rows = prometheus_client.Counter(
            "keras_bert_rows", "Rows that were answered", registry=self.registry
        )
        self._batch_rows = self._histogram("batch_rows", "Rows of a batch", _ROWS)
        self._batch_seconds = self._histogram("batch_seconds", "Time that a batch was computed")
        self._waited_seconds = self._histogram(
            "waited_seconds", "Time that a row waited for its batch"
        )
        prometheus_client.Gauge(
            "keras_bert_waiting_rows", "Rows that wait for a batch", registry=self.registry
        ).set_function(waiting)
        if cut is not None:
            self.registry.register(_Total("cut_rows", "Rows with tokens that do not fit", cut))

    def _histogram(
        self, name: str, description: str, buckets: Sequence[float] = _SECONDS
    ) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(
            f"keras_bert_{name}", description, buckets=buckets, registry=self.registry
        )

    def add_batch(self, batch: BatchReport) -> None:
        """Counts a batch."""
        self._rows.inc(batch.rows)
        self._batch_rows.observe(batch.rows)
        self._batch_seconds.observe(batch.seconds)
        for seconds in batch.waited:
            self._waited_seconds.observe(seconds)

    def text(self) -> bytes:
        """Returns the metrics in Prometheus' format."""
        return prometheus_client.generate_latest(self.registry)

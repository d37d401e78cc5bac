# SPDX-License-Identifier: Apache-2.0
"""The server's Prometheus metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import prometheus_client
from prometheus_client.core import CounterMetricFamily

from .batching import BatchReport

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclasses.dataclass(frozen=True, eq=False)
class _TruncatedRows:
    """A counter of truncated examples per model."""

    values: dict[str, Callable[[], int]]

    def collect(self) -> list[CounterMetricFamily]:
        family = CounterMetricFamily(
            "keras_bert_truncated_rows", "Truncated examples", labels=["model"]
        )
        for model, value in self.values.items():
            family.add_metric([model], value())
        return [family]


class Metrics:
    """The server's metrics, labeled with the model's name."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        self.requests = prometheus_client.Counter(
            "keras_bert_requests",
            "Requests to models, by HTTP status",
            ["model", "status"],
            registry=self.registry,
        )
        self.request_seconds = self._histogram(
            "request_seconds", "Time from the request to the response"
        )
        self._rows = prometheus_client.Counter(
            "keras_bert_rows", "Computed examples", ["model"], registry=self.registry
        )
        self._batch_rows = self._histogram("batch_rows", "Examples per batch", _ROWS)
        self._batch_seconds = self._histogram("batch_seconds", "Computation time per batch")
        self._waited_seconds = self._histogram(
            "waited_seconds", "Time that an example waited for its batch"
        )
        self._waiting = prometheus_client.Gauge(
            "keras_bert_waiting_rows",
            "Examples that wait for a batch",
            ["model"],
            registry=self.registry,
        )
        self._truncated = _TruncatedRows({})
        self.registry.register(self._truncated)

    def _histogram(
        self, name: str, description: str, buckets: Sequence[float] = _SECONDS
    ) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(
            f"keras_bert_{name}", description, ["model"], buckets=buckets, registry=self.registry
        )

    def add_model(
        self, model: str, waiting: Callable[[], int], truncated: Callable[[], int] | None = None
    ) -> None:
        """Adds a model."""
        self._rows.labels(model)  # exports 0 before the first batch
        self._waiting.labels(model).set_function(waiting)
        if truncated is not None:
            self._truncated.values[model] = truncated

    def add_batch(self, model: str, batch: BatchReport) -> None:
        """Adds a batch to a model's metrics."""
        self._rows.labels(model).inc(batch.rows)
        self._batch_rows.labels(model).observe(batch.rows)
        self._batch_seconds.labels(model).observe(batch.seconds)
        for seconds in batch.waited:
            self._waited_seconds.labels(model).observe(seconds)

    def text(self) -> bytes:
        """Returns the metrics in Prometheus' text format."""
        return prometheus_client.generate_latest(self.registry)

# SPDX-License-Identifier: Apache-2.0
"""Load generator for servers with TensorFlow Serving's REST API."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import http.client
import itertools
import json
import math
import queue
import random
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

# Maximum number of requests of an open loop that wait for an answer at the same time
MAX_IN_FLIGHT = 256

# The indices of the instances in a request
Batch = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """A signature of a model on a server.

    Args:
        url: The server, `http://host:8501`; requests go to no other host, and redirects are not
            followed.
        model: The name of the model.
        version: The model's version; empty for the newest.
        signature: The name of the signature.
        timeout: Maximum seconds for an answer.
    """

    url: str
    model: str
    version: str
    signature: str
    timeout: float

    def connect(self) -> http.client.HTTPConnection:
        """Returns a connection, which is opened by the first request.

        Raises:
            ValueError: If the URL has another scheme than http and https, or no host.
        """
        url = urllib.parse.urlsplit(self.url)
        kinds: dict[str, type[http.client.HTTPConnection]] = {
            "http": http.client.HTTPConnection,
            "https": http.client.HTTPSConnection,
        }
        if url.scheme not in kinds or not url.hostname:
            raise ValueError(f"--url is {self.url!r}, expected http://host:port")
        return kinds[url.scheme](url.hostname, url.port, timeout=self.timeout)

    @property
    def path(self) -> str:
        prefix = urllib.parse.urlsplit(self.url).path.rstrip("/")
        version = f"/versions/{self.version}" if self.version else ""
        return f"{prefix}/v1/models/{self.model}{version}:predict"

    def body(self, instances: Sequence[Any]) -> bytes:
        request = {"signature_name": self.signature, "instances": list(instances)}
        return json.dumps(request).encode()


@dataclasses.dataclass(frozen=True)
class Answer:
    """The outcome of one request.

    Args:
        seconds: Time from its scheduled start to its answer.
        rows: Number of its instances.
        error: The error; empty if there is none.
        correct: Number of its predictions that are as expected; `None` if they are not checked.
    """

    seconds: float
    rows: int
    error: str = ""
    correct: int | None = None


@dataclasses.dataclass(frozen=True)
class Load:
    """The requests, and how long to send them.

    Args:
        endpoint: The signature to send them to.
        instances: The instances to send, in an order determined by the seed.
        expected: The expected prediction of each instance; `None` to skip the check.
        tolerance: Maximum difference of a number in a prediction from the expected one.
        rows: Instances in a request.
        seconds: Duration of a loop.
        max_requests: Maximum number of requests in a loop.
        seed: Seed of the order, and of the times in an open loop.
    """

    endpoint: Endpoint
    instances: Sequence[Any]
    expected: Sequence[Any] | None
    tolerance: float
    rows: int
    seconds: float
    max_requests: int
    seed: int

    def batches(self) -> Iterator[Batch]:
        """Yields the instances of at most `max_requests` requests; all occur before any repeats."""
        generator = random.Random(self.seed)

        def positions() -> Iterator[int]:
            while True:
                order = list(range(len(self.instances)))
                generator.shuffle(order)
                yield from order

        stream = positions()
        for _ in range(self.max_requests):
            yield tuple(itertools.islice(stream, self.rows))

    def send(
        self, connection: http.client.HTTPConnection, batch: Batch, start: float | None = None
    ) -> Answer:
        """Sends one request and checks its answer.

        Args:
            connection: A connection to the endpoint; it is reopened after an error.
            batch: The indices of the instances.
            start: The scheduled start, by `time.perf_counter`; `None` for now.
        """
        body = self.endpoint.body([self.instances[position] for position in batch])
        start = time.perf_counter() if start is None else start
        headers = {"Content-Type": "application/json"}
        try:
            connection.request("POST", self.endpoint.path, body, headers)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            reason = f"{type(error).__name__}: {error}"
            return Answer(time.perf_counter() - start, len(batch), reason)
        seconds = time.perf_counter() - start
        error, predictions = _predictions(response.status, content, len(batch))
        correct = None
        if self.expected is not None and not error:
            correct = sum(
                is_as_expected(prediction, self.expected[position], self.tolerance)
                for prediction, position in zip(predictions, batch, strict=True)
            )
        return Answer(seconds, len(batch), error, correct)


def _predictions(status: int, content: bytes, rows: int) -> tuple[str, list[Any]]:
    """Returns the error of a response, empty if there is none, and its predictions."""
    text = content.decode("utf-8", "replace")
    if status != http.client.OK:
        return f"HTTP {status}: {text.strip()[:200]}", []
    try:
        predictions = json.loads(text)["predictions"]
    except (ValueError, KeyError, TypeError):
        return f"no predictions in the answer: {text[:200]!r}", []
    if not isinstance(predictions, list) or len(predictions) != rows:
        return f"expected {rows} predictions in the answer: {text[:200]!r}", []
    return "", predictions


def is_as_expected(prediction: Any, expected: Any, tolerance: float) -> bool:
    """Returns whether a prediction has the expected outputs, within a tolerance for numbers.

    A prediction may have further outputs. For a model with a single output the prediction is the
    value itself, which is compared with the only expected one.
    """
    if isinstance(expected, dict):
        if not isinstance(prediction, dict):
            return len(expected) == 1 and is_as_expected(
                prediction, next(iter(expected.values())), tolerance
            )
        return all(
            name in prediction and is_as_expected(prediction[name], value, tolerance)
            for name, value in expected.items()
        )
    if isinstance(expected, list):
        return (
            isinstance(prediction, list)
            and len(prediction) == len(expected)
            and all(map(is_as_expected, prediction, expected, [tolerance] * len(expected)))
        )
    if isinstance(expected, (int, float)) and isinstance(prediction, (int, float)):
        return math.isclose(prediction, expected, rel_tol=0.0, abs_tol=tolerance)
    return bool(prediction == expected)


def closed_loop(load: Load, clients: int) -> Result:
    """Measures with clients that send a request as soon as the previous one is answered."""
    deadline = time.perf_counter() + load.seconds
    batches, lock = load.batches(), threading.Lock()

    def client(_: int) -> list[Answer]:
        connection, answers = load.endpoint.connect(), []
        while time.perf_counter() < deadline:
            with lock:
                batch = next(batches, None)
            if batch is None:
                break
            answers.append(load.send(connection, batch))
        connection.close()
        return answers

    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        answers = list(itertools.chain(*pool.map(client, range(clients))))
    return make_result("closed", clients, answers, time.perf_counter() - start)


def open_loop(load: Load, rate: float) -> Result:
    """Measures with requests at random times, `rate` per second on average.

    Requests do not wait for the answers of others. The latency is measured from the scheduled
    start, so that it includes the delay of a server that falls behind, and the time spent waiting
    for one of `MAX_IN_FLIGHT` connections.
    """
    generator = random.Random(load.seed)
    connections: queue.SimpleQueue[http.client.HTTPConnection] = queue.SimpleQueue()
    for _ in range(MAX_IN_FLIGHT):
        connections.put(load.endpoint.connect())

    def send(batch: Batch, due: float) -> Answer:
        connection = connections.get()
        try:
            return load.send(connection, batch, due)
        finally:
            connections.put(connection)

    start = due = time.perf_counter()
    futures = []
    with concurrent.futures.ThreadPoolExecutor(MAX_IN_FLIGHT) as pool:
        for batch in load.batches():
            due += generator.expovariate(rate)
            if due - start > load.seconds:
                break
            time.sleep(max(0.0, due - time.perf_counter()))
            futures.append(pool.submit(send, batch, due))
        concurrent.futures.wait(futures, timeout=load.endpoint.timeout)
        pool.shutdown(wait=True, cancel_futures=True)
    answers = [
        Answer(load.endpoint.timeout, load.rows, "not sent: the server has fallen behind")
        if future.cancelled()
        else future.result()
        for future in futures
    ]
    while not connections.empty():
        connections.get().close()
    return make_result("open", rate, answers, time.perf_counter() - start)


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a loop.

    Args:
        loop: closed or open.
        load: Number of clients of a closed loop, or requests per second of an open one.
        requests: Number of requests.
        seconds: Time from the first request to the last answer.
        qps: Requests per second that were answered without an error.
        rows_per_second: Instances per second of those requests.
        p50: Their median latency in milliseconds; 0 if there are none.
        p99: The 99th percentile of their latency in milliseconds.
        errors: Number of requests that ended in an error.
        most_frequent_error: The most frequent error; empty if there is none.
        rows: Number of instances that were answered.
        correct_rows: Number of instances with the expected prediction; `None` if they are not
            checked.
    """

    loop: str
    load: float
    requests: int
    seconds: float
    qps: float
    rows_per_second: float
    p50: float
    p99: float
    errors: int
    most_frequent_error: str
    rows: int
    correct_rows: int | None


def make_result(loop: str, load: float, answers: Sequence[Answer], seconds: float) -> Result:
    """Computes counts and percentiles of all answers of a loop."""
    good = [answer for answer in answers if not answer.error]
    errors = collections.Counter(answer.error for answer in answers if answer.error)
    times = [1000 * answer.seconds for answer in good] or [0.0]
    p50, p99 = np.percentile(times, [50, 99]).tolist()
    checked = [answer.correct for answer in good if answer.correct is not None]
    return Result(
        loop,
        load,
        len(answers),
        seconds,
        len(good) / seconds,
        sum(answer.rows for answer in good) / seconds,
        p50,
        p99,
        sum(errors.values()),
        errors.most_common(1)[0][0] if errors else "",
        sum(answer.rows for answer in good),
        sum(checked) if checked else None,
    )


def measure(
    load: Load,
    clients: Sequence[int],
    rates: Sequence[float],
    report: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Returns a result for each number of clients, then for each rate.

    Args:
        load: The requests.
        clients: Numbers of clients, for closed loops.
        rates: Requests per second, for open loops.
        report: Called with each result as soon as it is available.

    Raises:
        ValueError: If the server does not answer the first request, which is not counted.
    """
    connection = load.endpoint.connect()
    first = load.send(connection, next(load.batches()))
    connection.close()
    if first.error:
        raise ValueError(f"{load.endpoint.url}{load.endpoint.path} does not answer: {first.error}")
    results = []
    settings: list[tuple[Callable[[Load, Any], Result], float]] = [
        *((closed_loop, number) for number in clients),
        *((open_loop, rate) for rate in rates),
    ]
    for loop, setting in settings:
        results.append(loop(load, setting))
        report(results[-1])
    return results


def format_row(result: Result | None) -> str:
    """Formats a row of the table, or its header for `None`."""
    if result is None:
        return (
            f"{'loop':<7} {'load':>12} {'requests':>9} {'QPS':>8} {'rows/s':>8} {'p50 ms':>8} "
            f"{'p99 ms':>8} {'errors':>7}  correct rows"
        )
    unit = "clients" if result.loop == "closed" else "QPS"
    checked = result.correct_rows
    correct = "not checked" if checked is None else f"{checked} of {result.rows}"
    line = (
        f"{result.loop:<7} {f'{result.load:g} {unit}':>12} {result.requests:>9} "
        f"{result.qps:>8.1f} {result.rows_per_second:>8.1f} {result.p50:>8.1f} "
        f"{result.p99:>8.1f} {result.errors:>7}  {correct}"
    )
    return f"{line}\n        {result.most_frequent_error}" if result.most_frequent_error else line

# SPDX-License-Identifier: Apache-2.0
"""Requests to a server that speaks TensorFlow Serving's REST, and how they were answered."""

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

# Requests of an open loop that wait for an answer at the same time
MAX_IN_FLIGHT = 256

# Which instances are in a request, by their positions
Batch = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """A signature of a model on a server.

    Args:
        url: The server's, `http://host:8501`; nothing is sent anywhere else, redirections neither.
        model: Its name.
        version: Its number; empty for the newest.
        signature: The signature's name.
        timeout: Seconds that an answer may take.
    """

    url: str
    model: str
    version: str
    signature: str
    timeout: float

    def connect(self) -> http.client.HTTPConnection:
        """A connection, which is opened by the first request.

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
    """How one request ended.

    Args:
        seconds: From when it was to be sent until it was answered.
        rows: How many instances it had.
        error: What went wrong; empty if nothing.
        correct: How many of its predictions are as expected; `None` where nothing is expected.
    """

    seconds: float
    rows: int
    error: str = ""
    correct: int | None = None


@dataclasses.dataclass(frozen=True)
class Load:
    """What is sent, and for how long.

    Args:
        endpoint: Where to.
        instances: What `instances` of the requests are taken from, in an order of the seed.
        expected: The prediction for each instance; `None` to check nothing.
        tolerance: By how much a number of a prediction may differ.
        rows: Instances in a request.
        seconds: How long requests are sent with one setting.
        max_requests: The most requests with one setting.
        seed: Of the order, and of the times in an open loop.
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
        """The instances of each request, `max_requests` times; every order has all of them."""
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
            connection: To the endpoint; it is opened again after an error.
            batch: The request's instances.
            start: When it was to be sent, by `time.perf_counter`; `None` for now.
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
    """What is wrong with a response, and its predictions."""
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
    """Whether a prediction has what is expected, its numbers up to a tolerance.

    A prediction may have more outputs than expected. That of a model with one output is a bare
    value; it is compared with the only one that is expected.
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
    """Clients that each send a request as soon as the last one is answered."""
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
    """Requests at random times, `rate` a second on average, whether others are answered or not.

    A request's time counts from when it was to be sent, so that a server that falls behind
    shows; those that wait for one of `MAX_IN_FLIGHT` connections are late, too.
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
    """What a setting came to.

    Args:
        loop: closed or open.
        load: Clients of a closed loop, requests a second of an open one.
        requests: How many were sent.
        seconds: From the first request to the last answer.
        qps: Requests a second that were answered without an error.
        rows_per_second: Their instances.
        p50: Milliseconds that half of them took at most; 0 if there are none.
        p99: Milliseconds that 99 in 100 took at most.
        errors: How many ended in an error.
        first_error: The commonest error; empty if there is none.
        rows: Instances that were answered.
        correct_rows: Those whose predictions are as expected; `None` where nothing is expected.
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
    first_error: str
    rows: int
    correct_rows: int | None


def make_result(loop: str, load: float, answers: Sequence[Answer], seconds: float) -> Result:
    """Counts and percentiles of all answers of a setting."""
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
    """One result for each number of clients, then for each rate.

    Args:
        load: What is sent.
        clients: Of closed loops.
        rates: Requests a second of open loops.
        report: Is told each result at once.

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
    """A line of the table; `None` for its head."""
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
    return f"{line}\n        {result.first_error}" if result.first_error else line

# SPDX-License-Identifier: Apache-2.0
"""A locustfile that sends requests to TensorFlow Serving's REST API or OpenAI's embeddings API.

    locust --locustfile=training/benchmarks/locustfile.py --headless --run-time=30s --csv=load \\
        --host=http://localhost:8501/v1/models/sst2 --texts=dev.txt --users=16 --spawn-rate=16

If the host ends with `/v1/embeddings`, users send OpenAI requests with the model name "model". Each
user sends a request as soon as its previous request is answered (closed loop). With `--rate`, users
send requests at random times without waiting for responses (open loop), and latency counts from the
scheduled time. Requests go only to `--host`. The file only depends on locust, so you can copy it to
another machine.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gevent.pool
from locust import FastHttpUser, events, task
from locust.contrib.csv_request_logger import CsvRequestLogger

HTTP_OK = 200
EMBEDDINGS = "/v1/embeddings"
# Maximum number of open-loop requests that wait for a response. Further requests are delayed.
MAX_CONNECTIONS = 1000
ROWS_BETWEEN_FLUSHES = 1000


@events.init_command_line_parser.add_listener
def add_options(parser: Any) -> None:
    add = parser.add_argument
    add("--texts", default="", help="one text per line, or JSON Lines whose objects are sent")
    add("--expected", default="", help="JSON Lines with the expected prediction for each text")
    add("--tolerance", type=float, default=1e-3, help="maximum difference to expected numbers")
    add("--signature", default="serving_default", help="the model's signature")
    add("--batch-size", type=int, default=1, help="number of texts per request")
    add("--rate", type=float, default=0.0, help="requests per second and user; 0: closed loop")
    add("--timeout", type=float, default=30.0, help="maximum seconds to wait for a response")
    add("--request-log", default="", help="CSV file for the time and error of each request")


@events.init.add_listener
def read_files(environment: Any, **_: Any) -> None:
    options = environment.parsed_options
    texts = read_lines(options.texts, str)
    is_json = texts[0].lstrip().startswith("{")
    Client.instances = read_lines(options.texts, json.loads) if is_json else texts
    Client.order = random_order(len(texts))
    if options.expected:
        Client.expected = read_lines(options.expected, json.loads)
        if len(Client.expected) != len(texts):
            sys.exit(
                f"error: --expected must have {len(texts)} lines, as --texts={options.texts}. "
                f"Received: {len(Client.expected)} ({options.expected})"
            )
    Client.network_timeout = Client.connection_timeout = options.timeout
    if options.request_log:
        CsvRequestLogger(options.request_log, flush_interval=ROWS_BETWEEN_FLUSHES).register(
            environment
        )


def read_lines(name: str, read: Callable[[str], Any]) -> list[Any]:
    """Reads a file line by line. If a line is invalid, exits with its file and number."""
    path = Path(name)
    lines = path.read_bytes().splitlines() if path.is_file() else []
    if not lines:
        sys.exit(f"error: --texts and --expected must be files with lines. Received: {name!r}")
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(read(line.decode()))
        except ValueError as error:
            sys.exit(f"error: {path}, line {number}: {error}")
    return rows


def random_order(count: int) -> Iterator[int]:
    """Yields the numbers below `count` in random order, then again in a new order, and so on."""
    generator = random.Random(0)
    while True:
        yield from generator.sample(range(count), count)


def find_error(
    status: int, text: str, count: int, expected: Sequence[Any] | None, tolerance: float
) -> str:
    """Returns the error in a response to a request with `count` texts, or an empty string."""
    if status != HTTP_OK:
        return f"HTTP {status}: {text.strip()[:200]}"
    try:
        answer = json.loads(text)
        if "data" in answer:  # It is an OpenAI response.
            predictions = [row["embedding"] for row in answer["data"]]
        else:
            predictions = answer["predictions"]
    except (ValueError, KeyError, TypeError):
        return f"no predictions in the response: {text[:200]!r}"
    if not isinstance(predictions, list) or len(predictions) != count:
        return f"the response must have {count} predictions. Received: {text[:200]!r}"
    wrong = sum(
        not is_as_expected(prediction, row, tolerance)
        for prediction, row in zip(predictions, expected or (), strict=False)
    )
    return f"{wrong} of {count} predictions are not as expected" if wrong else ""


def is_as_expected(prediction: Any, expected: Any, tolerance: float) -> bool:
    """Returns whether a prediction has the expected outputs. Numbers may differ by `tolerance`.

    The prediction may have additional outputs. For a model with a single output, the prediction is
    only its value. It is compared with the single expected value. An expected `id` is ignored.
    """
    if isinstance(expected, dict):
        expected = {name: value for name, value in expected.items() if name != "id"}
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


class Client(FastHttpUser):
    """A user of the server. Locust starts `--users` users."""

    insecure = False  # Verify certificates.
    concurrency = MAX_CONNECTIONS
    instances: Sequence[Any]
    expected: Sequence[Any] | None = None
    order: Iterator[int]  # shared by all users

    def on_start(self) -> None:
        self.options = self.environment.parsed_options
        self.client.client.redirect_response_codes = frozenset()
        self.unanswered = gevent.pool.Group()
        self.due = time.perf_counter()

    def on_stop(self) -> None:
        self.unanswered.join()

    def wait_time(self) -> float:
        if not self.options.rate:
            return 0.0
        self.due += random.expovariate(self.options.rate)
        return max(0.0, self.due - time.perf_counter())

    @task
    def send(self) -> None:
        if self.options.rate:
            self.unanswered.spawn(self.predict, self.due)
        else:
            self.predict(time.perf_counter())

    def predict(self, due: float) -> None:
        """Sends a request and checks the response. Its latency counts from `due`."""
        options = self.options
        positions = [next(self.order) for _ in range(options.batch_size)]
        instances = [self.instances[position] for position in positions]
        expected = self.expected and [self.expected[position] for position in positions]
        if self.host.endswith(EMBEDDINGS):
            path, body = "", {"model": "model", "input": instances}
        else:
            path = ":predict"
            body = {"signature_name": options.signature, "instances": instances}
        with self.client.post(
            path,
            json=body,
            headers={"Accept-Encoding": "identity"},
            catch_response=True,
        ) as response:
            response.request_meta["response_time"] = 1000 * (time.perf_counter() - due)
            if response.status_code:  # 0 means no response, and locust reports its own error.
                text = response.text or ""
                error = find_error(
                    response.status_code, text, len(positions), expected, options.tolerance
                )
                if error:
                    response.failure(error)

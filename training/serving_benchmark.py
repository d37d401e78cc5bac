# SPDX-License-Identifier: Apache-2.0
"""Measures the throughput, the latency and the correctness of a server.

It sends texts to a server with TensorFlow Serving's REST API, and to no other host: first with each
number of clients that wait for the answers (a closed loop), then at each rate of requests,
regardless of the answers (an open loop).

    python -m training.serving_benchmark --url=http://localhost:8501 --model=sst2
    python -m training.serving_benchmark --url=http://localhost:8501 --model=sst2 --input=dev.txt \
        --expected=answers.jsonl --clients=1,8,32 --rates=20,40,80 --json=load.json --plot=load.png

The input is a file with one text per line, or JSON Lines whose objects are sent unchanged as
instances: {"question": …, "context": …}. Without it, sentences from docstrings of Python's standard
library are sent. --expected takes the output of `python -m training.predict` for the same file.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from absl import flags

from keras_bert import atomic, checks
from keras_bert.data.text_files import read_lines

from .benchmarks.serving_load import Endpoint, Load, Result, format_row, measure
from .engine import program
from .engine.config_flags import define_flags, read_flags
from .engine.options import NonNegativeFloat, PositiveFloat, PositiveInt, ProgramConfig, Seed
from .readers.docstrings import standard_library_sentences
from .readers.values import row_error


@dataclasses.dataclass(frozen=True)
class ServingBenchmarkConfig(ProgramConfig):
    """The server, the requests and the load.

    Args:
        url: The server, such as http://localhost:8501.
        model: The name of the model on the server.
        version: The model's version; empty for the newest.
        signature: The signature.
        input: A file with one text per line, or of JSON Lines; empty for docstrings.
        max_rows: Maximum number of rows to read from the input.
        expected: A JSON Lines file with the expected prediction for each row of the input; empty to
            skip the check.
        tolerance: Maximum difference of a number from the expected one.
        clients: Numbers of clients, for a closed loop each.
        rates: Requests per second, for an open loop each.
        rows: Instances in a request.
        seconds: Duration of each loop.
        max_requests: Maximum number of requests in each loop.
        timeout: Maximum seconds for an answer.
        seed: Seed of the order of the texts, and of the times in open loops.
        json: File for the results as JSON; empty for none.
        plot: PNG file for a plot of the results; empty for none.
    """

    url: str = "http://localhost:8501"
    model: str = ""
    version: str = ""
    signature: str = "serving_default"
    input: str = ""
    max_rows: PositiveInt = 2000
    expected: str = ""
    tolerance: NonNegativeFloat = 1e-3
    clients: tuple[str, ...] = ("1", "4", "16")
    rates: tuple[str, ...] = ()
    rows: PositiveInt = 1
    seconds: PositiveFloat = 10.0
    max_requests: PositiveInt = 100_000
    timeout: PositiveFloat = 30.0
    seed: Seed = 0
    json: str = ""
    plot: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model:
            raise ValueError("--model is empty, expected the name of the model on the server")
        if self.expected and not self.input:
            raise ValueError("--expected requires --input, the rows that it has predictions for")

    @property
    def client_numbers(self) -> list[int]:
        """`clients` as numbers."""
        return _positive("clients", self.clients, int)

    @property
    def rate_numbers(self) -> list[float]:
        """`rates` as numbers."""
        return _positive("rates", self.rates, float)


def _positive(name: str, values: Sequence[str], number: Callable[[str], Any]) -> list[Any]:
    try:
        numbers = [number(value) for value in values]
    except ValueError:
        numbers = [0]
    if not all(map(checks.POSITIVE.allows, numbers)):
        raise ValueError(f"--{name} is {','.join(values)!r}, expected positive numbers")
    return numbers


def read_instances(config: ServingBenchmarkConfig) -> list[Any]:
    """Returns the instances to send: strings, or the objects of JSON Lines.

    Raises:
        ValueError: If a line is not JSON, or the file is empty.
    """
    if not config.input:
        return standard_library_sentences(config.max_rows)
    path = Path(config.input)
    lines = _lines(path, config.max_rows)
    if not lines:
        raise ValueError(f"{path} has no lines")
    return _json_rows(path, lines) if lines[0].lstrip().startswith("{") else lines


def read_expected(config: ServingBenchmarkConfig, count: int) -> list[Any] | None:
    """Returns the expected prediction of each instance, or `None` without `--expected`.

    Raises:
        ValueError: If there are fewer predictions than instances, or a line is not JSON.
    """
    if not config.expected:
        return None
    path = Path(config.expected)
    lines = _lines(path, count)
    if len(lines) != count:
        raise ValueError(f"{path} has {len(lines)} lines, expected {count}, as in --input")
    rows = _json_rows(path, lines)
    return [_without_id(row) for row in rows]


def _without_id(row: Any) -> Any:
    return {k: v for k, v in row.items() if k != "id"} if isinstance(row, dict) else row


def _lines(path: Path, count: int) -> list[str]:
    return [line.rstrip("\r\n") for line in itertools.islice(read_lines(path), count)]


def _json_rows(path: Path, lines: Sequence[str]) -> list[Any]:
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise row_error(path, f"line {number}", f"not JSON: {error}") from None
    return rows


def run(config: ServingBenchmarkConfig) -> list[Result]:
    """Measures each load, and prints its result.

    Raises:
        ValueError: If the server does not answer, or a file is malformed.
    """
    clients, rates = config.client_numbers, config.rate_numbers
    instances = read_instances(config)
    load = Load(
        Endpoint(config.url, config.model, config.version, config.signature, config.timeout),
        instances,
        read_expected(config, len(instances)),
        config.tolerance,
        config.rows,
        config.seconds,
        config.max_requests,
        config.seed,
    )
    characters = sum(len(json.dumps(x, ensure_ascii=False)) for x in instances) / len(instances)
    print(
        f"{config.model} at {config.url}: {len(instances)} rows of {characters:.0f} characters on "
        f"average, {config.rows} in a request, {config.seconds:g} seconds each",
        format_row(None),
        sep="\n",
        flush=True,
    )
    return measure(load, clients, rates, lambda result: print(format_row(result), flush=True))


def main(arguments: list[str]) -> None:
    program.refuse_arguments(arguments)
    config = read_flags(ServingBenchmarkConfig)
    if config.plot:
        program.require(("matplotlib",), "training")
    results = run(config)
    if config.json:
        written = {
            "config": dataclasses.asdict(config),
            "client": f"{platform.machine()}, {os.cpu_count()} CPUs",
            "results": [dataclasses.asdict(result) for result in results],
        }
        atomic.write_json(config.json, written)
    if config.plot:
        from .plots.serving_latency import plot_serving_latency

        plot_serving_latency(Path(config.plot), results)


if __name__ == "__main__":
    define_flags(ServingBenchmarkConfig, flags.FLAGS)
    program.run(main)

# SPDX-License-Identifier: Apache-2.0
"""Measures a model on a server with requests from Locust."""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..engine import program
from .subject import Load, Round, Subject

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
HTTP_OK = "200"
WARM_UP_SECONDS = 1
# How long Locust waits for outstanding responses at the end
PATIENCE_SECONDS = 60


class Server(Subject):
    """A model on a server with TensorFlow Serving's REST API or OpenAI's embeddings API.

    Args:
        name: The model's URL, such as `http://localhost:8501/v1/models/sst2`, with or without a
            version, or `http://localhost:8501/v1/embeddings` for a model named "model".
        load: The requests.
        seconds: Round duration in seconds.
        options: Command-line options of the locustfile.
    """

    def __init__(self, name: str, load: Load, seconds: int, options: Sequence[str]) -> None:
        program.require(("locust",), "load")
        super().__init__(name, load)
        self._seconds = seconds
        self._options = options

    def start(self) -> None:
        self._run(Load(), WARM_UP_SECONDS)

    def run(self) -> Round:
        return self._run(self.load or Load(), self._seconds)

    def _run(self, load: Load, seconds: int) -> Round:
        with tempfile.TemporaryDirectory() as directory:
            log = Path(directory, "requests.csv")
            finished = subprocess.run(
                [
                    *(sys.executable, "-m", "locust", f"--locustfile={LOCUSTFILE}"),
                    *("--headless", "--only-summary", "--exit-code-on-error=0"),
                    *(f"--users={load.clients}", f"--spawn-rate={load.clients}"),
                    *(f"--run-time={seconds}s", f"--stop-timeout={PATIENCE_SECONDS}"),
                    *(f"--host={self.name}", f"--rate={load.rate}", f"--request-log={log}"),
                    *self._options,
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            if finished.returncode:
                raise ValueError(finished.stderr.strip().splitlines()[-1])
            with log.open(encoding="utf-8", newline="") as file:
                requests = list(csv.DictReader(file))
        errors = tuple(row["exception"] for row in requests if row["exception"])
        answered = [row for row in requests if row["status_code"] == HTTP_OK]
        if not answered:
            raise ConnectionError(
                f"the server did not respond: {errors[0] if errors else 'timeout'}"
            )
        starts = [float(row["timestamp"]) for row in requests]
        ends = [
            start + float(row["response_time_ms"]) / 1000
            for start, row in zip(starts, requests, strict=True)
        ]
        return Round(
            max(ends) - min(starts),
            len(answered),
            milliseconds=tuple(float(row["response_time_ms"]) for row in answered),
            requests=len(requests),
            errors=errors,
        )

# SPDX-License-Identifier: Apache-2.0
"""Controls a child process that measures one library on one backend."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from .worker import LIBRARIES
from .workload import Workload

ROOT = Path(__file__).resolve().parents[2]
BACKENDS = ("tensorflow", "jax", "torch")
SERVED = ("keras_bert:tensorflow", "keras_hub:tensorflow")


class Subject:
    """One library on one backend, in its own process.

    Args:
        name: `library:backend[:precision][@model]`, with a precision and a model if they differ
            from the workload's.
        workload: The workload to measure.
        device: `cpu`, or `auto` for an accelerator if there is one.

    Raises:
        ValueError: If the library or the backend is unknown, or has no SavedModel to serve.
    """

    def __init__(self, name: str, workload: Workload, device: str = "auto") -> None:
        runner, _, model = name.partition("@")
        library, backend, precision = (*runner.split(":"), "", "")[:3]
        if library not in LIBRARIES or backend not in BACKENDS:
            raise ValueError(
                f"--subjects has {name!r}, expected library:backend[:precision][@model] with a "
                f"library of {', '.join(LIBRARIES)} and a backend of {', '.join(BACKENDS)}"
            )
        if workload.what == "serve" and f"{library}:{backend}" not in SERVED:
            raise ValueError(
                f"--subjects has {name!r}, expected {' or '.join(SERVED)} with --what=serve"
            )
        self.name = name
        self.library, self.backend = library, backend
        self.workload = dataclasses.replace(
            workload, precision=precision or workload.precision, model=model or workload.model
        )
        self.seconds: list[float] = []
        self.peak_bytes = 0
        self.unavailable = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker"],
            cwd=ROOT,
            env=os.environ | _environment(backend, device),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def prepare(self) -> None:
        """Builds, compiles and warms up; sets `unavailable` if that fails."""
        order = {"library": self.library, "workload": dataclasses.asdict(self.workload)}
        self.unavailable = self._ask(json.dumps(order)).get("unavailable", "")

    def measure(self) -> None:
        """Runs one round."""
        if self.unavailable:
            return
        answer = self._ask("round")
        self.unavailable = answer.get("unavailable", "")
        if not self.unavailable:
            self.seconds.append(answer["seconds"])
            self.peak_bytes = answer["peak_bytes"]

    def _ask(self, line: str) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            return {"unavailable": f"the process ended with status {self._process.wait()}"}
        return json.loads(answer)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _environment(backend: str, device: str) -> dict[str, str]:
    environment = {
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # With preallocation, the reported peak would be the size of the memory pool.
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    if device == "cpu":
        environment |= {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    return environment

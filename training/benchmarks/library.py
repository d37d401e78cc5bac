# SPDX-License-Identifier: Apache-2.0
"""Runs a workload with a library and backend in a separate process."""

from __future__ import annotations

import dataclasses
import importlib
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from ..costs.run_cost import process_peak_bytes
from .subject import Load, Round, Subject
from .workload import Workload

# Each library is imported only in the process that measures it.
LIBRARIES = {
    "keras_bert": ("keras_subjects", "keras_bert_work"),
    "keras_hub": ("keras_subjects", "keras_hub_work"),
    "transformers": ("torch_subject", "transformers_work"),
    "matmuls": ("matmuls", "matmuls_work"),
    "serve": ("keras_subjects", "serve_work"),
}
BACKENDS = ("tensorflow", "jax", "torch")
# Options of each library
OPTIONS = {
    "keras_bert": ("sorted", "unpadded", "compiled"),
    "keras_hub": ("sorted", "compiled"),
    "transformers": ("sorted", "compiled"),
}
SERVED = ("keras_bert:tensorflow", "keras_hub:tensorflow", "serve:tensorflow")


class Library(Subject):
    """A library with a backend.

    Args:
        name: `library[+option]:backend[:precision][@model]`. The precision and the model are only
            necessary if they differ from the workload. Any number of `OPTIONS` is allowed.
        workload: The workload to measure.
        device: `cpu`, or `auto` for an accelerator if available.

    Raises:
        ValueError: If the library or backend is unknown, or has no SavedModel to serve.
    """

    def __init__(self, name: str, workload: Workload, device: str = "auto") -> None:
        super().__init__(name, Load(workload.clients) if workload.what == "serve" else None)
        runner, _, model = name.partition("@")
        library, backend, precision = (*runner.split(":"), "", "")[:3]
        library, *options = library.split("+")
        if library not in LIBRARIES or backend not in BACKENDS:
            raise ValueError(
                "--subjects must be library:backend[:precision][@model] with a library of "
                f"{', '.join(LIBRARIES)} and a backend of {', '.join(BACKENDS)}. Received: {name!r}"
            )
        unknown_options = set(options).difference(OPTIONS.get(library, ()))
        if unknown_options:
            raise ValueError(
                f"the options of {library} must be among: "
                f"{', '.join(OPTIONS.get(library, ())) or 'none'}. Received: --subjects={name!r}"
            )
        if workload.what == "serve" and f"{library}:{backend}" not in SERVED:
            raise ValueError(
                f"--subjects must be {' or '.join(SERVED)}, or a model's URL, with --what=serve. "
                f"Received: {name!r}"
            )
        if library == "serve" and workload.what != "serve":
            raise ValueError(f"--subjects={name!r} requires --what=serve")
        precision = precision or workload.precision
        if precision == "int8" and (workload.what != "serve" or library == "keras_hub"):
            raise ValueError(
                f"int8 requires --what=serve and keras_bert or serve. Received: --subjects={name!r}"
            )
        self.workload = dataclasses.replace(
            workload,
            precision=precision,
            model=model or workload.model,
            options=tuple(options),
        )
        self._connection, connection = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_work,
            args=(connection, library, self.workload, _environment(backend, device)),
            daemon=True,
        )
        self._process.start()
        connection.close()

    def start(self) -> None:
        self._receive()

    def run(self) -> Round:
        self._connection.send("round")
        return self._receive()

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"the process exited with status {self._process.exitcode}") from None
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.join()


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


def _work(
    connection: Connection, library: str, workload: Workload, environment: dict[str, str]
) -> None:
    """Prepares the work in the child process, then runs a round for each message.

    Sends `None` when it is ready. After each round, sends the result, or an error as text.
    """
    os.environ.update(environment)
    # Hide the libraries' output. It would appear between the lines of the table.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        module, name = LIBRARIES[library]
        work = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        run: Callable[[int], Round] = work(workload)
        run(workload.warm_up_steps)
        tokens = workload.tokens_per_round
        connection.send(None)
        while connection.recv():
            result = run(workload.steps)
            connection.send(dataclasses.replace(result, tokens=tokens, peak_bytes=peak_bytes()))
    except EOFError:
        return  # The parent process has exited.
    except Exception as error:
        connection.send(f"{type(error).__name__}: {error}")


def peak_bytes() -> int:
    """Returns the accelerator's peak memory, or without an accelerator the process's peak memory.

    On Windows, a process' peak memory is unknown, and the function returns 0.
    """
    return _torch_peak() or _jax_peak() or _tensorflow_peak() or process_peak_bytes()


def _torch_peak() -> int:
    torch: Any = sys.modules.get("torch")
    return torch.cuda.max_memory_allocated() if torch and torch.cuda.is_available() else 0


def _jax_peak() -> int:
    jax: Any = sys.modules.get("jax")
    statistics = jax.local_devices()[0].memory_stats() if jax else None
    return (statistics or {}).get("peak_bytes_in_use", 0)


def _tensorflow_peak() -> int:
    tf: Any = sys.modules.get("tensorflow")
    if not tf or not tf.config.list_physical_devices("GPU"):
        return 0
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]

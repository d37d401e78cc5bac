# SPDX-License-Identifier: Apache-2.0
"""Serves any trained model over HTTP, with TensorFlow Serving's REST API.

    python -m training.serve --model=runs/finetune/export/1
    python -m training.serve --model=runs/finetune/seed_1/model.keras --port=0
    curl http://127.0.0.1:8501/v1/models/model:predict -d '{"instances": ["a gripping film"]}'

The model is a folder written by `export`, or the `.keras` file of a task, which needs no
TensorFlow on the JAX and PyTorch backends. A SavedModel answers to all its signatures, a task to
`serving_default`. Requests that arrive together are computed together, each text with others of
about its length. Ctrl-C or SIGTERM ends the server after it has answered the requests that it has.

    GET  /v1/models/NAME[/versions/N]               whether the model is available
    GET  /v1/models/NAME[/versions/N]/metadata      its signatures
    POST /v1/models/NAME[/versions/N]:predict       {"instances": [...]} or {"inputs": ...}
    GET  /v2/health/ready, /v2/health/live          health
    GET  /metrics                                   metrics for Prometheus
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from .engine import example_request, output_folder, program
from .engine.options import NonNegativeInt, PositiveInt, ProgramConfig, num_cores
from .serving.signatures import DEFAULT_BATCH_SIZE, DEFAULT_SIGNATURE

if TYPE_CHECKING:
    from .serving.rest import ModelServer

_PORTS = 1 << 16
_LIBRARIES = ("starlette", "uvicorn", "prometheus_client")
# The batches of a task on JAX, which is compiled for each number of rows before it is ready
_JAX_BATCH_SIZE = 8
# Seconds for the requests that are being answered when the server is told to end
_SECONDS_TO_END = 30


@dataclasses.dataclass(frozen=True)
class ServeConfig(ProgramConfig):
    """The model, the address and the bounds.

    Args:
        model: A folder written by export, or a .keras file; several files, separated by commas or
            by wildcards as in seed_*/model.keras, are an ensemble.
        host: The address to listen at; 0.0.0.0 is all of this machine, and there is neither
            encryption nor authentication.
        port: The port; 0 takes a free one.
        name: The name of the model in addresses.
        threads: Threads that compute a batch each, with a core each; by default as many as there
            are cores for an export, and one for a .keras file.
        batch_size: Rows in a batch at most.
        max_rows: Rows in a request at most.
        max_bytes: Size of a request at most.
        max_waiting_rows: Rows that wait at most; further requests are refused with status 503.
    """

    model: str = ""
    host: str = example_request.DEFAULT_HOST
    port: NonNegativeInt = example_request.DEFAULT_PORT
    name: str = example_request.DEFAULT_NAME
    threads: PositiveInt | None = None
    batch_size: PositiveInt = DEFAULT_BATCH_SIZE
    max_rows: PositiveInt = 1024
    max_bytes: PositiveInt = 4_000_000
    max_waiting_rows: PositiveInt = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.port >= _PORTS:
            raise ValueError(f"--port is {self.port}, expected a number below {_PORTS}")
        if not self.name or not set("/:?#%").isdisjoint(self.name) or not self.name.isprintable():
            raise ValueError(f"--name is {self.name!r}, expected a name without / : ? # %")
        if self.max_waiting_rows < self.max_rows:
            raise ValueError(
                f"--max_waiting_rows={self.max_waiting_rows} is below "
                f"--max_rows={self.max_rows}: a request of as many rows could never wait"
            )


def main(config: ServeConfig) -> None:
    program.require(_LIBRARIES, "serve")
    with listening(config.host, config.port) as listener:
        server = load(config)
        try:
            serve(config, server, listener)
        finally:
            server.batcher.close()
    print("ended", flush=True)


def listening(host: str, port: int) -> socket.socket:
    """Opens a socket, before the model is loaded, which takes time.

    Raises:
        OSError: If it cannot be opened, as where the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        created = socket.create_server((host, port), family=family)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        other = "; --port=0 takes a free port" if is_taken else ""
        reason = str(error.strerror).partition(" (")[0]
        raise OSError(f"--host={host} --port={port}: {reason}{other}") from error
    # Without the protocol's name asyncio would not set TCP_NODELAY, and the end of an answer would
    # wait for the client to acknowledge its beginning, 40 ms.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, created.detach())


def serve(config: ServeConfig, server: ModelServer, listener: socket.socket) -> None:
    """Serves a model until the process is told to end, and then answers what it has received."""
    from .serving import connections

    http = connections.server(server.application(), _SECONDS_TO_END)
    # From now on Ctrl-C and SIGTERM end the server in order, and its process with status 0.
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, http.handle_exit)
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(ready_text(config, server, address), flush=True)
    asyncio.run(http.serve(sockets=[listener]))


def load(config: ServeConfig) -> ModelServer:
    """Loads a model, and has it answer requests of all sizes, the first of which are slow."""
    from . import predict
    from .serving import signatures as served
    from .serving.batching import Batcher
    from .serving.metrics import Metrics
    from .serving.rest import ModelServer

    if Path(config.model).is_dir():
        # A product on one core, and several products at a time, answer most requests a second.
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    program.import_quietly()
    predictor = predict.load_predictor(config.model)
    is_task = not hasattr(predictor.model, "signatures")
    batch_size, threads, longest, compiles = config.batch_size, config.threads, 500, False
    if is_task:
        import keras

        by_name = served.of_task(predictor.model, predictor.fields)
        threads = threads or 1
        longest = predictor.model.preprocessor.sequence_length
        compiles = keras.backend.backend() == "jax"
        if compiles:
            batch_size = min(batch_size, _JAX_BATCH_SIZE)
    else:
        by_name = served.of_saved_model(predictor.model)
        threads = threads or num_cores()
    sizes = [1 << power for power in range(batch_size.bit_length())]
    if predictor.cut_rows is not None:
        predictor.cut_rows.is_told = True
    served.warm_up(by_name[DEFAULT_SIGNATURE], sizes, longest, compiles=compiles)
    if predictor.cut_rows is not None:
        predictor.cut_rows.reset()  # From now on, it warns of the first row that is cut.
    cut_rows = predictor.cut_rows
    metrics = Metrics(
        lambda: batcher.waiting, None if cut_rows is None else lambda: int(cut_rows.num_cut)
    )
    batcher = Batcher(
        lambda name, rows: by_name[name].answer(rows),
        threads=threads,
        batch_size=batch_size,
        max_waiting=config.max_waiting_rows,
        report=metrics.add_batch,
    )
    folder = Path(config.model).absolute().name
    version = folder if folder.isdecimal() else "1"
    return ModelServer(
        config.name, version, by_name, batcher, metrics, config.max_rows, config.max_bytes
    )


def ready_text(config: ServeConfig, server: ModelServer, address: str) -> str:
    """Returns what to print when the server is ready: where it is, and a request."""
    model = f"{address}/v1/models/{config.name}"
    fields = tuple(server.signatures[DEFAULT_SIGNATURE].inputs)
    return "\n".join(
        [
            f"serving {config.model} at {model}; Ctrl-C ends it",
            f"metrics {address}/metrics",
            example_request.curl_command(
                fields, model, **output_folder.results_of(config.model).get("example", {})
            ),
        ]
    )


if __name__ == "__main__":
    program.run(main, ServeConfig)

# SPDX-License-Identifier: Apache-2.0
"""A server of models in a thread of a test."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping

from training.serve import listening
from training.serving import connections
from training.serving.application import application
from training.serving.metrics import Metrics
from training.serving.models import LoadedModel
from training.serving.server import ModelServer


@contextlib.contextmanager
def serving(models: Mapping[str, LoadedModel], max_rows: int, max_bytes: int) -> Iterator[int]:
    """Serves models by their names.

    Yields:
        The port on this machine.
    """
    server = ModelServer(models, Metrics(), max_rows=max_rows, max_bytes=max_bytes)
    uvicorn = connections.server(application(server), seconds_to_end=5)
    with listening("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=lambda: asyncio.run(uvicorn.serve(sockets=[listener])))
        thread.start()
        yield listener.getsockname()[1]
        uvicorn.should_exit = True
        thread.join()
    server.close()

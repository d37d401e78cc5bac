# SPDX-License-Identifier: Apache-2.0
"""Writes a JSON object per request to a file."""

from __future__ import annotations

import datetime
import json
import time
from typing import IO

from absl import logging
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class AccessLog:
    """An ASGI application that logs the requests to another application.

    A line has the time of the request, the client's address (`null` for a Unix socket), the method,
    the path, the status (`null` if the client closed the connection), the model, the bytes of the
    response and the seconds until its end. It has neither texts nor keys.

    Args:
        answer: The other application.
        file: The file, opened for writing.
    """

    def __init__(self, answer: ASGIApp, file: IO[str]) -> None:
        self._answer = answer
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        now, start = datetime.datetime.now(datetime.UTC), time.perf_counter()
        status, size = None, 0

        async def send_and_count(message: Message) -> None:
            nonlocal status, size
            status = message.get("status", status)
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._answer(scope, receive, send_and_count)
        finally:
            self._write(
                {
                    "time": now.isoformat(timespec="milliseconds"),
                    "client": (scope.get("client") or [None])[0],
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                    "model": scope["state"].get("model") or None,
                    "bytes": size,
                    "seconds": round(time.perf_counter() - start, 6),
                }
            )

    def _write(self, line: dict[str, object]) -> None:
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        except OSError as error:  # For example, when the disk is full
            logging.log_first_n(logging.ERROR, "--access_log cannot be written: %s", 1, error)

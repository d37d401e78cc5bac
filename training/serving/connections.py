# SPDX-License-Identifier: Apache-2.0
"""The connections of a server: how many there are, and for how long one has no request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from socket import socket

import uvicorn
from uvicorn.protocols.http import h11_impl

# Seconds until a connection is closed on which no request has come
_SECONDS_FOR_REQUEST = 15
# Seconds for the body of a request that arrives when the server is told to end
_SECONDS_FOR_BODY_AT_END = 1
# Open files, half of which may be connections, which wait for a request or its answer
_MOST_FILES = 8192
# Connections that wait to be accepted, and that are accepted at a time
_WAITING, _ACCEPTED = 1024, 16


def server(application: object, seconds_to_end: int) -> uvicorn.Server:
    """Returns a server of an ASGI application."""
    return _Server(
        uvicorn.Config(
            application,
            http=_Connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            backlog=_ACCEPTED,
            limit_concurrency=_allow_files(_MOST_FILES) // 2,
            timeout_keep_alive=_SECONDS_FOR_REQUEST,
            timeout_graceful_shutdown=seconds_to_end,
        )
    )


def _allow_files(number: int) -> int:
    """Lets the process open that many files, or as many as it may; returns the number."""
    try:
        import resource
    except ImportError:  # on Windows, which does not limit sockets so
        return number
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        number = min(number, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, most))
    return number


class _Server(uvicorn.Server):
    async def startup(self, sockets: Sequence[socket] = ()) -> None:
        await super().startup(sockets)
        # asyncio accepts as many connections at once as may wait, before it closes any.
        for listener in sockets:
            listener.listen(_WAITING)


class _Connection(h11_impl.H11Protocol):
    """A connection that is closed if no request comes in `timeout_keep_alive` seconds.

    uvicorn counts them only after an answer, and not before the first request. Besides, if half of
    `limit_concurrency` connections are open, the one that has been without a request for longest is
    closed for a new one; and a client that closes its side after a request gets its answer.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )
        if len(self.connections) > self.limit_concurrency // 2:
            waiting = [each for each in self.connections if each.timeout_keep_alive_task]
            oldest = min(waiting, key=lambda each: each.timeout_keep_alive_task.when())
            if oldest is not self:
                oldest.timeout_keep_alive_handler()
                oldest.timeout_keep_alive_task = None

    def _unset_keepalive_if_required(self) -> None:
        # Neither a part of a header nor the rest of a refused body gives a client more time.
        if self.conn.our_state is h11_impl.h11.SEND_RESPONSE:
            super()._unset_keepalive_if_required()

    def eof_received(self) -> bool:
        is_answering = self._is_answering(more_body=False)
        if is_answering:
            self.cycle.keep_alive = False
        return is_answering

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(_SECONDS_FOR_BODY_AT_END, self._close_without_body)

    def _close_without_body(self) -> None:
        if self._is_answering(more_body=True):
            self.transport.close()

    def _is_answering(self, *, more_body: bool) -> bool:
        """Returns whether there is a request without an answer, and more of its body to come."""
        cycle = self.cycle
        return bool(cycle and not cycle.response_complete and cycle.more_body is more_body)

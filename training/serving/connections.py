# SPDX-License-Identifier: Apache-2.0
"""Limits the number of connections and closes idle connections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from socket import socket

import uvicorn
from uvicorn.protocols.http import h11_impl

# A connection without a request is closed after this number of seconds.
_SECONDS_FOR_REQUEST = 15
# A connection whose client reads nothing from its response is closed after this number of seconds.
_SECONDS_FOR_READING = 60
# Number of seconds to wait for request bodies while the server stops
_SECONDS_FOR_BODY_AT_END = 1
# Maximum number of open files. Half of them can be connections.
_MOST_FILES = 8192
# Maximum numbers of waiting connections and simultaneously accepted connections
_WAITING, _ACCEPTED = 1024, 16


def server(
    application: object, seconds_to_end: int, certificate: str = "", key: str = ""
) -> uvicorn.Server:
    """Returns a server for an ASGI application.

    Args:
        application: The application.
        seconds_to_end: Number of seconds to wait for running requests when the server stops.
        certificate: The PEM file with the certificate for TLS. Empty for no encryption.
        key: The PEM file with the certificate's key. Empty if it is in `certificate`.
    """
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
            ssl_certfile=certificate or None,
            ssl_keyfile=key or None,
        )
    )


def _allow_files(number: int) -> int:
    """Raises the limit of open files to `number` if possible, and returns the new limit."""
    try:
        import resource
    except ImportError:  # Windows does not limit the number of sockets in this way.
        return number
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        number = min(number, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, most))
    return number


class _Server(uvicorn.Server):
    async def startup(self, sockets: Sequence[socket] = ()) -> None:
        await super().startup(sockets)
        # asyncio uses `backlog` for both numbers, so set the number of waiting connections here.
        for listener in sockets:
            listener.listen(_WAITING)


class _Connection(h11_impl.H11Protocol):
    """A connection that closes unless a request arrives within `timeout_keep_alive` seconds.

    uvicorn applies this timeout only after a response, not before the first request. In addition,
    if half of `limit_concurrency` connections are open, a new connection closes the connection that
    has been idle for longest. A client that closes its side after a request still gets the
    response. A client that does not read its response is disconnected, because the response stays
    in memory until then.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # `pause_writing` is called if anything is unread. TLS connections never resume with 0.
        transport.set_write_buffer_limits(1)
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
        # Partial headers and rejected bodies do not extend the timeout.
        if self.conn.our_state is h11_impl.h11.SEND_RESPONSE:
            super()._unset_keepalive_if_required()

    def eof_received(self) -> bool:
        is_answering = self._is_answering(more_body=False)
        if is_answering:
            self.cycle.keep_alive = False
        # TLS connections cannot be closed on only one side.
        return is_answering and self.scheme == "http"

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading_check = self.loop.call_later(
            _SECONDS_FOR_READING, self._check_reading, self.transport.get_write_buffer_size()
        )

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reading_check.cancel()

    def _check_reading(self, previous_size: int) -> None:
        size = self.transport.get_write_buffer_size()
        if size == previous_size:
            self.transport.abort()
        elif self.flow.write_paused:  # The connection may have been lost.
            self._reading_check = self.loop.call_later(
                _SECONDS_FOR_READING, self._check_reading, size
            )

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(_SECONDS_FOR_BODY_AT_END, self._close_without_body)

    def _close_without_body(self) -> None:
        if self._is_answering(more_body=True):
            self.transport.close()

    def _is_answering(self, *, more_body: bool) -> bool:
        """Returns whether a response is pending and the body's state is `more_body`."""
        cycle = self.cycle
        return bool(cycle and not cycle.response_complete and cycle.more_body is more_body)

# SPDX-License-Identifier: Apache-2.0
"""Where a server listens: its flags, its socket and its log."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import ipaddress
import os
import re
import signal
import socket
import ssl
import stat
import sys
from collections.abc import Iterator
from typing import IO

from ..engine import example_request
from ..engine.options import CommandConfig, NonNegativeInt, UnusedFlags

LIBRARIES = ("starlette", "uvicorn", "prometheus_client")
_PORTS = 1 << 16
# An origin as browsers send it
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?|https?://\[[0-9a-f:]+\](:[0-9]+)?")
# The environment variable of the API key
API_KEY = "KERAS_BERT_API_KEY"
# Number of seconds to wait for running requests when the server stops
_SECONDS_TO_END = 30


@dataclasses.dataclass(frozen=True)
class ServerConfig(CommandConfig):
    """The address, and who may send requests.

    Args:
        host: The address to listen on. 0.0.0.0 listens on all network interfaces.
        port: The port. 0 uses a free port.
        unix_socket: A file for a Unix socket, to listen on instead of a host and a port. Only this
            user can connect, unless the umask allows others to write.
        tls_certificate: A PEM file with a certificate and its chain, to encrypt connections.
        tls_key: The PEM file with the certificate's key. Defaults to tls_certificate.
        api_key: The bearer token that requests must have. Defaults to the environment variable
            KERAS_BERT_API_KEY. Unlike the flag, other users of this machine do not see it in the
            list of processes. Empty disables authentication.
        allowed_origins: The other sites whose pages may send requests, separated by commas, for
            example https://app.example,http://localhost:3000. By default, none may (CORS).
        access_log: A file to which a JSON object is appended for each request, without its texts,
            or - for standard output. Empty for no log.
    """

    host: str = example_request.DEFAULT_HOST
    port: NonNegativeInt = example_request.DEFAULT_PORT
    unix_socket: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    api_key: str = dataclasses.field(default="", repr=False)
    allowed_origins: tuple[str, ...] = ()
    access_log: str = ""

    def unused_flags(self) -> UnusedFlags:
        yield from super().unused_flags()
        if self.unix_socket:
            yield ["host", "port"], "--unix_socket is given"
        if not self.tls_certificate:
            yield ["tls_key"], "--tls_certificate is not given"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.port >= _PORTS:
            raise ValueError(f"--port must be a number below {_PORTS}. Received: {self.port}")
        if not self.api_key and os.environ.get(API_KEY) == "":
            raise ValueError(
                f"The environment variable {API_KEY} must be a key. Received: an empty string. "
                "Unset it to accept requests without a key"
            )
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    "--allowed_origins must be sites as in the header Origin, such as "
                    f"https://app.example, without a path. Received: {origin!r}"
                )

    @property
    def key(self) -> str:
        """The API key, by the flag or the environment variable."""
        return self.api_key or os.environ.get(API_KEY, "")


@dataclasses.dataclass(frozen=True)
class Listener:
    """An opened socket.

    Args:
        socket: The socket.
        config: The server's flags.
        access_log: The file for the access log, if any.
    """

    socket: socket.socket
    config: ServerConfig
    access_log: IO[str] | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect.

        A Unix socket is not local, because a proxy connects to it for other clients.
        """
        if self.config.unix_socket:
            return False
        return ipaddress.ip_address(self.socket.getsockname()[0]).is_loopback

    @property
    def address(self) -> str:
        """The server's URL, without a path."""
        scheme = "https" if self.config.tls_certificate else "http"
        if self.config.unix_socket:
            return f"{scheme}://localhost"
        host, port = self.socket.getsockname()[:2]
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self, application: object, ready_text: str) -> None:
        """Serves an ASGI application until a signal stops the process.

        Then the received requests are finished. `ready_text` is printed as soon as signals stop the
        server gracefully.
        """
        from . import connections

        certificate, key = self.config.tls_certificate, self.config.tls_key
        http = connections.server(application, _SECONDS_TO_END, certificate, key)
        # From now on, Ctrl-C and SIGTERM stop the server gracefully, with exit status 0.
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, http.handle_exit)
        print(ready_text, flush=True)
        asyncio.run(http.serve(sockets=[self.socket]))


@contextlib.contextmanager
def listening(config: ServerConfig) -> Iterator[Listener]:
    """Opens the socket and the log before the model is loaded, so that invalid flags fail at once.

    Raises:
        OSError: If the socket or the log cannot be opened.
        ValueError: If the certificate or its key cannot be read.
    """
    check_tls(config)
    path = config.unix_socket
    opened = _listening_on_file(path) if path else _listening_on_port(config.host, config.port)
    with _opened_log(config.access_log) as access_log, opened as new_socket:
        yield Listener(new_socket, config, access_log)


@contextlib.contextmanager
def _opened_log(path: str) -> Iterator[IO[str] | None]:
    if path in ("", "-"):
        yield sys.stdout if path else None
        return
    with open(path, "a", encoding="utf-8") as file:
        yield file


def check_tls(config: ServerConfig) -> None:
    """Checks the certificate and its key.

    Raises:
        ValueError: If they cannot be read, or do not belong together.
    """
    if not config.tls_certificate:
        return
    files = config.tls_certificate, config.tls_key or None
    try:
        # OpenSSL would ask for the password of an encrypted key.
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*files, password="")
    except (OSError, ValueError) as error:
        flags = f"--tls_certificate={files[0]}" + (f" --tls_key={files[1]}" if files[1] else "")
        raise ValueError(
            "--tls_certificate and --tls_key must be PEM files with a certificate and its key, "
            f"without a password. Received: {flags} ({error})"
        ) from error


@contextlib.contextmanager
def _listening_on_file(path: str) -> Iterator[socket.socket]:
    """Opens a Unix socket, and removes its file at the end.

    A file that a killed server left behind is replaced.

    Raises:
        OSError: If the socket cannot be opened, for example because another server uses it.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise OSError(f"--unix_socket must be used on Linux or macOS. Received: {path}")
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            if os.path.exists(path) and not _is_in_use(path):
                os.unlink(path)
            listener.bind(path)
            listener.listen()
        except OSError as error:
            raise OSError(f"--unix_socket={path}: {error.strerror or error}") from error
        try:
            yield listener
        finally:
            os.unlink(path)


def _is_in_use(path: str) -> bool:
    """Returns whether a file is a socket on which a process listens, or not a socket."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return not stat.S_ISSOCK(os.stat(path).st_mode)
    return True


def _listening_on_port(host: str, port: int) -> socket.socket:
    """Opens a socket on a port.

    Raises:
        OSError: If the socket cannot be opened, for example because the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        new_socket = socket.create_server((host, port), family=family)
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        other = ". Pass --port=0 to use a free port" if is_taken else ""
        reason = str(error.strerror).partition(" (")[0]
        raise OSError(f"--host={host} --port={port}: {reason}{other}") from error
    # asyncio sets TCP_NODELAY only if the socket has an explicit protocol. Without TCP_NODELAY, the
    # last packet of a response waits 40 ms for the client to acknowledge the previous packets.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, new_socket.detach())

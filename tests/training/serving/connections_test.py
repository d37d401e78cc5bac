# SPDX-License-Identifier: Apache-2.0
"""Connections without a request, with a partial request, and closed for sending."""

import asyncio
import contextlib
import http.client
import logging
import socket
import ssl
import subprocess
import threading
import time

import pytest

pytest.importorskip("uvicorn")

from training.serving import connections
from training.serving.address import ServerConfig, check_tls, listening

pytestmark = pytest.mark.backend_independent

HEADER = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n"
SECONDS = 1


def read_response(client):
    response = http.client.HTTPResponse(client)
    response.begin()
    return response.read()


async def echo(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    await asyncio.sleep(0.2)
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def run_server(server, listener):
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield thread
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def running_server(monkeypatch):
    """A server with few connections, its thread, and a function that connects to it."""
    monkeypatch.setattr(connections, "_SECONDS_FOR_REQUEST", SECONDS)
    monkeypatch.setattr(connections, "_allow_files", lambda number: 64)
    server = connections.server(echo, seconds_to_end=20)
    with (
        listening(ServerConfig(port=0)) as listener,
        contextlib.ExitStack() as stack,
        run_server(server, listener.socket) as thread,
    ):

        def connect(sent=b""):
            address = listener.socket.getsockname()
            client = stack.enter_context(socket.create_connection(address, timeout=10))
            client.sendall(sent)
            return client

        yield server, thread, connect


def test_connection_without_full_header_is_closed(running_server):
    *_, connect = running_server
    idle, slow = connect(), connect(HEADER[:5])
    slow.settimeout(0.1)
    end = time.monotonic() + 10 * SECONDS
    with contextlib.suppress(ConnectionError):
        while time.monotonic() < end:
            slow.sendall(b"a")
            with contextlib.suppress(TimeoutError):
                if not slow.recv(1):
                    break
    assert time.monotonic() < end
    assert idle.recv(1) == b""


def test_idle_connections_are_closed_for_others(running_server):
    *_, connect = running_server
    busy = connect(HEADER)
    time.sleep(0.1)
    idle = [connect(HEADER[:5]) for _ in range(100)]
    client = connect(HEADER + b"more")
    assert read_response(client) == b"more"
    busy.sendall(b"more")
    assert read_response(busy) == b"more"
    assert len(idle) == 100


def test_client_that_closes_sending_gets_response(running_server):
    *_, connect = running_server
    client = connect(HEADER + b"more")
    client.shutdown(socket.SHUT_WR)
    assert read_response(client) == b"more"
    assert client.recv(1) == b""
    partial = connect(HEADER + b"mo")
    partial.shutdown(socket.SHUT_WR)
    assert partial.recv(1000) == b""


def test_client_must_read_its_response(running_server, monkeypatch):
    *_, connect = running_server
    monkeypatch.setattr(connections, "_SECONDS_FOR_READING", 0.5)
    size = 16 * 2**20
    request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)
    silent, slow = connect(request), connect(request)
    response = http.client.HTTPResponse(slow)
    response.begin()
    parts = []
    for _ in range(16):
        parts.append(response.read(2**20))
        time.sleep(0.1)
    assert sum(map(len, parts)) == size
    with pytest.raises((ConnectionError, http.client.IncompleteRead)):
        read_response(silent)


def test_shutdown_waits_only_for_complete_requests(running_server, caplog):
    server, thread, connect = running_server
    partial, complete = connect(HEADER + b"mo"), connect(HEADER + b"more")
    time.sleep(0.1)
    with caplog.at_level(logging.WARNING):
        server.should_exit = True
        thread.join(10)
    assert not thread.is_alive()
    assert read_response(complete) == b"more"
    assert partial.recv(1000) == b""
    assert not caplog.records


def test_tls_and_unix_sockets_get_responses(tmp_path):
    path, certificate, key = (str(tmp_path / name) for name in ("socket", "cert.pem", "key.pem"))
    command = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost"
    files = ["-keyout", key, "-out", certificate]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    with pytest.raises(ValueError, match=r"must be PEM files .* Received: .*--tls_key=.*cert\.pem"):
        check_tls(ServerConfig(tls_certificate=certificate, tls_key=certificate))
    check_tls(ServerConfig(tls_certificate=certificate, tls_key=key))
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(path)  # leaves a file behind
    server = connections.server(echo, 20, certificate, key)
    config = ServerConfig(unix_socket=path)
    with listening(config) as listener, run_server(server, listener.socket):
        with (
            pytest.raises(OSError, match=f"--unix_socket={path}: Address already in use"),
            listening(config),
        ):
            pass
        context = ssl.create_default_context(cafile=certificate)
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            with context.wrap_socket(connection, server_hostname="localhost") as client:
                client.sendall(HEADER + b"more")
                assert read_response(client) == b"more"
    assert list(tmp_path.glob("socket")) == []

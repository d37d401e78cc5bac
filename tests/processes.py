# SPDX-License-Identifier: Apache-2.0
"""Child processes of Python that need not import TensorFlow, which takes five seconds.

A server imports what programs need, and forks for each program, which begins as a process that has
made these imports and done nothing else. `tests.run` and the legs that it starts share their
servers. Tests of imports, and of what is printed while they are made, start processes of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from training.costs import energy

with contextlib.suppress(ImportError):  # on Windows
    import fcntl

# As of `subprocess`, whose place this module takes in what starts programs
PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL

# Whether there are servers; elsewhere, programs import what they need themselves
FORKS = hasattr(os, "fork")
Command = Sequence[str | os.PathLike[str]]
File = IO[Any] | int | None
# PyTorch's builds for CUDA bring it. Imported after TensorFlow, as by transformers, it ends the
# process: "LLVM ERROR: inconsistency in registered CommandLine options".
BEFORE_TENSORFLOW = "triton"
# What those have who serve a SavedModel
TENSORFLOW = ("tensorflow", "tensorflow_text")
# What the programs of `training` import
PROGRAMS = (
    *(BEFORE_TENSORFLOW, *TENSORFLOW, "keras_bert", "training.engine.finetuning"),
    *("sklearn.metrics", "matplotlib.pyplot", "codecarbon"),
)
# The libraries of other formats may be missing
PROGRAMS_AND_EXPORTS = (
    *(*PROGRAMS, "keras_bert.export.formats", "keras_bert.export.saved_model"),
    *("nncf", "onnxruntime", "openvino", "openvino_tokenizers", "tf2onnx"),
    *("keras_bert.export.openvino_text", "tensorflow_serving.apis.prediction_log_pb2"),
)


def is_running(process: int) -> bool:
    """Whether a process has not ended, be it that nobody has waited for it."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rsplit(") ", 1)[1][0] != "Z"


class ServedProcess:
    """What `subprocess.Popen` can do of a process that a server has started.

    Args:
        server: The server.
        pid: The id of the process.
        pipes: Our ends of its pipes.
    """

    def __init__(self, server: ProcessServer, pid: int, pipes: Mapping[str, IO[str]]) -> None:
        self.pid = pid
        self.stdin, self.stdout, self.stderr = map(pipes.get, ("stdin", "stdout", "stderr"))
        self._server = server
        self._returncode: int | None = None

    def poll(self) -> int | None:
        """Returns the exit status, or `None` as long as it runs."""
        return None if is_running(self.pid) else self.wait()

    def send_signal(self, number: int) -> None:
        """Sends a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it, unless it has ended."""
        if self._returncode is None:
            self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Waits for its end, and returns the exit status."""
        if self._returncode is None:
            self._returncode = self._server.ask({"wait": self.pid})
        return self._returncode

    def communicate(self) -> None:
        """Waits for its end, and closes the pipes."""
        self.wait()
        for pipe in filter(None, (self.stdin, self.stdout, self.stderr)):
            pipe.close()


class ProcessServer:
    """Starts processes that have imported some libraries.

    The imports are made once for all who ask for the same: a process that has made them forks for
    each of these objects, and its child for each program. One thread may use an object at a time.

    Args:
        imports: The libraries; those that are missing are left out.
        environment: The variables that matter when they are imported, such as `KERAS_BACKEND`.
    """

    def __init__(self, imports: Sequence[str], environment: Mapping[str, str]) -> None:
        address = _listening(imports, environment)
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(os.fspath(address))

    def ask(self, request: Mapping[str, Any], files: Sequence[IO[Any]] = ()) -> int:
        """Sends a request with open files, and returns the answer.

        Raises:
            RuntimeError: If the server has ended.
        """
        descriptors = [file.fileno() for file in files]
        socket.send_fds(self._connection, [json.dumps(request).encode()], descriptors)
        answer = self._connection.recv(_LARGEST)
        if not answer:
            raise RuntimeError("a server of processes has ended")
        return int(answer)

    def start(
        self,
        command: Command,
        *,
        stdin: File = None,
        stdout: File = None,
        stderr: File = None,
        cwd: str | os.PathLike[str] = ".",
        env: Mapping[str, str] | None = None,
        text: bool = True,
    ) -> ServedProcess:
        """Starts a program.

        Args:
            command: As for `subprocess.run`: this Python, `-c` or `-m`, and what follows.
            stdin, stdout, stderr: Open files, `PIPE` or `DEVNULL`, the default.
            cwd, env: As for `subprocess.run`.
            text: What pipes are of.
        """
        python, *arguments = map(os.fspath, command)
        assert python == sys.executable
        assert text
        request = {
            "arguments": arguments,
            "cwd": os.path.abspath(cwd),
            "env": dict(os.environ if env is None else env),
        }
        pipes: dict[str, IO[str]] = {}
        files: list[IO[Any]] = []
        with contextlib.ExitStack() as opened:
            for name, file in {"stdin": stdin, "stdout": stdout, "stderr": stderr}.items():
                if file == PIPE:
                    modes = ("r", "w") if name == "stdin" else ("w", "r")
                    ends = os.pipe() if name == "stdin" else os.pipe()[::-1]
                    theirs, ours = map(open, ends, modes)
                    pipes[name] = ours
                    files.append(opened.enter_context(theirs))
                elif isinstance(file, int | None):
                    files.append(opened.enter_context(open(os.devnull, "r+b")))
                else:
                    files.append(file)
            return ServedProcess(self, self.ask(request, files), pipes)

    def run(
        self,
        command: Command,
        *,
        input: str = "",
        check: bool = False,
        cwd: str | os.PathLike[str] = ".",
        env: Mapping[str, str] | None = None,
        **_: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end, as `subprocess.run` with captured text."""
        with contextlib.ExitStack() as opened:
            stdin, stdout, stderr = (
                opened.enter_context(
                    tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
                )
                for _ in range(3)
            )
            stdin.write(input)
            stdin.seek(0)
            process = self.start(
                command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env
            )
            status = process.wait()
            written = []
            for file in (stdout, stderr):
                file.seek(0)
                written.append(file.read())
        finished = subprocess.CompletedProcess(command, status, *written)
        if check:
            finished.check_returncode()
        return finished

    def close(self) -> None:
        """Ends the use of the server."""
        self._connection.close()


# The folder of the servers' sockets, for a process and for the programs that it starts
FOLDER = "KERAS_BERT_TEST_SERVERS"
_OWNER = "owner"
_LARGEST = 1 << 17
# Those that this process has started, and its connections
_STARTED: list[subprocess.Popen[bytes]] = []
_SERVERS: dict[tuple[tuple[str, ...], str], ProcessServer] = {}


def share() -> None:
    """Makes servers, from now on, those of this process and of all that it starts."""
    if FOLDER not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp()
        Path(os.environ[FOLDER], _OWNER).write_text(str(os.getpid()))


def _listening(imports: Sequence[str], environment: Mapping[str, str]) -> Path:
    """The address of a server with these imports, which is started if there is none."""
    share()
    kind = json.dumps([environment["KERAS_BACKEND"], *imports])
    address = Path(os.environ[FOLDER], hashlib.sha256(kind.encode()).hexdigest()[:16])
    with open(f"{address}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not address.exists():
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, address, *imports],
                cwd=Path(__file__).parents[1],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            _STARTED.append(process)
            while not address.exists():
                if process.poll() is not None:
                    raise RuntimeError(f"a server of processes ended with {process.returncode}")
                time.sleep(0.01)
    return address


def server_for(
    imports: tuple[str, ...] = PROGRAMS, env: Mapping[str, str] | None = None
) -> ProcessServer:
    """A server of processes that have made these imports, with the backend of `env`."""
    environment = os.environ if env is None else env
    if imports == PROGRAMS and environment["KERAS_BACKEND"] == "tensorflow":
        imports = PROGRAMS_AND_EXPORTS  # which run on it
    return ProcessServer(imports, environment)


def server(
    imports: tuple[str, ...] = PROGRAMS, env: Mapping[str, str] | None = None
) -> ProcessServer:
    """The server of this process with these imports and the backend of `env`."""
    kind = imports, (os.environ if env is None else env)["KERAS_BACKEND"]
    if kind not in _SERVERS:
        _SERVERS[kind] = server_for(imports, env)
    return _SERVERS[kind]


def close() -> None:
    """Ends the use of all servers, and the servers if nobody else may use them."""
    while _SERVERS:
        _SERVERS.popitem()[1].close()
    folder = os.environ.get(FOLDER)
    if folder and int(Path(folder, _OWNER).read_text()) == os.getpid():
        # Those that others have started see that their address is gone
        shutil.rmtree(folder)
        del os.environ[FOLDER]
        while _STARTED:
            process = _STARTED.pop()
            process.kill()
            process.wait()


def run(
    command: Command,
    *,
    imported: tuple[str, ...] = PROGRAMS,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Runs a program as `subprocess.run` with captured text, in a process with these imports."""
    if not FORKS:
        options = {"capture_output": True, "text": True, **options}
        return subprocess.run(command, env=env, **options)
    return server(imported, env).run(command, env=env, **options)


def Popen(
    command: Command, *, env: Mapping[str, str] | None = None, **options: Any
) -> ServedProcess | subprocess.Popen[Any]:
    """Starts a program as `subprocess.Popen`."""
    if not FORKS:
        return subprocess.Popen(command, env=env, **options)
    return server(env=env).start(command, env=env, **options)


def _accept(address: Path) -> socket.socket | None:
    """Forks for each connection; returns it in the child, and at the end nothing in the parent."""
    owner = int((address.parent / _OWNER).read_text())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        not_yet = address.with_suffix(".new")
        listener.bind(os.fspath(not_yet))
        listener.listen()
        listener.settimeout(1)
        not_yet.rename(address)
        while address.exists() and is_running(owner):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            if not os.fork():
                return connection
            connection.close()
    return None


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """Answers requests until the last; in the process of a program, returns its request."""
    while True:
        content, descriptors, _, _ = socket.recv_fds(connection, _LARGEST, 3)
        if not content:
            return None
        request = json.loads(content)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                return {**request, "descriptors": descriptors}
            for descriptor in descriptors:
                os.close(descriptor)
        connection.send(str(answer).encode())


def _become(request: dict[str, Any]) -> None:
    """Makes this process that of a program, and runs it."""
    for standard, descriptor in enumerate(request["descriptors"]):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    option, program, *arguments = request["arguments"]
    sys.path[0] = "" if option == "-c" else request["cwd"]
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [option if option == "-c" else program, *arguments]
    status = 1
    try:
        if option == "-c":
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        else:
            assert option == "-m"
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as error:
        if isinstance(error.code, int | None):
            status = error.code or 0
        else:
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main(address: str, *imports: str) -> None:
    """Is a server until it is not needed any more."""
    for name in imports:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "codecarbon" in sys.modules:
        # A process that meters its energy looks for the processor's model first, for a second.
        with energy.energy_meter("FRA"):
            pass
    if connection := _accept(Path(address)):
        with connection:
            asked = _serve(connection)
        if asked:
            _become(asked)
    # At its end a library would wait for its threads
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])

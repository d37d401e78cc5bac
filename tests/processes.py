# SPDX-License-Identifier: Apache-2.0
"""Child processes of Python that need not import TensorFlow, which takes five seconds.

A server imports what programs need, and forks for each program, which begins as a process that has
made these imports and done nothing else. Tests of imports, and of what is printed while they are
made, start processes of their own.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from training.costs import energy

Command = Sequence[str | os.PathLike[str]]
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
    """

    def __init__(self, server: ProcessServer, pid: int) -> None:
        self.pid = pid
        self._server = server
        self._returncode: int | None = None

    def poll(self) -> int | None:
        """Returns the exit status, or `None` as long as it runs."""
        return None if is_running(self.pid) else self.wait()

    def send_signal(self, number: int) -> None:
        """Sends a signal."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """Waits for its end, and returns the exit status."""
        if self._returncode is None:
            self._returncode = self._server.ask(wait=self.pid)
        return self._returncode


class ProcessServer:
    """Starts processes that have imported some libraries.

    Args:
        imports: The libraries; those that are missing are left out.
        environment: The variables that matter when they are imported, such as `KERAS_BACKEND`.
    """

    def __init__(self, imports: Sequence[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *imports],
            cwd=Path(__file__).parents[1],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, **request: Any) -> int:
        """Sends a request, and returns the answer.

        Raises:
            RuntimeError: If the server has ended.
        """
        assert self._process.stdin
        assert self._process.stdout
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"a server of processes ended with {self._process.wait()}")
        return int(answer)

    def start(
        self,
        command: Command,
        *,
        stdin: str = os.devnull,
        stdout: str = os.devnull,
        stderr: str = os.devnull,
        cwd: str | os.PathLike[str] = ".",
        env: Mapping[str, str] | None = None,
    ) -> ServedProcess:
        """Starts a program.

        Args:
            command: As for `subprocess.run`: this Python, `-c` or `-m`, and what follows.
            stdin, stdout, stderr: Paths of files. Output goes to their ends.
            cwd, env: As for `subprocess.run`.
        """
        python, *arguments = map(os.fspath, command)
        assert python == sys.executable
        process = self.ask(
            arguments=arguments,
            files=[stdin, stdout, stderr],
            cwd=os.path.abspath(cwd),
            env=dict(os.environ if env is None else env),
        )
        return ServedProcess(self, process)

    def close(self) -> None:
        """Ends the server."""
        self._process.kill()
        self._process.communicate()

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
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
            files[0].write_text(input)
            stdin, stdout, stderr = map(os.fspath, files)
            process = self.start(
                command, stdin=stdin, stdout=stdout, stderr=stderr, cwd=cwd, env=env
            )
            status = process.wait()
            written = [path.read_text(encoding="utf-8", errors="replace") for path in files[1:]]
        finished = subprocess.CompletedProcess(command, status, *written)
        if check:
            finished.check_returncode()
        return finished


_SERVERS: dict[tuple[tuple[str, ...], str], ProcessServer] = {}


def server(
    imports: tuple[str, ...] = PROGRAMS, env: Mapping[str, str] | None = None
) -> ProcessServer:
    """The server of processes that have made these imports, with the backend of `env`."""
    environment = os.environ if env is None else env
    backend = environment["KERAS_BACKEND"]
    if imports == PROGRAMS and backend == "tensorflow":
        imports = PROGRAMS_AND_EXPORTS  # which run on it
    if (imports, backend) not in _SERVERS:
        _SERVERS[imports, backend] = ProcessServer(imports, environment)
    return _SERVERS[imports, backend]


def close() -> None:
    """Ends all servers."""
    while _SERVERS:
        _SERVERS.popitem()[1].close()


def run(
    command: Command,
    *,
    imported: tuple[str, ...] = PROGRAMS,
    env: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Runs a program as `subprocess.run` with captured text, in a process with these imports."""
    return server(imported, env).run(command, env=env, **options)


def _serve() -> dict[str, Any] | None:
    """Answers requests until the last; in the process of a program, returns its request."""
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            print(os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1]), flush=True)
            continue
        process = os.fork()
        if not process:
            return request
        print(process, flush=True)
    return None


def _become(request: dict[str, Any]) -> None:
    """Makes this process that of a program, and runs it."""
    modes = os.O_RDONLY, *[os.O_WRONLY | os.O_CREAT | os.O_APPEND] * 2
    for descriptor, (path, mode) in enumerate(zip(request["files"], modes, strict=True)):
        os.dup2(os.open(path, mode), descriptor)
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
        # At its end a library would wait for threads that it had in the server
        os._exit(status)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "codecarbon" in sys.modules:
        # A process that meters its energy looks for the processor's model first, for a second.
        with energy.energy_meter("FRA"):
            pass
    if (asked := _serve()) is not None:
        _become(asked)

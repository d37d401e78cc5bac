# SPDX-License-Identifier: Apache-2.0
"""Starts processes on this machine that act as multiple hosts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.source_imports import ROOT

# If a process does not finish in this time, the test fails.
SECONDS = 900


def free_port() -> int:
    """Returns an unused local port."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


class HostProcesses:
    """Processes that run a command as multiple hosts. They write their output to files.

    Args:
        command: The Python arguments of each process, without the flags that connect them.
        count: The number of processes.
        directory: The output directory.
        environment: A function that maps a process index to additional environment variables. If it
            is given, no flags are added to the command.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        directory: Path,
        environment: Callable[[int], dict[str, str]] | None = None,
    ) -> None:
        address = f"--coordinator=localhost:{free_port()}"
        self.outputs = [directory / f"process_{number}.txt" for number in range(count)]
        self.processes = []
        for number, output in enumerate(self.outputs):
            connection_flags = [address, f"--num_processes={count}", f"--process_id={number}"]
            variables = {} if environment is None else environment(number)
            with open(output, "w") as file:
                self.processes.append(
                    subprocess.Popen(
                        [
                            sys.executable,
                            *command,
                            *(connection_flags if environment is None else []),
                        ],
                        cwd=ROOT,
                        # Each process has a single device, whatever this one has.
                        env=os.environ
                        | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
                        | variables,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                    )
                )

    def wait(self) -> list[int]:
        """Waits until all processes have stopped, and returns their exit statuses."""
        try:
            return [process.wait(SECONDS) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()

    def are_running(self) -> bool:
        """Returns whether all processes are running."""
        return all(process.poll() is None for process in self.processes)

    def kill(self, number: int) -> None:
        """Kills a process with SIGKILL."""
        self.processes[number].kill()

    def read_outputs(self) -> list[str]:
        """Returns the output of each process."""
        return [path.read_text(errors="replace") for path in self.outputs]

# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of several hosts on this machine, which exchange messages as hosts do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.source_imports import ROOT

# A process that hangs fails the test instead.
SECONDS = 900


def free_port() -> int:
    """Returns a port that no process of this machine uses."""
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return int(listener.getsockname()[1])


class HostProcesses:
    """The processes of a command on several hosts; their output goes to files.

    Args:
        command: The arguments of Python for each process, without the flags of its place.
        count: The number of processes.
        folder: The folder of the output.
        environment: Returns further variables of a process, from its number; then no flags are
            added to the command.
    """

    def __init__(
        self,
        command: Sequence[str],
        count: int,
        folder: Path,
        environment: Callable[[int], dict[str, str]] | None = None,
    ) -> None:
        address = f"--coordinator=localhost:{free_port()}"
        self.outputs = [folder / f"process_{number}.txt" for number in range(count)]
        self.processes = []
        for number, output in enumerate(self.outputs):
            place = [address, f"--num_processes={count}", f"--process_id={number}"]
            own = {} if environment is None else environment(number)
            with open(output, "w") as file:
                self.processes.append(
                    subprocess.Popen(
                        [sys.executable, *command, *(place if environment is None else [])],
                        cwd=ROOT,
                        # Each process has a single device, whatever this one has.
                        env=os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"} | own,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                    )
                )

    def wait(self) -> list[int]:
        """Waits until all have ended, and returns their exit statuses."""
        try:
            return [process.wait(SECONDS) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()

    def are_running(self) -> bool:
        """Returns whether none has ended."""
        return all(process.poll() is None for process in self.processes)

    def kill(self, number: int) -> None:
        """Kills a process, which cannot do anything about it."""
        self.processes[number].kill()

    def printed(self) -> list[str]:
        """Returns what each has printed."""
        return [path.read_text(errors="replace") for path in self.outputs]

# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C: it ends a program in a line, and a training run after a last checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import output_folder

INTERRUPTED = 130
NOTHING = "nothing had been written yet"
# How long to wait after Ctrl-C for Python to raise KeyboardInterrupt, which native code can delay.
_SECONDS_TO_END = 1.0


class _Deferral:
    """Whether the next Ctrl-C is one that the program itself answers."""

    is_active = False

    def takes_one(self) -> bool:
        was_active, self.is_active = self.is_active, False
        return was_active


_deferral = _Deferral()


@contextlib.contextmanager
def deferred(is_possible: bool = True) -> Iterator[Callable[[], bool]]:
    """Leaves the first Ctrl-C to the program, which then writes a checkpoint; the next ends it.

    Args:
        is_possible: Whether to do so; not on several hosts, which write checkpoints together.

    Yields:
        A function that returns whether Ctrl-C was pressed.

    Raises:
        KeyboardInterrupt: At the end, if it was.
    """
    pressed = threading.Event()
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (is_possible and is_default and threading.current_thread() is threading.main_thread()):
        yield pressed.is_set
        return

    def handle(number: int, frame: Any) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()
        print(
            "\nafter this step, a checkpoint is written; Ctrl-C again ends at once",
            file=sys.stderr,
            flush=True,
        )

    _deferral.is_active = True
    signal.signal(signal.SIGINT, handle)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _deferral.is_active = False
    if pressed.is_set():
        raise KeyboardInterrupt


class InterruptWatch:
    """Ends the process after Ctrl-C, even while native code keeps Python from handling it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        read, write = os.pipe()
        if hasattr(os, "set_blocking"):  # on Windows since Python 3.12, and not required there
            os.set_blocking(write, False)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(read,), daemon=True).start()

    def _watch(self, read: int) -> None:
        while os.read(read, 1) != bytes([signal.SIGINT]) or _deferral.takes_one():
            pass
        folders = output_folder.locked_folders()
        time.sleep(_SECONDS_TO_END)
        self.end(output_folder.kept(folders[0]) if folders else NOTHING)

    def end(self, what_is_left: str) -> None:
        """Prints one line and ends the process without waiting for other threads."""
        self._lock.acquire()  # never released: a second caller blocks until the process ends
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            print(f"\ninterrupted: {what_is_left}", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)

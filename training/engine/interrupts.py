# SPDX-License-Identifier: Apache-2.0
"""Handles Ctrl-C and SIGTERM. Commands stop with one line, and training after a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from . import output_directory

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTHING = "no results were written"
# How long to wait after Ctrl-C for Python's KeyboardInterrupt. Native code may delay it.
_SECONDS_TO_END = 1.0


# Set if `defer_interrupt` handles the next Ctrl-C
_is_deferred = threading.Event()
_ending = threading.Lock()


def announce() -> None:
    """Prints that the process stops after a checkpoint."""
    print(
        "\na checkpoint is written after this step. Press Ctrl-C again to stop at once",
        file=sys.stderr,
        flush=True,
    )


@contextlib.contextmanager
def defer_interrupt(
    is_possible: bool = True, act: Callable[[], None] = announce
) -> Iterator[Callable[[], bool]]:
    """Defers the first Ctrl-C, so that the command can write a checkpoint. The second one stops it.

    SIGTERM counts as the first Ctrl-C, because schedulers send it before they kill a process.

    Args:
        is_possible: Whether to defer Ctrl-C. Multi-host runs cannot, because all processes would
            have to write the checkpoint together.
        act: Called once, at the first signal.

    Yields:
        A function that returns whether a signal was received.

    Raises:
        KeyboardInterrupt: At the end of the block, if a signal was received.
    """
    pressed = threading.Event()
    # Scripts ignore Ctrl-C in commands that they start in the background.
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    is_default = is_ignored or signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (is_possible and is_default and threading.current_thread() is threading.main_thread()):
        yield pressed.is_set
        return

    received: list[int] = []

    def handle(number: int, frame: Any) -> None:
        received.append(number)
        if received.count(signal.SIGINT) > 1:
            raise KeyboardInterrupt
        if not pressed.is_set():
            pressed.set()
            act()

    _is_deferred.set()
    numbers = _SIGNALS[1:] if is_ignored else _SIGNALS
    handlers = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield pressed.is_set
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        _is_deferred.clear()
    if pressed.is_set():
        raise KeyboardInterrupt


def watch() -> None:
    """Makes Ctrl-C stop the process even while native code keeps Python from handling it."""
    read, write = os.pipe()
    if hasattr(os, "set_blocking"):  # On Windows, it exists since Python 3.12 and is not required.
        os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_end_after_interrupt, args=(read,), daemon=True).start()


def _is_answered() -> bool:
    """Returns whether `defer_interrupt` handles this Ctrl-C. It only handles the first one."""
    is_deferred = _is_deferred.is_set()
    _is_deferred.clear()
    return is_deferred


def _end_after_interrupt(read: int) -> None:
    while os.read(read, 1) != bytes([signal.SIGINT]) or _is_answered():
        pass
    directories = output_directory.locked_directories()
    time.sleep(_SECONDS_TO_END)
    end(output_directory.resume_note(directories[0]) if directories else NOTHING)


def end(note: str) -> NoReturn:
    """Prints one line and exits without waiting for other threads."""
    _ending.acquire()  # Never released, so a second caller blocks until the process exits.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        print(f"\ninterrupted: {note}", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)

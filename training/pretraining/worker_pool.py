# SPDX-License-Identifier: Apache-2.0
"""Worker pools that return results in the order of the tasks."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import connection
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def ordered_map(
    pool: Executor, function: Callable[[Task], Result], tasks: Iterable[Task], ahead: int
) -> Iterator[Result]:
    """Calls a function with each task in a pool, and yields the results in order.

    At most `ahead` tasks are pending, to limit the memory for long sequences.
    """
    pending: deque[Future[Result]] = deque()
    try:
        for task in tasks:
            pending.append(pool.submit(function, task))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def process_pool(
    num_workers: int, initializer: Callable[..., None], arguments: tuple[Any, ...]
) -> ProcessPoolExecutor:
    """Returns a pool of spawned processes. They stop when this process stops.

    They are not forked, because libraries that the parent has imported do not support forking.
    """
    return ProcessPoolExecutor(
        num_workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_initialize,
        initargs=(initializer, arguments),
    )


def _initialize(initializer: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    initializer(*arguments)


def _end_with_parent() -> None:
    """Stops a worker whose parent was killed. Otherwise it would wait for tasks forever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)

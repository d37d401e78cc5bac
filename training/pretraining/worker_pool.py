# SPDX-License-Identifier: Apache-2.0
"""Many workers for one sequence of tasks, with the results in the order of the tasks."""

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
    """Calls a function with each task, in a pool.

    Args:
        pool: threads or processes.
        function: what is called; for processes, a function of a module.
        tasks: the tasks.
        ahead: how many tasks are taken before their results are asked for: a long sequence takes no
            memory.

    Yields:
        The results, in the order of the tasks.
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
    """Processes that are not forked, as TensorFlow would not survive it, and end with this one.

    Args:
        num_workers: how many.
        initializer: a function of a module, called once in each process.
        arguments: what it is called with.
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
    """A worker would wait for tasks for ever once its parent has been killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)

# SPDX-License-Identifier: Apache-2.0
"""Many processes for one sequence of tasks, with the results in the order of the tasks."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import connection
from typing import Any, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def ordered_map(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    num_workers: int,
    initializer: Callable[..., None],
    arguments: tuple[Any, ...] = (),
) -> Iterator[Result]:
    """Calls a function with each task, in processes of their own where there are several.

    No more tasks are taken than a few for each worker, so that a long sequence takes no memory.

    Args:
        function: of a module, to be called with one task.
        tasks: the tasks.
        num_workers: processes; with 1, all is done in this one.
        initializer: called once in each process before its first task.
        arguments: what it is called with.

    Yields:
        The results, in the order of the tasks.
    """
    if num_workers == 1:
        initializer(*arguments)
        yield from map(function, tasks)
        return
    with ProcessPoolExecutor(
        num_workers,
        # TensorFlow does not survive a fork.
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_initialize,
        initargs=(initializer, arguments),
    ) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for task in tasks:
                pending.append(pool.submit(function, task))
                if len(pending) > 2 * num_workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _initialize(initializer: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    initializer(*arguments)


def _end_with_parent() -> None:
    """A worker would wait for tasks for ever once its parent has been killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)

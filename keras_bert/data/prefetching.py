# SPDX-License-Identifier: Apache-2.0
"""Reads ahead in iterators, by one element, or by batches from a thread."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

# The number of batches that a thread makes in advance
PREFETCHED_BATCHES = 8


class Readings:
    """Repeated iterations over a source. An iterator may be empty after the first iteration.

    Looking at the first element starts an iteration, and the next call of `iter` continues it.
    """

    def __init__(self, read: Callable[[], Iterable[Any]]) -> None:
        self._read = read
        self._begun: tuple[list[Any], Iterator[Any]] | None = None

    def first(self) -> Any:
        """Returns the first element, or `None` without elements."""
        if self._begun is None:
            elements = iter(self._read())
            self._begun = list(itertools.islice(elements, 1)), elements
        return self._begun[0][0] if self._begun[0] else None

    def __iter__(self) -> Iterator[Any]:
        begun, self._begun = self._begun, None
        return iter(self._read()) if begun is None else itertools.chain(*begun)


def map_ahead(
    function: Callable[[Any], Any], elements: Iterable[Any], ahead: int
) -> Generator[Any, None, None]:
    """Applies a function in a thread, a few elements ahead. The caller's thread reads elements."""
    if not ahead:
        yield from map(function, elements)
        return
    results: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
    with concurrent.futures.ThreadPoolExecutor(1, "batches") as thread:
        for element in elements:
            results.append(thread.submit(function, element))
            if len(results) > ahead:
                yield results.popleft().result()
        while results:
            yield results.popleft().result()


class _Failure(NamedTuple):
    error: BaseException


def prefetch(batches: Iterable[Any], ahead: int = PREFETCHED_BATCHES) -> Generator[Any, None, None]:
    """Yields batches that a thread makes in advance.

    The thread stops when the generator is closed or garbage-collected.
    """
    ready: queue.Queue[Any] = queue.Queue(ahead)
    is_closed = threading.Event()

    def put(item: Any) -> bool:
        while not is_closed.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(item, timeout=0.1)
                return True
        return False

    def make() -> None:
        try:
            for batch in batches:
                if not put(batch):
                    return
            put(None)
        except BaseException as error:
            put(_Failure(error))

    thread = threading.Thread(target=make, name="batches", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, _Failure):
                raise item.error
            yield item
    finally:
        is_closed.set()
        with contextlib.suppress(queue.Empty):
            while True:  # Make space, so that the thread does not wait.
                ready.get_nowait()

# SPDX-License-Identifier: Apache-2.0
"""Batches the rows of several requests with others of similar length."""

from __future__ import annotations

import dataclasses
import heapq
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

from .signatures import BATCH_CHARACTERS, CHOICES, Row

# Characters of text that an id stands for
_CHARACTERS_OF_ID = 4
# All shorter rows share a group.
_SHORTEST = 64
# Longer rows never keep all threads busy.
_LONG = 8_192


class QueueFullError(RuntimeError):
    """Raised for a request if too many rows are waiting already."""


@dataclasses.dataclass(eq=False)
class _Request:
    """The rows of a client, whose answers may come from several batches.

    Args:
        future: For the answers.
        answers: The answer of each row, `None` until there is one.
        remaining: The number of rows without an answer.
        waiting: The number of rows in the queue.
    """

    future: Future[list[Row]]
    answers: list[Any]
    remaining: int
    waiting: int


@dataclasses.dataclass(frozen=True, order=True)
class _WaitingRow:
    """A row in the queue.

    Args:
        turn: The order in which rows are taken, lowest first: the number of rows taken before its
            request arrived, plus its index there; and, between equals, its number among all rows.
            So a request of many rows does not hold up later ones.
        request: The request that it belongs to.
        index: Its index there.
        signature: The name of the signature that answers it.
        row: Its inputs.
        length: Its length in characters.
        texts: The number of texts in it: a choice costs as much as a row.
        since: The time at which it arrived.
    """

    turn: tuple[int, int]
    request: _Request
    index: int
    signature: str
    row: Row
    length: int
    texts: int
    since: float


@dataclasses.dataclass(frozen=True)
class BatchReport:
    """The size and the times of a batch, for metrics.

    Args:
        rows: The number of rows.
        seconds: The duration of the computation.
        waited: The seconds that each row waited for it.
    """

    rows: int
    seconds: float
    waited: tuple[float, ...]


class Batcher:
    """Computes waiting rows in batches, on some threads.

    An idle thread takes the rows that wait, and does not wait for more: rows collect while all
    threads are busy. It begins with the row whose turn it is, and adds rows of the same signature
    and shapes whose length is within a factor of two. So a short text is neither padded to the
    length of a long one nor computed with it. Of several threads, at least one stays free of long
    texts; and a request of many rows shares batches with later ones.

    If a batch fails, each request in it is computed by itself, so that the error is that of the
    request that causes it.

    Args:
        answer: Returns the answers of a signature, by name, to rows.
        threads: The number of threads.
        batch_size: The largest number of rows in a batch; of rows of several texts, such as
            choices, the largest number of texts, or a single row.
        max_waiting: The largest number of rows that wait.
        report: Called after each batch.
    """

    def __init__(
        self,
        answer: Callable[[str, Sequence[Row]], list[Row]],
        *,
        threads: int,
        batch_size: int,
        max_waiting: int,
        report: Callable[[BatchReport], None] = lambda report: None,
    ) -> None:
        self.num_threads = threads
        self.batch_size = batch_size
        self.max_waiting = max_waiting
        self._answer = answer
        self._report = report
        self._max_long = max(1, threads - 1)
        self._changed = threading.Condition()
        # Rows by what they must have in common to be in a batch
        self._groups: dict[Hashable, list[_WaitingRow]] = {}
        self._waiting = self._running_long = self._number = self._taken = 0
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"batches-{index}", daemon=True)
            for index in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """The number of rows that wait."""
        return self._waiting

    def submit(self, signature: str, rows: Sequence[Row]) -> Future[list[Row]]:
        """Adds rows to the queue.

        Returns:
            A future of the answers in the order of the rows. If it is cancelled, the rows that wait
            are not computed.

        Raises:
            QueueFullError: If too many rows are waiting.
        """
        request = _Request(Future(), [None] * len(rows), len(rows), len(rows))
        lengths = [sum(map(_length, row.values())) for row in rows]
        now = time.perf_counter()
        with self._changed:
            if self._closed:
                raise QueueFullError("the server is shutting down")
            if self._waiting + len(rows) > self.max_waiting:
                raise QueueFullError(
                    f"{self._waiting} rows are waiting, and the request has {len(rows)}; at most "
                    f"{self.max_waiting} may wait. Try again later."
                )
            for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
                shapes = tuple(_shape(value) for value in row.values())
                key = (signature, shapes, max(_SHORTEST, length).bit_length())
                self._number += 1
                turn = (self._taken + index, self._number)
                heapq.heappush(
                    self._groups.setdefault(key, []),
                    _WaitingRow(turn, request, index, signature, row, length, _num_texts(row), now),
                )
            self._waiting += len(rows)
            self._changed.notify_all()
        request.future.add_done_callback(lambda future: self._forget(request))
        return request.future

    def close(self) -> None:
        """Computes what is waiting, and ends the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _forget(self, request: _Request) -> None:
        """Counts the rows of a request that is cancelled or has failed as waiting no longer."""
        with self._changed:
            self._waiting -= request.waiting
            request.waiting = 0

    def _run(self) -> None:
        while batch := self._take():
            try:
                self._compute(batch)
            finally:
                with self._changed:
                    self._running_long -= batch[0].length > _LONG
                    self._changed.notify_all()

    def _take(self) -> list[_WaitingRow]:
        """Waits for rows, and returns a batch; an empty one if the queue is closed and empty."""
        with self._changed:
            while True:
                self._remove_done()
                available = [
                    rows
                    for rows in self._groups.values()
                    if rows[0].length <= _LONG or self._running_long < self._max_long
                ]
                if available:
                    # (It is empty if all its requests have just been cancelled.)
                    if batch := self._pop_batch(min(available)):
                        return batch
                elif self._closed and not self._groups:
                    return []
                else:
                    self._changed.wait()

    def _remove_done(self) -> None:
        """Removes the first rows of groups if their requests are done, and empty groups."""
        for key in list(self._groups):
            rows = self._groups[key]
            while rows and rows[0].request.future.done():
                heapq.heappop(rows)
            if not rows:
                del self._groups[key]

    def _pop_batch(self, rows: list[_WaitingRow]) -> list[_WaitingRow]:
        """Removes the rows of a batch from a group."""
        batch: list[_WaitingRow] = []
        characters = texts = 0
        while rows:
            if batch and characters + rows[0].length > BATCH_CHARACTERS:
                break
            if batch and texts + rows[0].texts > self.batch_size:
                break
            row = heapq.heappop(rows)
            if row.request.future.done():  # no longer counted as waiting
                continue
            row.request.waiting -= 1
            characters += row.length
            texts += row.texts
            batch.append(row)
        self._waiting -= len(batch)
        self._taken += len(batch)
        self._running_long += bool(batch) and batch[0].length > _LONG
        return batch

    def _compute(self, batch: Sequence[_WaitingRow]) -> None:
        """Computes a batch, and delivers its answers or errors."""
        start = time.perf_counter()
        try:
            answers = self._answer(batch[0].signature, [row.row for row in batch])
            pairs = list(zip(batch, answers, strict=True))
        except Exception as error:
            by_request: dict[_Request, list[_WaitingRow]] = {}
            for row in batch:
                by_request.setdefault(row.request, []).append(row)
            for request, rows in by_request.items():
                if len(by_request) > 1:
                    self._compute(rows)
                else:
                    self._fail(request, error)
            return
        seconds = time.perf_counter() - start
        self._report(BatchReport(len(batch), seconds, tuple(start - row.since for row in batch)))
        for row, answer in pairs:
            self._deliver(row, answer)

    def _deliver(self, row: _WaitingRow, answer: Row) -> None:
        request = row.request
        with self._changed:
            request.answers[row.index] = answer
            request.remaining -= 1
            is_last = not request.remaining
        if is_last and request.future.set_running_or_notify_cancel():
            request.future.set_result(request.answers)

    def _fail(self, request: _Request, error: Exception) -> None:
        with self._changed:
            # Rows that other threads compute must not complete the request.
            is_first = request.remaining > 0
            request.remaining = -1
        if is_first and request.future.set_running_or_notify_cancel():
            request.future.set_exception(error)


def _num_texts(row: Row) -> int:
    """Returns the number of texts in a row: 1, or that of its choices, as texts or as ids."""
    lists = (
        value
        for name, value in row.items()
        if isinstance(value, list) and value and (name == CHOICES or isinstance(value[0], list))
    )
    return max(map(len, lists), default=1)


def _length(value: Any) -> int:
    """Returns the length of an input in characters, or for ids about that."""
    if isinstance(value, list):
        return sum(map(_length, value))
    return len(value) if isinstance(value, (str, bytes)) else _CHARACTERS_OF_ID


def _shape(value: Any) -> tuple[int, ...]:
    """Returns the shape of nested lists that are not ragged."""
    if not isinstance(value, list):
        return ()
    return (len(value), *(_shape(value[0]) if value else ()))

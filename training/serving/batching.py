# SPDX-License-Identifier: Apache-2.0
"""Batches examples from multiple requests by length (dynamic batching)."""

from __future__ import annotations

import dataclasses
import heapq
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any

from .signatures import BATCH_CHARACTERS, CHOICES, Row

# Estimated number of characters per token id
_CHARACTERS_OF_ID = 4
# All examples with fewer characters share a group.
_SHORTEST = 64
# Examples with more characters never occupy all threads.
_LONG = 8_192


class QueueFullError(RuntimeError):
    """Raised for a request if too many examples are already waiting."""


@dataclasses.dataclass(eq=False)
class _Request:
    """The examples of one request. They may be computed in multiple batches.

    Args:
        future: The future of the predictions.
        answers: The prediction of each example, or `None` if not computed yet.
        remaining: Number of examples without a prediction.
        waiting: Number of examples in the queue.
    """

    future: Future[list[Row]]
    answers: list[Any]
    remaining: int
    waiting: int


@dataclasses.dataclass(frozen=True, order=True)
class _WaitingRow:
    """An example in the queue.

    Args:
        turn: Sort key of the queue, lowest first. It is the number of examples taken before the
            request arrived plus the example's index in the request, so a large request does not
            block later requests. Ties are broken by arrival order.
        request: The request that the example belongs to.
        index: Index in the request.
        signature: Name of the signature to call.
        row: Inputs of the example.
        length: Length in characters.
        texts: Number of texts. Each choice counts, because it costs as much as a text.
        since: Time of arrival.
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
    """A batch's size and duration, for metrics.

    Args:
        rows: Number of examples.
        seconds: Duration of the computation.
        waited: How long each example waited, in seconds.
    """

    rows: int
    seconds: float
    waited: tuple[float, ...]


class Batcher:
    """Computes waiting examples in batches on multiple threads.

    An idle thread starts with the waiting examples and does not wait for more. Examples collect
    while all threads are busy. The thread removes the next example from the queue, and adds
    examples with the same signature and shapes whose length is within a factor of two. So a short
    text is never padded to the length of a long text. With multiple threads, at least one is kept
    free of long texts. A large request shares batches with later requests.

    If a batch fails, each request in it is computed separately, so only the request that causes
    the error fails.

    Args:
        answer: Computes the predictions, given the signature's name and the examples.
        threads: Number of threads.
        batch_size: Maximum number of texts in a batch. An example with more texts, for example with
            many choices, gets a separate batch.
        max_waiting: Maximum number of waiting examples.
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
        # The examples in a group can share a batch.
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
        """Number of waiting examples."""
        return self._waiting

    def submit(self, signature: str, rows: Sequence[Row]) -> Future[list[Row]]:
        """Adds examples to the queue.

        Returns:
            A future of the predictions, in the order of the examples. If you cancel it, its waiting
            examples are not computed.

        Raises:
            QueueFullError: If too many examples are waiting, or the server is shutting down.
        """
        request = _Request(Future(), [None] * len(rows), len(rows), len(rows))
        lengths = [sum(map(_length, row.values())) for row in rows]
        now = time.perf_counter()
        with self._changed:
            self.check_room(len(rows))
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

    def check_room(self, num_rows: int) -> None:
        """Checks that examples can wait in the queue.

        Raises:
            QueueFullError: If too many examples are waiting, or the server is shutting down.
        """
        if self._closed:
            raise QueueFullError("the server is shutting down")
        if self._waiting + num_rows > self.max_waiting:
            raise QueueFullError(
                f"at most {self.max_waiting} examples may wait. Received: {num_rows} examples "
                f"while {self._waiting} are waiting. Try again later.",
            )

    def close(self) -> None:
        """Computes the waiting examples, then stops the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _forget(self, request: _Request) -> None:
        """Stops counting a canceled or failed request's examples as waiting."""
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
        """Waits for examples and returns a batch, or an empty list after `close`."""
        with self._changed:
            while True:
                self._remove_done()
                available = [
                    rows
                    for rows in self._groups.values()
                    if rows[0].length <= _LONG or self._running_long < self._max_long
                ]
                if available:
                    # The batch is empty if all its requests have just been canceled.
                    if batch := self._pop_batch(min(available)):
                        return batch
                elif self._closed and not self._groups:
                    return []
                else:
                    self._changed.wait()

    def _remove_done(self) -> None:
        """Removes finished requests' examples from the front of groups, and empty groups."""
        for key in list(self._groups):
            rows = self._groups[key]
            while rows and rows[0].request.future.done():
                heapq.heappop(rows)
            if not rows:
                del self._groups[key]

    def _pop_batch(self, rows: list[_WaitingRow]) -> list[_WaitingRow]:
        """Takes a batch of examples from a group."""
        batch: list[_WaitingRow] = []
        characters = texts = 0
        while rows:
            if batch and characters + rows[0].length > BATCH_CHARACTERS:
                break
            if batch and texts + rows[0].texts > self.batch_size:
                break
            row = heapq.heappop(rows)
            if row.request.future.done():  # It no longer counts as waiting.
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
        """Computes a batch and delivers the predictions or errors."""
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
            # Other threads may still compute examples of this request. They must not complete it.
            is_first = request.remaining > 0
            request.remaining = -1
        if is_first and request.future.set_running_or_notify_cancel():
            request.future.set_exception(error)


def _num_texts(row: Row) -> int:
    """Returns the number of choices in an example, or 1 without choices."""
    lists = (
        value
        for name, value in row.items()
        if isinstance(value, list) and value and (name == CHOICES or isinstance(value[0], list))
    )
    return max(map(len, lists), default=1)


def _length(value: Any) -> int:
    """Returns an input's length in characters. The length is estimated for token ids."""
    if isinstance(value, list):
        return sum(map(_length, value))
    return len(value) if isinstance(value, (str, bytes)) else _CHARACTERS_OF_ID


def _shape(value: Any) -> tuple[int, ...]:
    """Returns the shape of nested lists. They must not be ragged."""
    if not isinstance(value, list):
        return ()
    return (len(value), *(_shape(value[0]) if value else ()))

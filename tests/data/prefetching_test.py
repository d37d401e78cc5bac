# SPDX-License-Identifier: Apache-2.0

import itertools
import threading
import time

import pytest

from keras_bert.data.prefetching import Readings, map_ahead, prefetch

pytestmark = pytest.mark.backend_independent


def test_prefetch_reads_ahead_and_raises_in_order():
    produced = []

    def produce():
        for number in range(5):
            produced.append(number)
            yield number
        raise OSError("no more")

    batches = prefetch(produce(), ahead=2)
    assert next(batches) == 0
    deadline = time.monotonic() + 10
    # The queue holds two elements, and the thread a third one.
    while len(produced) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert produced == [0, 1, 2, 3]
    assert [next(batches) for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(OSError, match="no more"):
        next(batches)


def test_closing_stops_the_thread():
    def thread_names():
        return [thread.name for thread in threading.enumerate()]

    batches = prefetch(itertools.count())
    next(batches)
    assert "batches" in thread_names()
    batches.close()
    deadline = time.monotonic() + 10
    while "batches" in thread_names() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "batches" not in thread_names()


@pytest.mark.parametrize("ahead", [0, 1, 2, 8])
def test_each_element_is_yielded_once(ahead):
    for count in (0, 1, ahead, ahead + 1, 2 * ahead + 3):
        assert list(map_ahead(str, range(count), ahead)) == list(map(str, range(count)))
        assert list(prefetch(range(count), max(1, ahead))) == list(range(count))


@pytest.mark.parametrize("count", range(3))
def test_first_does_not_consume_elements(count):
    iterator = iter(range(count))
    readings = Readings(lambda: iterator)
    assert readings.first() == readings.first() == (0 if count else None)
    assert list(readings) == list(range(count))
    assert (readings.first(), list(readings)) == (None, [])
    readings = Readings(lambda: range(count))
    assert [list(readings) for _ in range(2)] == [list(range(count))] * 2

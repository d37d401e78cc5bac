# SPDX-License-Identifier: Apache-2.0

import itertools
import threading
import time

import pytest

from keras_bert.data.prefetching import Readings, map_ahead, prefetch

pytestmark = pytest.mark.backend_independent


def test_batches_are_made_ahead_and_errors_arrive_in_their_place():
    made = []

    def make():
        for number in range(5):
            made.append(number)
            yield number
        raise OSError("no more")

    batches = prefetch(make(), ahead=2)
    assert next(batches) == 0
    deadline = time.monotonic() + 10
    while len(made) < 4 and time.monotonic() < deadline:  # two ready, and one that waits
        time.sleep(0.01)
    assert made == [0, 1, 2, 3]
    assert [next(batches) for _ in range(4)] == [1, 2, 3, 4]
    with pytest.raises(OSError, match="no more"):
        next(batches)


def test_a_thread_ends_with_the_reading():
    def names():
        return [thread.name for thread in threading.enumerate()]

    batches = prefetch(itertools.count())
    next(batches)
    assert "batches" in names()
    batches.close()
    deadline = time.monotonic() + 10
    while "batches" in names() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "batches" not in names()


@pytest.mark.parametrize("ahead", [0, 1, 2, 8])
def test_threads_yield_each_element_once(ahead):
    for count in (0, 1, ahead, ahead + 1, 2 * ahead + 3):
        assert list(map_ahead(str, range(count), ahead)) == list(map(str, range(count)))
        assert list(prefetch(range(count), max(1, ahead))) == list(range(count))


@pytest.mark.parametrize("count", range(3))
def test_looking_at_a_source_reads_it_once(count):
    iterator = iter(range(count))
    readings = Readings(lambda: iterator)
    assert readings.first() == readings.first() == (0 if count else None)
    assert list(readings) == list(range(count))
    assert (readings.first(), list(readings)) == (None, [])
    readings = Readings(lambda: range(count))
    assert [list(readings) for _ in range(2)] == [list(range(count))] * 2

# SPDX-License-Identifier: Apache-2.0

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.source_imports import ROOT
from training.pretraining.worker_pool import ordered_map, process_pool

pytestmark = pytest.mark.backend_independent


def test_results_come_in_the_order_of_the_tasks_and_few_tasks_are_taken_ahead():
    taken = []

    def tasks():
        for task in range(40):
            taken.append(task)
            yield task

    def slow_first(task):
        time.sleep(0.02 if task % 4 == 1 else 0.0)
        return task

    done = []
    with ThreadPoolExecutor(4) as pool:
        for result in ordered_map(pool, slow_first, tasks(), ahead=5):
            done.append(result)
            assert len(taken) <= len(done) + 5
    assert done == list(range(40))


def test_an_error_in_a_task_comes_out():
    def fail_at_3(task):
        if task == 3:
            raise KeyError(task)
        return task

    with ThreadPoolExecutor(2) as pool, pytest.raises(KeyError):
        list(ordered_map(pool, fail_at_3, range(100), ahead=2))


def test_processes_are_initialized_first(tmp_path):
    with process_pool(1, os.chdir, (tmp_path,)) as pool:
        paths = list(ordered_map(pool, os.path.abspath, ["a", "b", "c"], ahead=2))
    assert paths == [str(tmp_path / name) for name in "abc"]


def test_processes_end_when_their_parent_is_killed():
    program = (
        "import os, time\n"
        "from training.pretraining.worker_pool import process_pool\n"
        "if __name__ == '__main__':\n"
        "    with process_pool(1, os.getpid, ()) as pool:\n"
        "        print(pool.submit(os.getpid).result(), flush=True)\n"
        "        time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        assert int(parent.stdout.readline()) != parent.pid
        parent.kill()
        # The child has the other end of the pipe, and closes it at its end
        parent.communicate(timeout=20)

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


def test_ordered_map_keeps_order_and_limits_lookahead():
    started = []

    def tasks():
        for task in range(40):
            started.append(task)
            yield task

    def slow_first(task):
        time.sleep(0.02 if task % 4 == 1 else 0.0)
        return task

    done = []
    with ThreadPoolExecutor(4) as pool:
        for result in ordered_map(pool, slow_first, tasks(), ahead=5):
            done.append(result)
            assert len(started) <= len(done) + 5
    assert done == list(range(40))


def test_ordered_map_raises_task_error():
    def fail_at_3(task):
        if task == 3:
            raise KeyError(task)
        return task

    with ThreadPoolExecutor(2) as pool, pytest.raises(KeyError):
        list(ordered_map(pool, fail_at_3, range(100), ahead=2))


def test_process_pool_initializes_processes(tmp_path):
    with process_pool(1, os.chdir, (tmp_path,)) as pool:
        paths = list(ordered_map(pool, os.path.abspath, ["a", "b", "c"], ahead=2))
    assert paths == [str(tmp_path / name) for name in "abc"]


def test_worker_processes_stop_with_killed_parent():
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
        # The child inherits standard output, so the pipe closes only after both have exited.
        parent.communicate(timeout=20)

# SPDX-License-Identifier: Apache-2.0

import signal
import time

import keras
import pytest

from tests.training.host_processes import SECONDS
from tests.training.kill_hosts import differences, kill_and_compare, start
from tests.training.kill_runs import make_data

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="several hosts"),
    pytest.mark.release,
]


def test_a_killed_run_goes_on_on_another_number_of_hosts(tmp_path):
    make_data(tmp_path)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected, two = start(tmp_path, whole, 1), start(tmp_path, killed, 2)
    end = time.monotonic() + SECONDS
    while two.are_running() and time.monotonic() < end:
        if list(killed.glob("checkpoints/step_*")):
            break
        time.sleep(0.1)
    # The first one, by which processes find one another
    two.kill(0)
    of_killed, other = two.wait()
    assert (of_killed, other) == (-signal.SIGKILL, 1)
    *_, last = two.printed()[1].splitlines()
    assert last.startswith("error: the connection to another process is lost: it has ended")
    one = start(tmp_path, killed, 1)
    assert one.wait() == [0], one.printed()
    assert "resuming after step" in one.printed()[0]
    assert expected.wait() == [0]
    assert max(differences(killed, whole).values()) < 1e-6


def test_runs_killed_at_random_moments_have_the_curve_of_one_never_killed(tmp_path):
    assert kill_and_compare(kills=20, seed=0, folder=tmp_path) < 1e-6

# SPDX-License-Identifier: Apache-2.0
"""Kills processes of multi-host runs at random moments, with `kill_hosts`.

These faster tests run for each change: `engine/hosts_test.py` suspends one process, so that
the other process stops, and `pretrain_on_hosts_test` resumes on a different number of hosts.
"""

import keras
import pytest

from tests.training.kill_hosts import kill_and_compare

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="multi-host"),
    pytest.mark.release,
]


def test_killed_multi_host_runs_have_the_same_curve(tmp_path):
    assert kill_and_compare(kills=20, seed=0, directory=tmp_path) < 1e-6

# SPDX-License-Identifier: Apache-2.0
"""Processes of several hosts that are killed at random moments by `kill_hosts`.

For each change, `engine/hosts_test.py` stops one process, which ends the others, and
`pretrain_on_hosts_test` goes on from checkpoints on another number of hosts.
"""

import keras
import pytest

from tests.training.kill_hosts import kill_and_compare

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "jax", reason="several hosts"),
    pytest.mark.release,
]


def test_runs_killed_at_random_moments_have_the_curve_of_one_never_killed(tmp_path):
    assert kill_and_compare(kills=20, seed=0, folder=tmp_path) < 1e-6

# SPDX-License-Identifier: Apache-2.0
"""Kills training commands at random moments, with `kill_runs`.

These faster tests run for each change: `seed_runs_test` and `pretrain_test` interrupt runs in their
own process, and the guide docs/guides/resume.py kills a command.
"""

import pytest

from tests.training.kill_runs import CASES, kill_and_compare

pytestmark = [
    pytest.mark.needs_tensorflow,
    pytest.mark.release,
]


@pytest.mark.parametrize("run", CASES)
def test_killed_runs_have_the_same_weights_and_scores(run, tmp_path):
    kill_and_compare(CASES[run], kills=20, seed=0, directory=tmp_path)

# SPDX-License-Identifier: Apache-2.0
"""Training programs that are killed at random moments by `kill_runs`.

For each change, `seed_runs_test` and `pretrain_test` end runs in their process, and the guide
docs/guides/resume.py kills a program.
"""

import pytest

from tests.training.kill_runs import CASES, kill_and_compare

pytestmark = [
    pytest.mark.needs_tensorflow,
    pytest.mark.release,
]


@pytest.mark.parametrize("run", CASES)
def test_killed_runs_end_with_the_weights_and_scores_of_one_never_killed(run, tmp_path):
    kill_and_compare(CASES[run], kills=20, seed=0, folder=tmp_path)

# SPDX-License-Identifier: Apache-2.0
"""Training programs that are killed at random moments by `kill_runs`."""

import os

import pytest

from tests.training.kill_runs import CASES, kill_and_compare

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.on_tensorflow]

pytest.importorskip("tensorflow")

IS_SLOW = bool(os.environ.get("KERAS_BERT_SLOW"))
KILLS = 20 if IS_SLOW else 1


@pytest.mark.parametrize("run", CASES)
def test_killed_runs_end_with_the_weights_and_scores_of_one_never_killed(run, tmp_path):
    if not (IS_SLOW or run == "finetune"):
        pytest.skip("slow: set KERAS_BERT_SLOW=1")
    kill_and_compare(CASES[run], KILLS, seed=0, folder=tmp_path)

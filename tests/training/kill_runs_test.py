# SPDX-License-Identifier: Apache-2.0
"""Training programs that are killed at random moments by `kill_runs`."""

import os
import subprocess
import sys

import pytest

from tests.training.kill_runs import CASES

pytestmark = pytest.mark.needs_tensorflow

pytest.importorskip("tensorflow")

IS_SLOW = bool(os.environ.get("KERAS_BERT_SLOW"))
KILLS = 20 if IS_SLOW else 1


@pytest.mark.parametrize("run", CASES)
def test_killed_runs_end_with_the_weights_and_scores_of_one_never_killed(run):
    if not (IS_SLOW or run == "finetune"):
        pytest.skip("slow: set KERAS_BERT_SLOW=1")
    command = [sys.executable, "-m", "tests.training.kill_runs", f"--run={run}", f"--kills={KILLS}"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr

# SPDX-License-Identifier: Apache-2.0

import re
import time

import pytest

from tests.training.engine.finished_cells import finish
from training.engine.grid import Cell, run_cells

pytestmark = pytest.mark.backend_independent


def test_runs_that_diverged_are_left_out_of_the_scores(tmp_path, caplog):
    cells = {name: Cell(tmp_path / name, ["training.finetune"]) for name in "abc"}
    finish(cells["a"], {"runs": [1]})
    finish(cells["b"], {"diverged": ["seed 1 diverged"], "runs": []})
    finish(cells["c"], {"runs": [1]})
    with caplog.at_level("ERROR", logger="absl"):
        results = run_cells(cells)
    assert "b: seed 1 diverged: left out of the table" in caplog.text
    assert list(results) == ["a", "c"]


def test_a_failure_ends_the_grid_and_what_is_done_is_not_done_again():
    ran = []

    def fail():
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        run_cells({"a": lambda: ran.append("a"), "b": fail, "c": lambda: ran.append("c")})
    assert ran == ["a"]


def test_the_time_left_is_shown_after_each_run(capsys):
    run_cells({"a": lambda: time.sleep(1.1), "b": lambda: None, "c": lambda: None})
    assert re.match(r"grid: 1/3 runs, 00:\d\d left\n", capsys.readouterr().err)

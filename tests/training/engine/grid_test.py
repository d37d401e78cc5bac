# SPDX-License-Identifier: Apache-2.0

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.source_imports import ROOT
from tests.training.engine.finished_cells import finish
from training.engine.grid import Cell, run_cells

pytestmark = pytest.mark.backend_independent


def test_diverged_runs_are_omitted(tmp_path, caplog):
    cells = {name: Cell(tmp_path / name, ["training.finetune"]) for name in "abc"}
    finish(cells["a"], {"runs": [1]})
    finish(cells["b"], {"diverged": ["seed 1 diverged"], "runs": []})
    finish(cells["c"], {"runs": [1]})
    with caplog.at_level("ERROR", logger="absl"):
        results = run_cells(cells)
    assert "b: seed 1 diverged. The other runs continue" in caplog.text
    assert list(results) == ["a", "c"]


def test_failure_stops_the_grid():
    ran = []

    def fail():
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        run_cells({"a": lambda: ran.append("a"), "b": fail, "c": lambda: ran.append("c")})
    assert ran == ["a"]


def test_time_left_is_shown_after_each_run(capsys):
    run_cells({"a": lambda: time.sleep(1.1), "b": lambda: None, "c": lambda: None})
    assert re.match(r"grid: 1/3 runs, 00:\d\d left\n", capsys.readouterr().err)


# A child process that writes its checkpoint slowly, and a grid that runs it
CHILD = """
import signal, sys, time
from pathlib import Path
from training.engine import interrupts

signal.signal(signal.SIGINT, signal.default_int_handler)
with interrupts.defer_interrupt() as is_interrupted:
    print("training", flush=True)
    while not is_interrupted():
        time.sleep(0.02)
    time.sleep(1.5)
    Path(sys.argv[1]).write_text("checkpoint")
"""
GRID = """
import signal, sys
from training.engine import grid, program

signal.signal(signal.SIGINT, {handler})
program.run(lambda arguments: grid.run_child([sys.executable, "-c", *sys.argv[1:]], "output.log"))
"""


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
@pytest.mark.parametrize(
    ("sent", "handler"),
    [
        ("Ctrl-C in a terminal", "signal.default_int_handler"),
        ("SIGINT", "signal.default_int_handler"),
        ("SIGTERM", "signal.default_int_handler"),
        ("SIGTERM", "signal.SIG_IGN"),  # as in a script's background commands
    ],
)
def test_interrupted_grid_leaves_a_checkpoint(sent, handler, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", GRID.replace("{handler}", handler), CHILD, "checkpoint"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    output = tmp_path / "output.log"
    while not (output.exists() and output.read_text() == "training\n"):
        time.sleep(0.02)
    if sent == "Ctrl-C in a terminal":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(getattr(signal, sent))
    _, errors = process.communicate(timeout=60)
    assert (tmp_path / "checkpoint").is_file(), errors
    assert process.returncode == 130
    assert errors.count("a checkpoint is written") == 1
    assert "interrupted: " in errors.splitlines()[-1]

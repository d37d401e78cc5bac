# SPDX-License-Identifier: Apache-2.0

import shlex
import subprocess

import pytest

from training.engine import child_commands, grid
from training.engine.grid import Cell

pytestmark = pytest.mark.backend_independent


def test_command_name_depends_on_the_package(monkeypatch):
    assert child_commands.command_name("finetune_glue") == "python -m training.paper.finetune_glue"
    monkeypatch.setattr(child_commands, "PACKAGE", "keras_bert_training")
    assert child_commands.command_name("finetune_glue") == "keras-bert finetune-glue"


def test_failed_child_shows_its_last_lines(tmp_path, caplog):
    directory = tmp_path / "mrpc 1x32x1, 10 steps"
    with pytest.raises(subprocess.CalledProcessError) as error:
        Cell(directory, ["training.pretrain", "--no_such_flag=a b"])()
    first = (directory / "output.log").read_text().splitlines()[0]
    assert first.startswith("$ python -m training.pretrain ")
    assert shlex.split(first)[2:] == error.value.cmd[1:]
    assert f"The last lines of {directory / 'output.log'}:\n$ python -m" in caplog.text
    assert "error: Unknown command line flag 'no_such_flag'" in caplog.text


def test_more_seeds_restart_the_command(tmp_path, monkeypatch):
    """`seed_runs_test` checks that the command trains only the missing seeds."""
    started = []

    def run(command, output):
        started.append(command)
        (tmp_path / "results.json").write_text('{"runs": [1]}')
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(grid, "run_child", run)
    for seeds in (1, 1, 2):
        command = ["training.finetune", "--epochs=1", f"--num_seeds={seeds}"]
        assert Cell(tmp_path, command)() == {"runs": [1]}
    assert ["--num_seeds=2" in command for command in started] == [False, True]

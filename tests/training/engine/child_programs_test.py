# SPDX-License-Identifier: Apache-2.0

import json
import logging
import shlex
import subprocess

import pytest

from training.engine import child_programs

pytestmark = pytest.mark.backend_independent


def test_commands_are_those_of_the_checkout_or_of_the_installed_program(monkeypatch):
    assert child_programs.typed("compare_models") == "python -m training.compare_models"
    monkeypatch.setattr(child_programs, "_PACKAGE", "keras_bert_training")
    assert child_programs.typed("compare_models") == "keras-bert compare-models"


def test_a_child_is_announced_by_a_command_that_can_be_pasted(tmp_path, caplog):
    caplog.set_level(logging.INFO, "absl")
    folder = tmp_path / "mrpc 1x32x1, 10 steps"
    with pytest.raises(subprocess.CalledProcessError) as error:
        child_programs.run_once(folder, ["training.pretrain", "--no_such_flag=a b"])
    announced = caplog.messages[0].removeprefix(f"{folder.name}: ")
    assert shlex.split(announced)[1:] == error.value.cmd[1:]
    assert announced.startswith("python -m training.pretrain ")


def test_what_a_program_of_an_earlier_version_has_done_is_not_done_again(tmp_path):
    earlier = ["training.finetune_squad", "--recipe=minilm_squad_v1"]
    (tmp_path / "command.json").write_text(json.dumps(child_programs.command_record(earlier)))
    (tmp_path / "results.json").write_text('{"runs": []}')
    now = ["training.finetune", "--task=questions", "--recipe=minilm_squad_v1"]
    assert child_programs.run_once(tmp_path, now) == {"runs": []}
    with pytest.raises(ValueError, match="contains a run of other settings"):
        child_programs.run_once(tmp_path, [*now, "--epochs=9"])

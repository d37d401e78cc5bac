# SPDX-License-Identifier: Apache-2.0
"""Checks how a command line determines the task and its flags."""

import dataclasses
import importlib
import re
import sys
import typing

import pytest
from absl import flags

from training.engine.finetuning_config import FineTuningConfig
from training.engine.options import HOST_OPTIONS
from training.jobs import tasks
from training.jobs.tasks import TASKS
from training.paper import recipes

pytestmark = pytest.mark.backend_independent


def parse_command_line(*arguments):
    values = flags.FlagValues()
    tasks.define_flags(values)
    values(["finetune", *arguments])
    task, config, grid = tasks.task_from_flags(values)
    (name,) = [name for name, value in TASKS.items() if value is task]
    return name, config if grid is None else grid


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("premise,hypothesis,label\na,b,0\n")
    return path


@pytest.mark.parametrize("name", TASKS)
def test_task_flag_selects_the_task(name):
    task, config = parse_command_line(f"--task={name}", "--epochs=7")
    assert (task, config.epochs) == (name, 7)
    assert {key: getattr(config, key) for key in TASKS[name].settings} == TASKS[name].settings


def test_task_is_inferred_from_file_and_logged(reviews, capsys):
    name, config = parse_command_line(f"--train_file={reviews}")
    assert (name, config.text, config.text_pair) == ("pairs", "premise", "hypothesis")
    assert capsys.readouterr().out == (
        f"task: pairs, because {reviews} has premise and hypothesis (change it with --task)\n"
    )
    assert parse_command_line(f"--train_file={reviews}", "--text=premise")[0] == "classification"
    assert parse_command_line(f"--train_file={reviews}", "--regression")[0] == "regression"
    name, config = parse_command_line(f"--train_file={reviews}", "--text_pair=hypothesis")
    assert (name, config.text, config.text_pair) == ("pairs", "premise", "hypothesis")
    name, config = parse_command_line("--task=regression", "--text_pair=hypothesis")
    assert (config.regression, config.text_pair) == (True, "hypothesis")


def test_ranking_is_inferred_from_directory(tmp_path):
    (tmp_path / "cran.all.1400").touch()
    assert parse_command_line(f"--data_dir={tmp_path}")[0] == "ranking"
    assert parse_command_line("--documents=a.tsv")[0] == "ranking"
    (tmp_path / "cran.all.1400").unlink()
    with pytest.raises(ValueError, match="pass --train_file, --task or --recipe, or put documents"):
        parse_command_line(f"--data_dir={tmp_path}")


def test_glue_task_is_text_classification():
    name, config = parse_command_line("--task=mrpc", "--data_dir=glue")
    assert (name, config.task, config.text_pair) == ("classification", "mrpc", "")
    assert parse_command_line("--recipe=minilm_sst2", "--task=mrpc")[1] == dataclasses.replace(
        recipes.load("minilm_sst2", FineTuningConfig), task="mrpc"
    )
    file_flags = ("--task=classification", "--train_file=a.csv")
    assert parse_command_line("--recipe=minilm_sst2", *file_flags)[1].task == ""


@pytest.mark.parametrize("name", recipes.names())
def test_recipe_determines_the_task(name):
    recipe = importlib.import_module(f"training.paper.recipes.{name}")
    if f"python -m training.finetune --recipe={name}" in recipe.__doc__:
        assert parse_command_line(f"--recipe={name}")[1] == recipe.CONFIG
    else:
        message = "must have a FineTuningConfig for this|belongs to a different"
        with pytest.raises(ValueError, match=rf"--recipe={name} ({message}) command"):
            parse_command_line(f"--recipe={name}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--task=ner"],
            "--task must be one of .*, ranking, or a GLUE task.* Received: 'ner'",
        ),
        (
            ["--task=regression", "--noregression"],
            "--regression must not be false with --task=regr",
        ),
        (
            ["--task=pairs", "--n_best=3"],
            "--n_best is a flag of --task=question_answering, not of pairs",
        ),
        (
            ["--recipe=squad_v1", "--task=pairs"],
            "squad_v1 is for --task=question_answering, not pairs",
        ),
        (["--train_file=none.csv"], "none.csv does not exist"),
    ],
)
def test_flags_that_contradict_the_task_raise(arguments, message):
    with pytest.raises((ValueError, OSError), match=message):
        parse_command_line(*arguments)


def test_flag_has_the_same_type_in_every_task():
    types = {}
    for task in TASKS.values():
        for name, hint in typing.get_type_hints(task.config_class).items():
            hint = next((kind for kind in typing.get_args(hint) if kind is not type(None)), hint)
            assert types.setdefault(name, hint) == hint, name


def test_help_lists_flags_of_the_task(monkeypatch):
    def help_for(*arguments):
        monkeypatch.setattr(sys, "argv", ["finetune", *arguments, "--help"])
        monkeypatch.setitem(sys.modules, "__main__", importlib.import_module("training.finetune"))
        return tasks.help_text()

    text = help_for()
    names = re.findall(r"^  --(?:\[no\])?(\w+)=", text, re.M)
    assert names[:4] == ["task", "train_file", "text", "label"]
    assert names.index("preset") < names.index("epochs") < 10
    assert names[-4:] == [*HOST_OPTIONS]
    assert "--output_dir=\n" in text
    assert re.search(r"^  ranking: --documents .*;\s+no --train_file", text, re.M | re.S)
    assert re.search(r"^  question_answering: [^:]*--max_document_words", text, re.M)
    for name, task in TASKS.items():
        task_flags = set(re.findall(r"^  --(?:\[no\])?(\w+)=", help_for(f"--task={name}"), re.M))
        assert task_flags == {*task.options, "task", "recipe"}
    assert "--doc_stride=128" in help_for("--recipe=squad_v1")


@pytest.mark.parametrize(
    ("options", "output_dir"),
    [
        ({"train_file": "data/reviews.csv.gz"}, "runs/reviews"),
        ({"task": "sst2", "data_dir": "glue"}, "runs/sst2"),
        ({"data_dir": "glue/cranfield"}, "runs/cranfield"),
        ({"train_file": "reviews.csv", "output_dir": "mine"}, "mine"),
    ],
)
def test_output_dir_is_named_after_the_data(options, output_dir):
    config = TASKS["classification"].config_class()
    assert config.replace(**options).output_dir == output_dir


@pytest.mark.parametrize(
    "arguments",
    [
        ("--task=pairs", "--text=a", "--text_pair=b", "--label_map=x:y,z:y", "--epochs=2,3"),
        ("--task=multi_label", "--label=a", "--nopretrained", "--batch_size=8,16", "--epochs=2"),
        ("--recipe=minilm_sst2", "--data_dir=glue", "--learning_rate=5e-5,3e-5", "--warmup=0,0.1"),
        ("--task=tagging", "--train_file=a.conll", "--test_file=b.conll", "--dropout=0,0.1"),
        ("--task=question_answering", "--doc_stride=64", "--num_seeds=3", "--sequence_length=9,8"),
        ("--task=few_shot", "--max_pairs=9", "--epochs=1,2"),
    ],
)
def test_grid_runs_all_combinations(arguments):
    _, grid = parse_command_line(*arguments)
    cells, configs = grid.cells(), grid.configs()
    assert len(configs) == 2 ** sum("," in word and "map" not in word for word in arguments)
    assert len({cell.directory for cell in cells.values()}) == len(configs)
    for setting, cell in cells.items():
        config = configs[setting].replace(test_file="", export=False)
        assert {name: getattr(config, name) for name in grid.values} == dict(
            zip(grid.values, setting, strict=True)
        )
        flag = f"--output_dir={config.output_dir}"
        assert parse_command_line(*cell.command[1:], flag)[1] == config


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--epochs=2,2",), "--epochs must be a list of distinct values. Received: 2,2"),
        (("--epochs=2,0",), "--epochs must be an integer above 0. Received: 0"),
        (("--batch_size=8,9", "--accumulation=4"), "--accumulation must be a divisor .*, 9"),
        (("--seed=1,2",), "--seed=1,2: the flag must be a single number. Only --learning_rate, "),
        (("--epochs=2,3", "--task=ranking"), "--epochs must be a single number with --task=rank"),
        (
            ("--epochs=2,3", "--coordinator=a:1", "--num_processes=2", "--process_id=0"),
            "--epochs must be a single number with --coordinator",
        ),
    ],
)
def test_invalid_list_raises(arguments, message):
    with pytest.raises((ValueError, flags.Error), match=message):
        parse_command_line("--task=classification", *arguments)

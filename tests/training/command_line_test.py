# SPDX-License-Identifier: Apache-2.0
"""The `keras-bert` command in a checkout and from a wheel."""

import os
import runpy
import subprocess
import sys
import zipfile

import pytest
from absl import flags

import keras_bert
from keras_bert import __main__
from tests.source_imports import ROOT
from training import command_line
from training.engine import child_commands, program
from training.jobs import tasks

pytestmark = pytest.mark.on_torch

COMMANDS = [name for group in child_commands.COMMANDS.values() for name in group]


def run(*arguments, directory=ROOT, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-m", "keras_bert", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(directory)},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def installed_wheel(tmp_path_factory):
    """A directory with the files that the wheel installs. It has no other files of the checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "installed")
    return directory / "installed"


def test_every_script_is_a_command():
    scripts = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for path in (ROOT / "training").rglob("*.py")
        if "    program.run(" in path.read_text(encoding="utf-8")
    }
    assert {child_commands.module_name(name) for name in COMMANDS} == scripts
    lines = command_line.overview().splitlines()
    for name in COMMANDS:
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert len(line.split(maxsplit=1)[1]) > 20


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_no_arguments_list_the_commands(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["keras-bert", *arguments])
    __main__.main()
    assert capsys.readouterr().out.rstrip() == command_line.overview()


def test_closed_output_pipe_exits_quietly():
    def run_with_closed_pipe(*command, **environment):
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**os.environ, **environment}
        with subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, text=True, env=environment, **pipe
        ) as process:
            process.stdout.close()
            errors = process.stderr.read()
        return process.returncode, errors

    for arguments in (["--version"], ["finetune", "--help"]):
        assert run_with_closed_pipe("-m", "keras_bert", *arguments) == (0, "")
    script = "from training.engine import program; program.run(lambda _: {})"
    printing = script.format("print('a line')")
    for unbuffered in ("", "1"):
        assert run_with_closed_pipe("-c", printing, PYTHONUNBUFFERED=unbuffered) == (141, "")
    # A command that fails after it has printed reports the error.
    failing = script.format("(print('a line'), open('no.csv'))")
    status, errors = run_with_closed_pipe("-c", failing, PYTHONUNBUFFERED="")
    assert status == 1
    assert errors.startswith("error: [Errno 2] No such file")


@pytest.mark.parametrize(
    ("argument", "suggestion"),
    [
        ("predcit", "predict"),
        ("train", "finetune or pretrain"),
    ],
)
def test_mistyped_command_suggests_the_nearest(argument, suggestion, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["keras-bert", argument])
    with pytest.raises(SystemExit, match="2"):
        __main__.main()
    assert f"Did you mean {suggestion}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--train_fil=x", "Unknown command line flag 'train_fil'. Did you mean --train_file?"),
        ("--max_seq_length=8", "Use sequence_length instead of max_seq_length."),
        ("--num_labels=2", "The classes are inferred from the labels in the data."),
        ("--epochs=many", "base 10: 'many'. `"),
    ],
)
def test_mistyped_flag_error_is_one_line(argument, message, monkeypatch, capsys):
    values = flags.FlagValues()
    tasks.define_flags(values)
    monkeypatch.setattr(flags, "FLAGS", values)
    with pytest.raises(SystemExit):
        program._parse_flags(["finetune", argument])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_data_file_needs_no_flag():
    missing = run("inspect", "none.csv")
    assert missing.returncode != 0
    (line,) = missing.stderr.strip().splitlines()
    assert line.startswith("error: none.csv does not exist")
    assert missing.stdout == ""


def test_help_command_shows_flags(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "argv", ["keras-bert", "help", "export"])
    monkeypatch.setattr(runpy, "run_module", lambda name, **_: shown.append((name, sys.argv[1:])))
    monkeypatch.setattr(child_commands, "is_command", False)
    command_line.main()
    assert shown == [("training.export", ["--help"])]


def test_wheel_contains_library_and_commands(installed_wheel, tmp_path):
    roots = {path.name for path in installed_wheel.iterdir()}
    assert {name for name in roots if not name.endswith(".dist-info")} == {
        "keras_bert",
        "keras_bert_training",
    }
    (entry_points,) = installed_wheel.glob("*.dist-info/entry_points.txt")
    assert "keras-bert = keras_bert.__main__:main" in entry_points.read_text()
    assert list(installed_wheel.glob(f"*-{keras_bert.__version__}.dist-info"))
    for word_list in (ROOT / "keras_bert" / "insight" / "bias" / "word_lists").iterdir():
        assert (
            installed_wheel / word_list.relative_to(ROOT)
        ).read_bytes() == word_list.read_bytes()
    # In a directory without the checkout, files missing from the wheel are not found.
    finetune_help = run("finetune", "--help", directory=installed_wheel, cwd=tmp_path)
    assert finetune_help.returncode == 0, finetune_help.stderr
    assert "keras-bert finetune --train_file" in finetune_help.stdout
    assert "python -m training" not in finetune_help.stdout
    assert "--learning_rate=" in finetune_help.stdout


def test_wheel_command_runs(installed_wheel, tmp_path):
    """The command also starts child processes from its package."""
    (tmp_path / "corpus.txt").write_text("the cat sat\n\na dog ran\n" * 20)
    finished = run(
        *("tokenizer", "--input_files=corpus.txt", "--output_dir=vocabulary"),
        "--vocabulary_size=40",
        directory=installed_wheel,
        cwd=tmp_path,
    )
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "vocabulary" / "vocab.txt").exists()

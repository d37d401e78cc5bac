# SPDX-License-Identifier: Apache-2.0
"""The command `keras-bert`, in a checkout and from a wheel."""

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

pytestmark = pytest.mark.backend_independent

COMMANDS = [name for group in child_commands.COMMANDS.values() for name in group]


def run(*arguments, folder=ROOT, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-m", "keras_bert", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what the wheel would install, and nothing else of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def test_every_program_is_a_command():
    programs = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for path in (ROOT / "training").rglob("*.py")
        if "    program.run(" in path.read_text(encoding="utf-8")
    }
    assert {child_commands.module_name(name) for name in COMMANDS} == programs
    lines = command_line.overview().splitlines()
    for name in COMMANDS:
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert len(line.split(maxsplit=1)[1]) > 20


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_without_a_command_it_lists_them(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["keras-bert", *arguments])
    __main__.main()
    assert capsys.readouterr().out.rstrip() == command_line.overview()


def test_a_reader_that_stops_reading_ends_it_quietly():
    def ended(*command, **environment):
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**os.environ, **environment}
        with subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, text=True, env=environment, **pipe
        ) as process:
            process.stdout.close()
            errors = process.stderr.read()
        return process.returncode, errors

    for arguments in (["--version"], ["finetune", "--help"]):
        assert ended("-m", "keras_bert", *arguments) == (0, "")
    script = "from training.engine import program; program.run(lambda _: {})"
    printing = script.format("print('a line')")
    for unbuffered in ("", "1"):
        assert ended("-c", printing, PYTHONUNBUFFERED=unbuffered) == (141, "")
    # What fails after it has printed says so
    failing = script.format("(print('a line'), open('no.csv'))")
    status, errors = ended("-c", failing, PYTHONUNBUFFERED="")
    assert status == 1
    assert errors.startswith("error: [Errno 2] No such file")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("predcit", "predict"),
        ("train", "finetune or pretrain"),
    ],
)
def test_a_mistyped_command_is_answered_with_the_nearest(typed, meant, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["keras-bert", typed])
    with pytest.raises(SystemExit, match="2"):
        __main__.main()
    assert f"Did you mean {meant}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("--train_fil=x", "Unknown command line flag 'train_fil'. Did you mean --train_file?"),
        ("--max_seq_length=8", "Use sequence_length instead of max_seq_length."),
        ("--num_labels=2", "The classes are inferred from the labels in the data."),
        ("--epochs=many", "base 10: 'many'. `"),
    ],
)
def test_a_mistyped_flag_is_one_line(typed, message, monkeypatch, capsys):
    values = flags.FlagValues()
    tasks.define_flags(values)
    monkeypatch.setattr(flags, "FLAGS", values)
    with pytest.raises(SystemExit):
        program._parse_flags(["finetune", typed])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_data_file_is_also_named_without_its_flag():
    missing = run("inspect", "none.csv")
    assert missing.returncode != 0
    (line,) = missing.stderr.strip().splitlines()
    assert line.startswith("error: none.csv does not exist")
    assert missing.stdout == ""


def test_help_may_come_before_a_command(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "argv", ["keras-bert", "help", "export"])
    monkeypatch.setattr(runpy, "run_module", lambda name, **_: shown.append((name, sys.argv[1:])))
    monkeypatch.setattr(child_commands, "is_command", False)
    command_line.main()
    assert shown == [("training.export", ["--help"])]


def test_the_wheel_has_the_library_and_the_programs(installed, tmp_path):
    roots = {path.name for path in installed.iterdir()}
    assert {name for name in roots if not name.endswith(".dist-info")} == {
        "keras_bert",
        "keras_bert_training",
    }
    (entry_points,) = installed.glob("*.dist-info/entry_points.txt")
    assert "keras-bert = keras_bert.__main__:main" in entry_points.read_text()
    assert list(installed.glob(f"*-{keras_bert.__version__}.dist-info"))
    for word_list in (ROOT / "keras_bert" / "insight" / "bias" / "word_lists").iterdir():
        assert (installed / word_list.relative_to(ROOT)).read_bytes() == word_list.read_bytes()
    # In a folder without the checkout: what the wheel lacks is not found.
    help_of_finetune = run("finetune", "--help", folder=installed, cwd=tmp_path)
    assert help_of_finetune.returncode == 0, help_of_finetune.stderr
    assert "keras-bert finetune --train_file" in help_of_finetune.stdout
    assert "python -m training" not in help_of_finetune.stdout
    assert "--learning_rate=" in help_of_finetune.stdout


def test_a_program_of_the_wheel_runs(installed, tmp_path):
    """And starts others of its package."""
    (tmp_path / "corpus.txt").write_text("the cat sat\n\na dog ran\n" * 20)
    made = run(
        *("tokenizer", "--input_files=corpus.txt", "--output_dir=vocabulary"),
        "--vocabulary_size=40",
        folder=installed,
        cwd=tmp_path,
    )
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "vocabulary" / "vocab.txt").exists()

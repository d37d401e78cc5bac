# SPDX-License-Identifier: Apache-2.0
"""The command-line interface that all commands share."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from absl import flags

from tests.source_imports import ROOT
from training.engine import config_flags, output_directory, program
from training.jobs.classification import ClassificationJob, FinetuneConfig

pytestmark = pytest.mark.backend_independent

COMMANDS = sorted(
    path.stem
    for path in (ROOT / "training").glob("*.py")
    if "program.run(" in path.read_text(encoding="utf-8")
)
# A command that locks a directory, then blocks in native code, so that Python cannot run.
HOLDER = """
import hashlib, signal, sys
from training.engine import config_flags, output_directory, program

# If a shell runs the tests in the background, this process would otherwise ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

def main(arguments):
    with output_directory.lock_output_dir(sys.argv[1]) as directory:
        (directory / "seed_1").mkdir(exist_ok=True)
        (directory / "seed_1" / "model.keras").touch()
        print("held", flush=True)
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)

program.run(main)
"""


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def holder(tmp_path):
    process = start("-c", HOLDER, str(tmp_path))
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_positional_argument_raises(monkeypatch):
    program.reject_arguments(["finetune.py"])
    values = flags.FlagValues()
    config_flags.define_flags(FinetuneConfig, values)
    monkeypatch.setattr(flags, "FLAGS", values)
    message = r"only flags\. Received: a\.tsv b\.tsv\. Did you mean --train_file=a\.tsv\?"
    with pytest.raises(ValueError, match=message):
        program.reject_arguments(["finetune.py", "a.tsv", "b.tsv"])


def test_user_error_exits_with_one_line():
    with pytest.raises(SystemExit, match=r"^error: no dev\.tsv$"), program.exit_on_user_error():
        raise FileNotFoundError("no dev.tsv")


def test_failed_child_command_is_reported():
    command = [sys.executable, "-c", "1/0"]
    with pytest.raises(SystemExit, match=r"^error: -c 1/0 failed"), program.exit_on_user_error():
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def test_user_warning_is_one_line():
    shown = program.plain_warning(
        UserWarning("a.tsv: are 'a' and 'A' one?"), UserWarning, "f.py", 3
    )
    assert shown == "warning: a.tsv: are 'a' and 'A' one?\n"
    assert "f.py:3" in program.plain_warning("old", DeprecationWarning, "f.py", 3)


def test_internal_error_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError), program.exit_on_user_error():
        raise ZeroDivisionError


def test_broken_pipe_of_worker_is_raised():
    @program.ignore_broken_pipe()
    @program.exit_on_user_error()
    def fail():
        raise BrokenPipeError("from a worker")

    with pytest.raises(BrokenPipeError, match="from a worker"):
        fail()


def test_require_shows_install_command():
    program.require(("sys", "os"), "training")
    with pytest.raises(ImportError, match=r"^no_such_library is .* pip install -e '\.\[ranking\]'"):
        program.require(("sys", "no_such_library"), "ranking")
    with pytest.raises(
        ImportError, match=r"^no_such_library\.part is not installed: .*distributed"
    ):
        program.require(("os.path", "no_such_library.part"), "distributed")


def test_failed_quiet_import_shows_its_output(tmp_path, monkeypatch, capfd):
    (tmp_path / "loud.py").write_text("import os\nos.write(2, b'noise')\n")
    (tmp_path / "broken.py").write_text("import os\nos.write(2, b'why')\nimport no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)
    program.import_quietly("loud")
    assert capfd.readouterr().err == ""
    with pytest.raises(ImportError, match="no_such_library"):
        program.import_quietly("broken")
    assert capfd.readouterr().err == "why"


def test_output_dir_is_locked_by_one_process(holder, tmp_path):
    with pytest.raises(
        output_directory.DirectoryInUseError,
        match=rf"{tmp_path} is in use by process {holder.pid} on ",
    ):
        output_directory.lock_output_dir(tmp_path).__enter__()
    holder.kill()
    holder.wait()
    # The operating system released the lock of the killed process.
    with output_directory.lock_output_dir(tmp_path):
        pass


def test_ctrl_c_interrupts_native_code(holder):
    time.sleep(0.2)
    start_time = time.monotonic()
    holder.send_signal(signal.SIGINT)
    _, errors = holder.communicate(timeout=20)
    assert time.monotonic() - start_time < 10
    assert holder.returncode == 130
    (line,) = errors.strip().splitlines()
    assert line.startswith("interrupted: ")
    assert line.endswith("contains no finished results yet")


def test_unwritable_directory_error_has_the_flag(tmp_path):
    (tmp_path / "file").touch()
    directory = tmp_path / "file" / "run"
    with (
        pytest.raises(OSError, match=rf"^--output_dir={directory} cannot be written to: "),
        output_directory.lock_output_dir(directory),
    ):
        pass


def test_error_says_the_run_can_be_resumed(tmp_path):
    (tmp_path / "checkpoints" / "step_000000007").mkdir(parents=True)
    with (
        pytest.raises(SystemExit, match=r"^error: broken \(the same command resumes from what "),
        program.exit_on_user_error(),
        output_directory.lock_output_dir(tmp_path),
    ):
        raise ValueError("broken")


@pytest.mark.parametrize(
    ("settings", "difference"),
    [
        (
            FinetuneConfig(epochs=2),
            "that run has --epochs= --train_file=a, this run has --epochs=2",
        ),
        (
            FinetuneConfig(train_file="a", tensorboard=True),
            "its options are the same, but the data",
        ),
    ],
)
def test_settings_mismatch_error_lists_differences(tmp_path, settings, difference):
    config = FinetuneConfig(train_file="a", output_dir=str(tmp_path))
    with program.locked_by_main_process(config, "finetune"):
        (tmp_path / "checkpoints" / "step_000000007").mkdir(parents=True)
    with (
        pytest.raises(SystemExit, match=rf"^error: other settings \({difference}[^(]*\)$"),
        program.exit_on_user_error(),
        program.locked_by_main_process(settings.replace(output_dir=str(tmp_path)), "finetune"),
    ):
        raise output_directory.SettingsMismatchError("other settings")


def test_settings_are_compared_before_data(tmp_path):
    with output_directory.lock_output_dir(tmp_path, {"epochs": 3, "batch_size": None, "seed": 1}):
        (tmp_path / "seed_1").mkdir()
        (tmp_path / "seed_1" / "run.json").touch()
    output_directory.check_same_settings(tmp_path, {"epochs": None, "batch_size": 8, "seed": 2})
    with pytest.raises(
        ValueError, match=r"another --output_dir.*has --epochs=3, this run has --epochs"
    ):
        output_directory.check_same_settings(tmp_path, {"epochs": 4, "batch_size": None, "seed": 1})


def test_preset_is_opened_before_data(tmp_path):
    config = FinetuneConfig.from_flags(
        train_file="missing.csv", preset="WRONG", output_dir=str(tmp_path)
    )
    with pytest.raises(ValueError, match="WRONG"):
        program.fine_tune(config, ClassificationJob)


def test_check_room_raises_if_disk_is_too_small(tmp_path):
    output_directory.check_room(tmp_path, 1)
    with pytest.raises(OSError, match=r"not enough disk space .* about 1,152,921,504,"):
        output_directory.check_room(tmp_path, 1 << 60)


HELP = """
import contextlib, io, json, runpy, sys
from absl import app, flags, logging

sys.modules.update(dict.fromkeys({missing}))
absl_flags, shown = set(flags.FLAGS), {{}}
for name in {commands}:
    sys.argv = ["program", "--help"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_module("training." + name, run_name="__main__", alter_sys=True)
    shown[name] = out.getvalue()
    for flag in set(flags.FLAGS) - absl_flags:
        delattr(flags.FLAGS, flag)
print(json.dumps(shown))
"""


def test_help_needs_no_optional_libraries():
    """The documentation site's command pages are generated this way."""
    extras = ("bm25s", "codecarbon", "matplotlib", "onnx", "openvino", "scipy", "sentencex")
    libraries = ["sklearn", "tensorboard", "tensorflow", "tokenizers", "keras"]
    process = start("-c", HELP.format(missing=[*extras, *libraries], commands=COMMANDS))
    out, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    for name, shown in json.loads(out).items():
        module = importlib.import_module(f"training.{name}")
        assert shown.startswith(module.__doc__.strip())
        listed = {line for line in shown.splitlines() if line.startswith("  --")}
        assert listed, name
        if name == "finetune":
            assert {"  --batch_size=32", "  --[no]export=true"} < listed
            assert "        Number of examples per optimizer step." in shown


PRINTER = r"""
from training.engine import program

program.run(lambda arguments: print("\ud55c\uad6d\uc5b4 caf\udce9"))
"""


def run_printer(shell, **environment):
    command = ["sh", "-c", shell, "sh", sys.executable, PRINTER]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, check=False, env={**os.environ, **environment}
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "program", ['-c "$2"', '-u -c "$2"', '-c "$2" --help', "-m training.command_line --version"]
)
def test_full_or_closed_output_exits_with_one_line(program):
    for target, reason in ((">/dev/full", "No space left"), (">&-", "standard output is closed")):
        finished = run_printer(f'"$1" {program} {target}')
        (line,) = finished.stderr.decode().splitlines()
        assert line.startswith("error: ")
        assert reason in line
        assert finished.returncode == 1


@pytest.mark.skipif(os.name == "nt", reason="needs a shell")
def test_output_is_utf8_in_any_locale():
    for environment in ({}, {"PYTHONIOENCODING": "latin-1"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}):
        finished = run_printer('"$1" -c "$2"', **environment)
        assert finished.stdout == "한국어 caf".encode() + b"\xe9\n", finished.stderr
        assert finished.returncode == 0

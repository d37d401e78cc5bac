# SPDX-License-Identifier: Apache-2.0

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keras_bert import atomic
from keras_bert.checkpoints.folders import replaced_files
from keras_bert.export.deployment import deploy

pytestmark = pytest.mark.backend_independent

# Runs the module by its file, since importing the package takes seconds
WRITES_FOR_LONG = """
import runpy, sys, time
with runpy.run_path(sys.argv[1])["atomic_path"](sys.argv[2]) as temporary:
    temporary.write_text("half of")
    print("writing", flush=True)
    time.sleep(600)
"""


def hidden(folder):
    return [path for path in folder.iterdir() if path.name.startswith(".")]


def save_preset(folder):
    with replaced_files(folder) as files:
        (files / "config.json").write_text("{}")


def deploy_export(folder):
    export = folder.parent / "export"
    (export / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "variables/variables.index"):
        (export / name).touch()
    deploy(export, folder)


def test_a_killed_process_s_copies_are_removed_and_a_living_one_s_are_not(tmp_path):
    folder = tmp_path / "written"
    folder.mkdir()
    command = [sys.executable, "-c", WRITES_FOR_LONG, atomic.__file__, str(folder / "a.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"writing\n"
        (copy,) = hidden(folder)
        atomic.write_text(folder / "a.txt", "whole")
        assert (copy / "a.txt").read_text() == "half of"
        process.send_signal(signal.SIGKILL)
    assert hidden(folder) == [copy]
    # That of another machine, whose locks may not be seen here, may be in use.
    foreign = shutil.copytree(copy, copy.with_name(".b.txt.0.partial"))
    (foreign / ".process").write_text("another machine")
    writers = {
        "file": lambda folder: atomic.write_text(folder / "b.txt", ""),
        "preset": save_preset,
        "served": deploy_export,
    }
    for name, write in writers.items():
        copied_folder = shutil.copytree(folder, tmp_path / name)
        write(copied_folder)
        assert hidden(copied_folder) == [copied_folder / foreign.name], name


def test_several_write_one_file_at_once(tmp_path):
    with atomic.atomic_path(tmp_path / "a.txt") as first:
        first.write_text("first")
        with atomic.atomic_path(tmp_path / "a.txt") as second:
            second.write_text("second")
        assert (tmp_path / "a.txt").read_text() == "second"
    assert (tmp_path / "a.txt").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_failure_leaves_nothing(tmp_path, kind):
    (tmp_path / "target").write_text("older")

    def write(temporary):
        if kind == "folder":
            temporary.mkdir()
        (temporary / "a" if kind == "folder" else temporary).write_text("half of")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), atomic.atomic_path(tmp_path / "target") as temporary:
        write(temporary)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (tmp_path / "target").read_text() == "older"
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        atomic.write_text(tmp_path / "nowhere" / "a.txt", "")
    with pytest.raises(NotADirectoryError, match="target is not a folder"):
        atomic.write_text(tmp_path / "target" / "a.txt", "")
    assert Path(tmp_path / "target").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_file_on_a_full_disk_is_named(tmp_path):
    with (
        pytest.raises(OSError, match="No space left") as caught,
        atomic.atomic_path(tmp_path / "a.txt"),
        open("/dev/full", "w", encoding="utf-8") as file,
    ):
        file.write("a")
    assert caught.value.__notes__ == [f"while {tmp_path / 'a.txt'} was being written"]

# SPDX-License-Identifier: Apache-2.0

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from keras_bert import atomic
from keras_bert.checkpoints.directories import replaced_files
from keras_bert.export.deployment import deploy

pytestmark = pytest.mark.backend_independent

# Runs the module from its file, because importing the package takes seconds.
SLOW_WRITER = """
import runpy, sys, time
with runpy.run_path(sys.argv[1])["atomic_path"](sys.argv[2]) as temporary:
    temporary.write_text("half of")
    print("writing", flush=True)
    time.sleep(600)
"""


def list_hidden(directory):
    return [path for path in directory.iterdir() if path.name.startswith(".")]


def save_preset(directory):
    with replaced_files(directory) as files:
        (files / "config.json").write_text("{}")


def deploy_export(directory):
    export = directory.parent / "export"
    (export / "variables").mkdir(parents=True)
    for name in ("saved_model.pb", "variables/variables.index"):
        (export / name).touch()
    deploy(export, directory)


def test_only_copies_of_dead_processes_are_removed(tmp_path):
    directory = tmp_path / "written"
    directory.mkdir()
    command = [sys.executable, "-c", SLOW_WRITER, atomic.__file__, str(directory / "a.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"writing\n"
        (copy,) = list_hidden(directory)
        atomic.write_text(directory / "a.txt", "whole")
        assert (copy / "a.txt").read_text() == "half of"
        process.send_signal(signal.SIGKILL)
    assert list_hidden(directory) == [copy]
    # A copy from another machine may be in use, because its locks may not be visible here.
    other_copy = shutil.copytree(copy, copy.with_name(".b.txt.0.partial"))
    (other_copy / ".process").write_text("another machine")
    writers = {
        "file": lambda directory: atomic.write_text(directory / "b.txt", ""),
        "preset": save_preset,
        "served": deploy_export,
    }
    for name, write in writers.items():
        copied_directory = shutil.copytree(directory, tmp_path / name)
        write(copied_directory)
        assert list_hidden(copied_directory) == [copied_directory / other_copy.name], name


def test_concurrent_writes_of_one_file(tmp_path):
    with atomic.atomic_path(tmp_path / "a.txt") as first:
        first.write_text("first")
        with atomic.atomic_path(tmp_path / "a.txt") as second:
            second.write_text("second")
        assert (tmp_path / "a.txt").read_text() == "second"
    assert (tmp_path / "a.txt").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_failure_keeps_existing_file(tmp_path, kind):
    (tmp_path / "target").write_text("older")

    def write(temporary):
        if kind == "directory":
            temporary.mkdir()
        (temporary / "a" if kind == "directory" else temporary).write_text("half of")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), atomic.atomic_path(tmp_path / "target") as temporary:
        write(temporary)
    assert [path.name for path in tmp_path.iterdir()] == ["target"]
    assert (tmp_path / "target").read_text() == "older"
    with pytest.raises(FileNotFoundError, match=r"the directory .*nowhere does not exist"):
        atomic.write_text(tmp_path / "nowhere" / "a.txt", "")
    with pytest.raises(NotADirectoryError, match="target is not a directory"):
        atomic.write_text(tmp_path / "target" / "a.txt", "")
    assert Path(tmp_path / "target").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_full_disk_error_includes_path(tmp_path):
    with (
        pytest.raises(OSError, match="No space left") as caught,
        atomic.atomic_path(tmp_path / "a.txt"),
        open("/dev/full", "w", encoding="utf-8") as file,
    ):
        file.write("a")
    assert caught.value.__notes__ == [f"while {tmp_path / 'a.txt'} was being written"]


def test_special_files_are_kept(tmp_path):
    fifo, link, target = (tmp_path / name for name in ("fifo", "link", "target"))
    os.mkfifo(fifo)
    with open(os.open(fifo, os.O_RDWR), "rb", buffering=0) as reader:
        write_atomically(fifo, "piped")
        assert reader.read(5) == b"piped"
    assert fifo.is_fifo()
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to("target")
    atomic.write_text(link, "new")
    assert (link.is_symlink(), target.read_text()) == (True, "new")
    assert target.stat().st_mode & 0o777 == 0o600
    write_atomically(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()
    with open(target, "ab") as appended:
        atomic.write_text(f"/dev/fd/{appended.fileno()}", "er")
    assert target.read_text() == "newer"
    assert {path.name for path in tmp_path.iterdir()} == {"fifo", "link", "target"}


def write_atomically(path, text):
    with atomic.atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def test_mounted_file_is_overwritten(tmp_path, monkeypatch):
    (tmp_path / "mounted").write_text("the older, longer text")

    def raise_busy(new, target):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), target)

    with monkeypatch.context() as patched:
        with atomic.atomic_path(tmp_path / "mounted") as temporary:
            temporary.write_text("new")
            patched.setattr(os, "replace", raise_busy)
        patched.undo()
    assert (tmp_path / "mounted").read_text() == "new"
    (tmp_path / "mounted").chmod(0o400)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with (
        pytest.raises(PermissionError, match="mounted"),
        atomic.atomic_path(tmp_path / "mounted"),
    ):
        raise AssertionError("found only after the work")


@pytest.mark.parametrize("is_native", [True, False])
def test_exchange_keeps_both(tmp_path, monkeypatch, is_native):
    if not is_native:
        monkeypatch.setattr(atomic, "_exchanged", lambda *names: False)
    (tmp_path / "new").write_text("a file")
    (tmp_path / "old" / "inner").mkdir(parents=True)
    (tmp_path / ".old.replaced").mkdir()  # Left by a killed process
    atomic.exchange(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "a file"
    names = [".old.replaced", "inner", "new", "old"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == names
    with pytest.raises(OSError, match="none"):
        atomic.exchange(tmp_path / "none", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "a file"


def test_temporary_name_fits_byte_limit(tmp_path):
    name = "\uac00" * 80 + ".jsonl"
    atomic.write_text(tmp_path / name, "long")
    assert [path.name for path in tmp_path.iterdir()] == [name]

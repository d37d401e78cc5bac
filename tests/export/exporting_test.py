# SPDX-License-Identifier: Apache-2.0
"""Exports are written atomically."""

import stat

import pytest

from keras_bert import atomic
from keras_bert.export import exporting
from keras_bert.export.exporting import NEW_DIRECTORY, atomic_destination

pytestmark = pytest.mark.backend_independent


def test_failed_export_keeps_previous_export(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "old").touch()

    def export() -> None:
        with atomic_destination([tmp_path / "1"]) as directory:
            (directory / NEW_DIRECTORY / "1").mkdir()
            raise RuntimeError("no more disk")

    with pytest.raises(RuntimeError, match="no more disk"):
        export()
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["1", "1/old"]


@pytest.mark.parametrize("old", [None, "file", "directory"])
def test_new_export_replaces_previous_export(tmp_path, old):
    path = tmp_path / "models" / "sst2" / "1"
    if old == "file":
        path.parent.mkdir(parents=True)
        path.touch()
    if old == "directory":
        path.mkdir(parents=True)
        (path / "old").touch()
    with atomic_destination([path]) as directory:
        (directory / NEW_DIRECTORY / "1").mkdir()
        (directory / NEW_DIRECTORY / "1" / "new").touch()
    assert [file.name for file in path.iterdir()] == ["new"]
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & stat.S_IROTH  # A server may run as another user.


@pytest.mark.parametrize("failing", ["x.bin", "x.xml"])
def test_export_failure_keeps_both_files(tmp_path, monkeypatch, failing):
    paths = [tmp_path / "x.xml", tmp_path / "x.bin"]
    for path in paths:
        path.write_text("old")

    def exchange(new, path):
        if path.name == failing and new.read_text() == "new":
            raise KeyboardInterrupt
        atomic.exchange(new, path)

    monkeypatch.setattr(exporting, "exchange", exchange)

    def export() -> None:
        with atomic_destination(paths) as directory:
            for path in paths:
                (directory / NEW_DIRECTORY / path.name).write_text("new")

    with pytest.raises(KeyboardInterrupt):
        export()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "x.xml": "old",
        "x.bin": "old",
    }

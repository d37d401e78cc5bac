# SPDX-License-Identifier: Apache-2.0
"""Deployments are atomic: a new version appears complete or not at all."""

import os
import shutil
import stat

import pytest

from keras_bert.export import deploy

pytestmark = pytest.mark.backend_independent


@pytest.fixture
def export(tmp_path):
    directory = tmp_path / "export" / "1"
    (directory / "variables").mkdir(parents=True)
    (directory / "saved_model.pb").write_bytes(b"graph")
    (directory / "variables" / "variables.index").write_bytes(b"weights")
    return directory


def read_files(directory):
    return {
        path.relative_to(directory).as_posix(): path.read_bytes() for path in directory.rglob("*.*")
    }


def test_version_numbers_increase(export, tmp_path):
    base = tmp_path / "models" / "sst2"
    assert [deploy(export, base).name for _ in range(2)] == ["1", "2"]
    (base / "9").mkdir()
    (base / "notes").mkdir()
    version = deploy(str(export), str(base))
    assert version == base / "10"
    assert read_files(version) == read_files(export)
    assert version.stat().st_mode & stat.S_IROTH  # A server may run as another user.
    assert sorted(path.name for path in base.iterdir()) == ["1", "10", "2", "9", "notes"]


def test_version_appears_after_copying(export, tmp_path, monkeypatch):
    base = tmp_path / "base"
    copy, versions = shutil.copy2, []

    def copy_and_record(*arguments, **options):
        versions.append([path.name for path in base.iterdir() if path.name.isdecimal()])
        return copy(*arguments, **options)

    # `copytree` binds its default copy function at definition.
    monkeypatch.setattr(
        shutil.copytree, "__defaults__", (False, None, copy_and_record, False, False)
    )
    deploy(export, base)
    assert versions == [[], []]


def test_concurrent_deploys_get_distinct_versions(export, tmp_path, monkeypatch):
    base, rename = tmp_path / "base", os.rename

    def rename_after_competitor(source, target):
        monkeypatch.setattr(os, "rename", rename)
        shutil.copytree(export, target)
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_after_competitor)
    assert deploy(export, base) == base / "2"
    assert read_files(base / "1") == read_files(base / "2")


def test_incomplete_export_raises(export, tmp_path):
    (export / "variables" / "variables.index").unlink()
    with pytest.raises(
        ValueError,
        match=r"export must be a complete SavedModel\. Received: .* without "
        r"variables/variables\.index",
    ):
        deploy(export, tmp_path / "base")
    assert not (tmp_path / "base").exists()


def test_file_as_base_path_raises(export, tmp_path):
    (tmp_path / "models").write_text("")
    for base in (tmp_path / "models", tmp_path / "models" / "sst2"):
        with pytest.raises(NotADirectoryError, match=r"cannot be a directory: .*models is a file"):
            deploy(export, base)

# SPDX-License-Identifier: Apache-2.0
"""A new version of a model appears whole or not at all."""

import os
import shutil
import stat

import pytest

from keras_bert.export import deploy

pytestmark = pytest.mark.backend_independent


@pytest.fixture
def export(tmp_path):
    folder = tmp_path / "export" / "1"
    (folder / "variables").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(b"graph")
    (folder / "variables" / "variables.index").write_bytes(b"weights")
    return folder


def files_in(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.*")}


def test_versions_follow_one_another(export, tmp_path):
    base = tmp_path / "models" / "sst2"
    assert [deploy(export, base).name for _ in range(2)] == ["1", "2"]
    (base / "9").mkdir()
    (base / "notes").mkdir()
    version = deploy(str(export), str(base))
    assert version == base / "10"
    assert files_in(version) == files_in(export)
    assert version.stat().st_mode & stat.S_IROTH  # a server may run as another user
    assert sorted(path.name for path in base.iterdir()) == ["1", "10", "2", "9", "notes"]


def test_while_it_copies_there_is_no_new_version(export, tmp_path, monkeypatch):
    base = tmp_path / "base"
    copy, seen = shutil.copy2, []

    def watched(*arguments, **options):
        seen.append([path.name for path in base.iterdir() if path.name.isdecimal()])
        return copy(*arguments, **options)

    # The default of `copytree`, which is bound when it is defined
    monkeypatch.setattr(shutil.copytree, "__defaults__", (False, None, watched, False, False))
    deploy(export, base)
    assert seen == [[], []]


def test_concurrent_deploys_get_distinct_versions(export, tmp_path, monkeypatch):
    base, rename = tmp_path / "base", os.rename

    def beaten(source, target):
        monkeypatch.setattr(os, "rename", rename)
        shutil.copytree(export, target)
        rename(source, target)

    monkeypatch.setattr(os, "rename", beaten)
    assert deploy(export, base) == base / "2"
    assert files_in(base / "1") == files_in(base / "2")


def test_half_an_export_is_refused(export, tmp_path):
    (export / "variables" / "variables.index").unlink()
    with pytest.raises(ValueError, match=r"has no variables/variables\.index"):
        deploy(export, tmp_path / "base")
    assert not (tmp_path / "base").exists()


def test_a_file_is_no_base_path(export, tmp_path):
    (tmp_path / "models").write_text("")
    for base in (tmp_path / "models", tmp_path / "models" / "sst2"):
        with pytest.raises(NotADirectoryError, match=r"cannot be a directory: .*models is a file"):
            deploy(export, base)

# SPDX-License-Identifier: Apache-2.0

import errno
import gzip
import importlib.util
import os

import fsspec
import pytest

pytestmark = pytest.mark.backend_independent

from keras_bert.data.file_systems import InputFile, find_files, open_file  # noqa: E402
from keras_bert.data.pretraining.corpus import read_corpus  # noqa: E402


@pytest.fixture
def directory():
    """The URL of a directory on a remote file system."""
    system = fsspec.filesystem("memory")
    content = {
        "b.txt": b"Rain.\n",
        "a.txt.gz": gzip.compress(b"One.\nTwo.\n"),
        "more/c.jsonl": b'{"text": "Three."}\n',
        "_SUCCESS": b"",
        ".hidden.txt": b"x",
    }
    for name, value in content.items():
        system.pipe(f"/corpus/{name}", value)
    yield "memory://corpus"
    system.rm("/corpus", recursive=True)


def test_listed_files_can_be_opened(directory):
    for file in find_files(directory):
        assert file.path.startswith("memory://")
        with open_file(file.path) as opened:
            assert len(opened.read()) == file.size
    path = find_files(f"{directory}/a*")[0].path
    assert list(read_corpus(path)) == ["One.", "Two.", None]
    with pytest.raises(FileNotFoundError):
        list(read_corpus(f"{directory}/nothing.txt"))


def test_missing_file_system_error():
    with pytest.raises(ValueError, match=r"unknown://b/\*.txt cannot be read: Protocol not known"):
        find_files("unknown://b/*.txt")
    if not importlib.util.find_spec("s3fs"):
        with pytest.raises(ImportError, match=r"s3://bucket/a.txt cannot be read: Install s3fs"):
            open_file("s3://bucket/a.txt")


def test_local_path_is_not_a_url(tmp_path):
    (tmp_path / "a.txt").write_text("One.\n")
    assert InputFile(str(tmp_path / "a.txt"), 5).name == "a.txt"
    with open_file(tmp_path / "a.txt") as file:
        assert file.read() == b"One.\n"


TREE = [
    "a.txt",
    "b/a.txt",
    "b/c/d.txt",
    "b/e.md",
    "f[1].txt",
    "f1.txt",
    "g[en]/a.txt",
    ".git/config.txt",
    "b/.ipynb_checkpoints/a.txt",
    "_logs/part.txt",
    "b/_SUCCESS",
]
FILES_BY_PATTERN = {
    "": [
        *("_logs/part.txt", "a.txt", "b/a.txt", "b/c/d.txt", "b/e.md", "f1.txt", "f[1].txt"),
        "g[en]/a.txt",
    ],
    "/*": ["a.txt", "f1.txt", "f[1].txt"],
    "/**/*.txt": [
        *("_logs/part.txt", "a.txt", "b/a.txt", "b/c/d.txt", "f1.txt", "f[1].txt", "g[en]/a.txt"),
    ],
    "/b/**": ["b/a.txt", "b/c/d.txt", "b/e.md"],
    "/*/a.txt": ["b/a.txt", "g[en]/a.txt"],
    "/**/c/*": ["b/c/d.txt"],
    "/f[1].txt": ["f[1].txt"],
    "/f[2-9].txt": [],
    "/f?.txt": ["f1.txt"],
    "/g[en]": ["g[en]/a.txt"],
    "/g[en]/*.txt": ["g[en]/a.txt"],
    "/.git": [".git/config.txt"],
    "/.*/*": [".git/config.txt"],
    "/**/_*": ["b/_SUCCESS"],
    "/b/_SUCCESS": ["b/_SUCCESS"],
    "/none": [],
    "/none/*": [],
}


@pytest.mark.parametrize("is_remote", [False, True])
def test_patterns_on_local_and_remote_files(is_remote, tmp_path, monkeypatch):
    root = "memory://tree" if is_remote else tmp_path.as_posix()
    system = fsspec.filesystem("memory" if is_remote else "file", auto_mkdir=True)
    for name in TREE:
        system.pipe(f"/tree/{name}" if is_remote else f"{root}/{name}", b"text")
    roots = [root]
    if not is_remote:
        monkeypatch.chdir(tmp_path.parent)
        roots += [tmp_path.name, f"./{tmp_path.name}"]
    for directory in roots:
        for pattern, names in FILES_BY_PATTERN.items():
            actual = [file.path for file in find_files(directory + pattern)]
            assert [path.removeprefix(f"{directory}/") for path in actual] == names, pattern
    if is_remote:
        system.rm("/tree", recursive=True)
    else:
        monkeypatch.chdir(tmp_path)
        assert [file.path for file in find_files("*.txt")] == ["a.txt", "f1.txt", "f[1].txt"]


def test_links_are_followed_once(tmp_path):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("text")
    (tmp_path / "corpus" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "corpus" / "twin").symlink_to(tmp_path / "other")
    (tmp_path / "other" / "loop").symlink_to(tmp_path / "other")
    (tmp_path / "corpus" / "gone.txt").symlink_to(tmp_path / "gone")
    for pattern in ("corpus", "corpus/**/*.txt"):
        (file,) = find_files(tmp_path / pattern)
        assert file == InputFile(f"{tmp_path.as_posix()}/corpus/link/a.txt", 4)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_link_targets_are_listed(tmp_path, scheme):
    for name in ("v1/a.txt", "v2/b.txt", ".cache/t/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("text")
    (tmp_path / "latest").symlink_to("v2")
    (tmp_path / "texts").symlink_to(".cache/t")
    actual = {
        pattern: [file.name for file in find_files(f"{scheme}{tmp_path.as_posix()}/{pattern}")]
        for pattern in ("v*/*.txt", "latest/*", "texts", "*")
    }
    assert actual == {
        "v*/*.txt": ["a.txt", "b.txt"],
        "latest/*": ["b.txt"],
        "texts": ["x.txt"],
        "*": [],
    }
    if not scheme:
        actual = [file.path for file in find_files(tmp_path)]
        names = ["latest/b.txt", "texts/x.txt", "v1/a.txt"]
        assert actual == [f"{tmp_path.as_posix()}/{name}" for name in names]


def test_unreadable_directory_raises(tmp_path, monkeypatch):
    def raise_permission_error(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "scandir", raise_permission_error)
    with pytest.raises(PermissionError, match=tmp_path.name):
        find_files(tmp_path)

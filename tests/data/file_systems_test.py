# SPDX-License-Identifier: Apache-2.0

import gzip
import importlib.util

import fsspec
import pytest

pytestmark = pytest.mark.backend_independent

from keras_bert.data.file_systems import InputFile, find_urls, open_file  # noqa: E402
from keras_bert.data.pretraining.corpus import read_corpus  # noqa: E402


@pytest.fixture
def folder():
    """The URL of a folder on a file system that is not the machine's."""
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


def names(pattern):
    return [(file.name, file.size) for file in find_urls(pattern)]


def test_files_of_a_url_are_found_by_name(folder):
    zipped = len(gzip.compress(b"One.\nTwo.\n"))
    assert names(folder) == [("a.txt.gz", zipped), ("b.txt", 6), ("c.jsonl", 19)]
    assert names(f"{folder}/*.txt*") == [("a.txt.gz", zipped), ("b.txt", 6)]
    assert names(f"{folder}/b.txt") == [("b.txt", 6)]
    assert names(f"{folder}/nothing*") == []
    assert names(f"{folder}/_SUCCESS") == [("_SUCCESS", 0)]


def test_listed_files_can_be_opened(folder):
    for file in find_urls(folder):
        assert file.path.startswith("memory://")
        with open_file(file.path) as opened:
            assert len(opened.read()) == file.size
    path = find_urls(f"{folder}/a*")[0].path
    assert list(read_corpus(path)) == ["One.", "Two.", None]
    with pytest.raises(FileNotFoundError):
        list(read_corpus(f"{folder}/nothing.txt"))


def test_a_file_system_that_is_not_installed_is_named():
    with pytest.raises(ValueError, match=r"unknown://b/\*.txt cannot be read: Protocol not known"):
        find_urls("unknown://b/*.txt")
    if not importlib.util.find_spec("s3fs"):
        with pytest.raises(ImportError, match=r"s3://bucket/a.txt cannot be read: Install s3fs"):
            open_file("s3://bucket/a.txt")


def test_a_path_of_this_machine_is_no_url(tmp_path):
    (tmp_path / "a.txt").write_text("One.\n")
    assert InputFile(str(tmp_path / "a.txt"), 5).name == "a.txt"
    with open_file(tmp_path / "a.txt") as file:
        assert file.read() == b"One.\n"

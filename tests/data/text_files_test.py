# SPDX-License-Identifier: Apache-2.0

import gzip
import io
import json

import pytest

from keras_bert.data.conll import read_conll
from keras_bert.data.pretraining.corpus import read_corpus
from keras_bert.data.squad import SquadError, load_json
from keras_bert.data.text_files import decoded_lines, read_lines

pytestmark = pytest.mark.backend_independent

LINES = ["naïve\t1\r\n", "\n", "a\u2028b\x85c\r\n", "😀"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("compressed", [False, True])
def test_encoding_and_compression_are_recognized(tmp_path, encoding, compressed):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    content = (mark + "".join(LINES)).encode(encoding)
    content = gzip.compress(content) if compressed else content
    path = tmp_path / "a.tsv"
    path.write_bytes(content)
    assert list(read_lines(path)) == LINES
    assert list(decoded_lines(io.BytesIO(content), "standard input")) == LINES


def test_every_reader_takes_them(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("Zoë B-PER\nsang O\n".encode("utf-16"))
    assert read_conll(path).words == [["Zoë", "sang"]]
    assert list(read_corpus(path)) == ["Zoë B-PER", "sang O", None]
    path.write_bytes(gzip.compress(json.dumps({"ë": [1]}, ensure_ascii=False).encode("utf-16")))
    assert load_json(path) == {"ë": [1]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\nb\xffd\n", "line 2: expected UTF-8, found byte 0xff at position 1 .* `iconv -f"),
        (gzip.compress(b"x\n" * 99, mtime=0)[:-9], "cannot be read past line"),
        ("text\n".encode("utf-16-le"), "NUL bytes as in UTF-16 .* `iconv -f UTF-16LE"),
        ("text\n".encode("utf-16-be"), "NUL bytes as in UTF-16 .* `iconv -f UTF-16BE"),
        ("a\nb\n".encode("utf-16") + b"c", "line 3: the byte order mark is UTF-16's, but"),
        (b"PK\x03\x04...", "the file is a ZIP archive, as .xlsx files are; save it as CSV"),
        (b"PAR1...", "the file is a Parquet file; save it"),
    ],
)
def test_files_that_are_not_text_are_named(tmp_path, content, message):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    for read in (lambda path: list(read_lines(path)), read_conll, lambda p: list(read_corpus(p))):
        with pytest.raises(ValueError, match=rf"a\.txt.*{message}"):
            read(path)
    with pytest.raises(SquadError, match=rf"a\.txt.*{message}"):
        load_json(path)

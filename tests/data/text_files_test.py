# SPDX-License-Identifier: Apache-2.0

import gzip
import io
import json
import re
import subprocess

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


def test_readers_accept_utf_16_and_gzip(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("Zoë B-PER\nsang O\n".encode("utf-16"))
    assert read_conll(path).words == [["Zoë", "sang"]]
    assert list(read_corpus(path)) == ["Zoë B-PER", "sang O", None]
    path.write_bytes(gzip.compress(json.dumps({"ë": [1]}, ensure_ascii=False).encode("utf-16")))
    assert load_json(path) == {"ë": [1]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"good\nb\xffd\n",
            "line 2: the file must be UTF-8. Received: byte 0xff at position 1 .* `iconv -f",
        ),
        (gzip.compress(b"x\n" * 99, mtime=0)[:-9], "cannot be read past line"),
        (
            "text\n".encode("utf-16-le"),
            "NUL bytes, as in UTF-16 without a byte order mark. `iconv -f UTF-16LE",
        ),
        (
            "text\n".encode("utf-16-be"),
            "NUL bytes, as in UTF-16 without a byte order mark. `iconv -f UTF-16BE",
        ),
        ("a\nb\n".encode("utf-16") + b"c", "line 3: the byte order mark is for UTF-16, but"),
        (b"PK\x03\x04...", "Received: a ZIP archive, such as an .xlsx file. Save it as CSV"),
        (b"PAR1...", "Received: a Parquet file. Save it"),
    ],
)
def test_non_text_file_error_includes_fix(tmp_path, content, message):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    for read in (lambda path: list(read_lines(path)), read_conll, lambda p: list(read_corpus(p))):
        with pytest.raises(ValueError, match=rf"a\.txt.*{message}"):
            read(path)
    with pytest.raises(SquadError, match=rf"a\.txt.*{message}"):
        load_json(path)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp949", "리뷰,별점\n배송이 빠르고 좋아요,5\n"),
        ("shift_jis", "本文,評価\nこの製品は大変良いです。,5\n"),
        ("gb18030", "评论,评分\n这部电影很好看，我非常喜欢。,5\n"),
        ("cp1251", "отзыв,оценка\nОчень хороший фильм.,5\n"),
        ("cp1252", "avis,note\nLe café était très agréable à Genève,5\n"),
    ],
)
def test_read_lines_encoding_advice(tmp_path, encoding, text):
    path = tmp_path / "my reviews.csv"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(ValueError, match="the line is") as error:
        list(read_lines(path))
    follow_advice(str(error.value))
    assert "".join(read_lines(tmp_path / "my reviews.utf8.csv")) == text


def test_read_lines_advice_for_single_bytes(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("리뷰가 좋아요\n".encode() + b"a\xffb\n")
    with pytest.raises(ValueError, match="removes the invalid bytes") as error:
        list(read_lines(path))
    follow_advice(str(error.value))
    assert list(read_lines(tmp_path / "a.utf8.txt")) == ["리뷰가 좋아요\n", "ab\n"]


def follow_advice(message):
    """Runs the command in backticks. `iconv -c` exits with 1 if it removed a byte."""
    subprocess.run(re.search("`(.*)`", message)[1], shell=True, check="-c" not in message)

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
            "line 2: the file must be UTF-8. Received: bytes ff 64 0a at position 1 .* "
            "encodings: .*CP1252 'bÿd'.* Pass the right encoding, such as encoding='cp125",
        ),
        (gzip.compress(b"x\n" * 99, mtime=0)[:-9], "cannot be read past line"),
        (gzip.compress(b"b\xffd\n" * 99, mtime=0)[:-9], "line 1: the file must be UTF-8"),
        (
            "text\n".encode("utf-16-le"),
            "NUL bytes, as in UTF-16 without a byte order mark. Pass encoding='utf-16-le'",
        ),
        (
            "text\n".encode("utf-16-be"),
            "NUL bytes, as in UTF-16 without a byte order mark. Pass encoding='utf-16-be'",
        ),
        ("a\nb\n".encode("utf-16") + b"c", "line 3: the file must be UTF-16, like its"),
        (b"\xe9\x00\x01\x81\xfe\x90\x8d\n", "line 1: .* No common encoding fits these bytes"),
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


TEXTS = {
    "ko": [
        "배송이 빠르고 좋아요.",
        "영화가 정말 지루했다.",
        "첫째",
        "값에 비해 품질이 뛰어납니다.",
    ],
    "ja": ["この製品は大変良いです。", "カメラの電池がすぐ切れる。", "商品がまだ届いていません。"],
    "zh-cn": ["这部电影很好看，我非常喜欢。", "我订的商品还没有送到。", "客服的态度太差了。"],
    "zh-tw": ["這部電影很好看，我非常喜歡。", "我訂的商品還沒有送到。", "客服的態度太差了。"],
    "ru": ["Очень хороший фильм.", "Мой заказ не пришёл.", "Батарея быстро садится."],
    "fr": ["Le café était très agréable.", "Le colis n’est pas arrivé.", "Où est-il passé ?"],
}


@pytest.mark.parametrize(
    ("language", "encoding"),
    [
        ("ko", "cp949"),
        ("ko", "euc-kr"),
        ("ja", "cp932"),
        ("ja", "euc-jp"),
        ("zh-cn", "gbk"),
        ("zh-tw", "big5"),
        ("ru", "cp1251"),
        ("ru", "koi8-r"),
        ("fr", "cp1252"),
    ],
)
def test_error_names_the_encoding_that_reads_it(tmp_path, language, encoding):
    path = tmp_path / "reviews.csv"
    texts = TEXTS[language]
    # A pair of lines, all lines, and more than the sample that the encoding is guessed from.
    for lines in (texts[:2], texts, texts * 300):
        text = "".join(f"{line},{number}\n" for number, line in enumerate(["review", *lines]))
        path.write_bytes(text.encode(encoding))
        with pytest.raises(ValueError, match="line 2: the file must be UTF-8") as error:
            list(read_lines(path))
        listed = str(error.value).partition("likely encodings: ")[2]
        named = [name.lower() for name in re.findall(r"([A-Z][A-Z0-9-]+) '", listed)]
        assert 1 <= len(named) <= 3
        assert f"(--encoding={named[0]} in commands)" in listed
        assert any(path.read_bytes().decode(name, "replace") == text for name in named)
        assert "".join(read_lines(path, encoding)) == text


def test_wrong_encoding_is_reported(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("리뷰,별점\n배송이 빠르고,5\n", encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"line 2: the file must be CP949. Received: bytes ec .*UTF-8 '배송이"
    ):
        list(read_lines(path, "cp949"))
    path.write_text("naïve,1\n", encoding="utf-8")
    with pytest.warns(UserWarning, match="read as CP1252, but all .* valid UTF-8"):
        list(read_lines(path, "cp1252"))
    with pytest.raises(ValueError, match=r"text encoding in Python, .* Received: 'base64'"):
        list(read_lines(path, "base64"))
    path.write_text("naïve,1\n", encoding="utf-16")  # The byte order mark takes precedence.
    assert list(read_lines(path, "cp949")) == ["naïve,1\n"]
    path.write_bytes("naïve,1\n".encode("utf-16-le"))
    assert list(read_lines(path, "utf-16-le")) == ["naïve,1\n"]


def test_read_lines_advice_for_single_bytes(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("리뷰가 좋아요\n".encode() + b"a\xffb\n")
    with pytest.raises(ValueError, match="removes the invalid bytes") as error:
        list(read_lines(path))
    # `iconv -c` exits with 1 if it removed a byte.
    subprocess.run(re.search("`(.*)`", str(error.value))[1], shell=True, check=False)
    assert list(read_lines(tmp_path / "a.utf8.txt")) == ["리뷰가 좋아요\n", "ab\n"]

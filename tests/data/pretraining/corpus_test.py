# SPDX-License-Identifier: Apache-2.0

import gzip
import re

import pyarrow
import pytest
from pyarrow import parquet

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert.data.pretraining.corpus import read_corpus, sentence_splitter  # noqa: E402

WIKITEXT = """
 = Robert Boulter =

 Robert Boulter is an actor . He had a role in 2000 .

 = = Career = =

 In 2006 , he starred .

 = = = Stage = = =

 = Another = article =

 = Played , W =
 x = 5 is text .
"""


def read_bytes_as_corpus(path, content, *args, **options):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_corpus(path, *args, **options))


def test_blank_lines_end_documents(tmp_path):
    content = "\n\n  One. \nTwo.\r\n\n\t\nThree.\n   \n"
    assert read_bytes_as_corpus(tmp_path / "a.txt", content) == [
        "One.",
        "Two.",
        None,
        "Three.",
        None,
    ]
    assert read_bytes_as_corpus(tmp_path / "a.txt", "\n \n") == []
    assert read_bytes_as_corpus(tmp_path / "a.txt", "") == []


def test_document_ends_files(tmp_path):
    sentences = read_bytes_as_corpus(tmp_path / "a.txt", "One.\n\nTwo.", document_ends="files")
    assert sentences == ["One.", "Two.", None]


def test_document_ends_wikitext(tmp_path):
    sentences = read_bytes_as_corpus(
        tmp_path / "a.txt", WIKITEXT, "paragraphs", document_ends="wikitext"
    )
    assert sentences == [
        "Robert Boulter is an actor .",
        "He had a role in 2000 .",
        "In 2006 , he starred .",
        None,
        "= Played , W =",
        "x = 5 is text .",
        None,
    ]


def test_paragraphs_are_split_by_language(tmp_path):
    english = read_bytes_as_corpus(tmp_path / "a.txt", "Dr. Smith left. He ran!", "paragraphs")
    assert english == ["Dr. Smith left.", "He ran!", None]
    chinese = read_bytes_as_corpus(tmp_path / "a.txt", "你好。再见!", "paragraphs", language="zh")
    assert chinese == ["你好。", "再见!", None]
    assert sentence_splitter("de")("Am 3. Mai kam er. Sie auch.") == [
        "Am 3. Mai kam er. ",
        "Sie auch.",
    ]


def test_json_lines_are_documents(tmp_path):
    content = '{"text": "A cat. It sat.\\nA dog.", "id": 1}\n\n{"text": " "}\n{"text": "Rain."}\n'
    expected = ["A cat.", "It sat.", "A dog.", None, "Rain.", None]
    assert read_bytes_as_corpus(tmp_path / "a.jsonl", content) == expected
    assert read_bytes_as_corpus(tmp_path / "a.txt", content, "jsonl") == expected
    renamed = content.replace('"text"', '"body"')
    assert read_bytes_as_corpus(tmp_path / "b.ndjson", renamed, field="body") == expected


def test_parquet_rows_are_documents(tmp_path):
    texts = ["A cat. It sat.\nA dog.", " ", "Rain."]
    path = tmp_path / "a.parquet"
    rows = [{"text": text, "id": number} for number, text in enumerate(texts)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)
    expected = ["A cat.", "It sat.", "A dog.", None, "Rain.", None]
    assert list(read_corpus(path)) == list(read_corpus(path, "parquet")) == expected
    with open(path, "rb") as file:
        assert list(read_corpus("another.parquet", file=file)) == expected
    with pytest.raises(
        ValueError,
        match=r"a.parquet: the column 'body' is missing. The columns are \['text', 'id'\]",
    ):
        list(read_corpus(path, field="body"))
    with pytest.raises(
        ValueError, match=r"a.parquet, row 1: 'id' must be a string, but it is of type int"
    ):
        list(read_corpus(path, field="id"))
    rows[2]["text"] = None
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with pytest.raises(
        ValueError, match=r"a.parquet, row 3: 'text' must be a string, but it is of type NoneType"
    ):
        list(read_corpus(path))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"a.parquet: cannot be read past row 0"):
        list(read_corpus(path))
    table = pyarrow.table([["A cat."], ["A dog."]], names=["text", "text"])
    parquet.write_table(table, path)
    with pytest.raises(ValueError, match=r"a.parquet: the column 'text' is duplicated"):
        list(read_corpus(path))
    parquet.write_table(table.select([0]), path, compression="none", write_page_checksum=True)
    path.write_bytes(path.read_bytes().replace(b"A cat.", b"A bat.", 1))
    with pytest.raises(ValueError, match=r"a.parquet: cannot be read past row 0: .*CRC checksum"):
        list(read_corpus(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"good\nb\xffd\n", "a.txt, line 2: the file must be UTF-8"),
        ("a.jsonl", b'{"text": "good"}\n{"text": ', "a.jsonl, line 2: each line must be JSON"),
        (
            "a.jsonl",
            b'\n["text"]\n',
            "a.jsonl, line 2: each line must be a JSON object. Received: list",
        ),
        (
            "a.jsonl",
            b'{"body": "x"}\n',
            r"line 1: 'text' must be a string, but it is missing. The keys are \['body'\]",
        ),
        (
            "a.jsonl",
            b'{"text": "\\ud83d"}\n',
            "line 1: 'text' must not contain a lone surrogate",
        ),
        ("a.jsonl", b"9" * 5000, "line 1: each line must be JSON"),
        ("a.jsonl", b'{"text": 5}\n', "line 1: 'text' must be a string, but it is of type int"),
        (
            "a.txt.gz",
            gzip.compress(b"x\n" * 99, mtime=0)[:-9],
            "a.txt.gz: cannot be read past line",
        ),
    ],
)
def test_invalid_input_error_includes_line(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_bytes_as_corpus(tmp_path / name, content)


def test_invalid_options_raise_before_reading(tmp_path):
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path / "none.txt"))):
        read_corpus(tmp_path / "none.txt")
    with pytest.raises(ValueError, match="format must be one of auto"):
        read_corpus(tmp_path, "pdf")
    with pytest.raises(ValueError, match="document_ends must be one of blank_lines"):
        read_corpus(tmp_path, document_ends="never")

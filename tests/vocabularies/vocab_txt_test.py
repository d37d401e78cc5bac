# SPDX-License-Identifier: Apache-2.0
"""Reads and writes vocabulary files, and tests their errors."""

import pytest

from keras_bert.vocabularies.vocab_txt import load_vocabulary, save_vocabulary
from tests.text import real_text, vocabularies

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"


def write_and_load(directory, content):
    path = directory / "vocab.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_vocabulary(path)


def test_load_released_vocabulary():
    assert (
        load_vocabulary(vocabularies.released_vocabulary_file())
        == vocabularies.released_vocabulary()
    )
    assert len(vocabularies.released_vocabulary()) == 30_522


@real_text.requires_data
@pytest.mark.parametrize(
    ("name", "size"), [("uncased", 30_522), ("cased", 28_996), ("chinese", 21_128)]
)
def test_released_vocabularies_round_trip(name, size, tmp_path):
    tokens = real_text.vocabulary(name)
    assert len(tokens) == size
    save_vocabulary(tokens, tmp_path / "vocab.txt")
    original = real_text.data_directory() / "vocab" / f"bert-base-{name}.txt"
    assert (tmp_path / "vocab.txt").read_bytes() == original.read_bytes()


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        (SPECIAL + "the\n##s", ["the", "##s"]),
        (SPECIAL + "the\n##s\n\n\n", ["the", "##s"]),
        ("\ufeff" + SPECIAL + "the", ["the"]),
        (SPECIAL.replace("\n", "\r\n") + "the\r\n##s\r\n", ["the", "##s"]),
        (SPECIAL + " the\t\n##s\xa0\n", ["the", "##s"]),
        (
            SPECIAL + "\u2028\n##\u2028\n##\n\u3000\nthe\x85",
            ["\u2028", "##\u2028", "##", "\u3000", "the"],
        ),
        (SPECIAL + "a\x0bb\n\x1ca\u2029b", ["a\x0bb", "a\u2029b"]),
    ],
)
def test_lines_are_stripped_tokens(tmp_path, content, tokens):
    assert write_and_load(tmp_path, content)[4:] == tuple(tokens)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (SPECIAL + "the\na\nthe\na\nthe\n", r"vocab\.txt must not contain duplicates: 'the' "
         r"\(line 5, line 7, line 9\), 'a' \(line 6, line 8\)\.$"),
        (SPECIAL + "the\nthe \n", r"'the' \(line 5, line 6\)"),
        (SPECIAL + "".join(f"{n}\n{n}\n" for n in range(7)), r"'4' .line 13, line 14. and 2 more"),
        (SPECIAL + "the\n\nof\n", r"vocab\.txt must not contain an empty token: line 6\."),
        ("[PAD]\n[CLS]\nthe\n", r"Received: 3 tokens without \[UNK\], \[SEP\]"),
        ("", r"must contain \[PAD\], .* \[SEP\]. Received: 0 tokens without \[PAD\]"),
        (SPECIAL.encode() + b"caf\xe9\n", r"txt, line 5 must be UTF-8. Received: b'caf\\xe9'"),
    ],
)  # fmt: skip
def test_invalid_vocabulary_raises(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        write_and_load(tmp_path, content)


def test_load_missing_file_or_directory(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.txt does not exist. Pass a file with"):
        load_vocabulary(tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError, match=r"is a directory. Pass a file"):
        load_vocabulary(tmp_path)


def test_save_replaces_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("old")
    tokens = (*SPECIAL.split(), "the", "é", "##中")
    save_vocabulary(tokens, str(path))
    assert path.read_bytes().decode() == SPECIAL + "the\né\n##中\n"
    assert load_vocabulary(path) == tokens
    assert list(tmp_path.iterdir()) == [path]


def test_save_to_missing_directory_raises(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"the directory {tmp_path / 'missing'} does not"):
        save_vocabulary(["[PAD]"], tmp_path / "missing" / "vocab.txt")


@pytest.mark.parametrize("token", ["a\nb", "the ", "\tthe", ""])
def test_save_rejects_invalid_tokens(tmp_path, token):
    with pytest.raises(
        ValueError,
        match=r"tokens must not be empty, have whitespace around them or contain line breaks. "
        r"Received: .* \(token 4\)",
    ):
        save_vocabulary([*SPECIAL.split(), token], tmp_path / "vocab.txt")
    assert list(tmp_path.iterdir()) == []

# SPDX-License-Identifier: Apache-2.0
"""Vocabulary files: reading, writing and errors."""

import pytest

from keras_bert.vocabularies.vocab_txt import load_vocabulary, save_vocabulary
from tests.text import real_text, vocabularies

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n"


def load(folder, content):
    path = folder / "vocab.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return load_vocabulary(path)


def test_the_released_vocabulary():
    assert (
        load_vocabulary(vocabularies.released_vocabulary_file())
        == vocabularies.released_vocabulary()
    )
    assert len(vocabularies.released_vocabulary()) == 30_522


@real_text.requires_data
@pytest.mark.parametrize(
    ("name", "size"), [("uncased", 30_522), ("cased", 28_996), ("chinese", 21_128)]
)
def test_other_released_vocabularies_are_written_as_they_were(name, size, tmp_path):
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
def test_each_line_is_a_token_without_surrounding_spaces(tmp_path, content, tokens):
    assert load(tmp_path, content)[4:] == tuple(tokens)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (SPECIAL + "the\na\nthe\na\nthe\n", r"vocab\.txt has tokens more than once: 'the' "
         r"\(line 5, line 7, line 9\), 'a' \(line 6, line 8\)\.$"),
        (SPECIAL + "the\nthe \n", r"'the' \(line 5, line 6\)"),
        (SPECIAL + "".join(f"{n}\n{n}\n" for n in range(7)), r"'4' .line 13, line 14. and 2 more"),
        (SPECIAL + "the\n\nof\n", r"vocab\.txt has an empty token: line 6\."),
        ("[PAD]\n[CLS]\nthe\n", r"vocab\.txt must contain .* 3 tokens without \[UNK\], \[SEP\]"),
        ("", r"must contain \[PAD\], .* \[SEP\]. Received: 0 tokens without \[PAD\]"),
        (SPECIAL.encode() + b"caf\xe9\n", r"txt, line 5 must be UTF-8. Received: b'caf\\xe9'"),
    ],
)  # fmt: skip
def test_duplicates_and_missing_tokens_are_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, content)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.txt does not exist. Pass a file with"):
        load_vocabulary(tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError, match=r"is a directory. Pass a file"):
        load_vocabulary(tmp_path)


def test_saving_replaces_the_file_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("old")
    tokens = (*SPECIAL.split(), "the", "é", "##中")
    save_vocabulary(tokens, str(path))
    assert path.read_bytes().decode() == SPECIAL + "the\né\n##中\n"
    assert load_vocabulary(path) == tokens
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"the directory {tmp_path / 'missing'} does not"):
        save_vocabulary(["[PAD]"], tmp_path / "missing" / "vocab.txt")


@pytest.mark.parametrize("token", ["a\nb", "the ", "\tthe", ""])
def test_a_token_that_would_not_be_read_back_is_not_written(tmp_path, token):
    with pytest.raises(ValueError, match=r"tokens must not be empty, .* \(token 4\)"):
        save_vocabulary([*SPECIAL.split(), token], tmp_path / "vocab.txt")
    assert list(tmp_path.iterdir()) == []

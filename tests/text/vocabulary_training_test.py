# SPDX-License-Identifier: Apache-2.0
"""Trains vocabularies on small corpora."""

import inspect
import sys
import unittest

import pytest

pytest.importorskip("tokenizers")

from keras_bert.text import (
    SentencePieceTokenizer,
    WordPieceTokenizer,
    choose_lowercase,
    train_sentence_piece_model,
    train_vocabulary,
)
from keras_bert.text.normalization import split_words
from tests.text import vocabularies
from tests.text.reference_wordpiece import words

pytestmark = pytest.mark.backend_independent

# The start of the preamble of the Universal Declaration of Human Rights
CHINESE = """
鉴于对人类家庭所有成员的固有尊严及其平等的和不移的权利的承认,乃是世界自由、正义与和平的基础,
鉴于对人权的无视和侮蔑已发展为野蛮暴行,这些暴行玷污了人类的良心,
Article 1 of the UDHR: 人人生而自由,在尊严和权利上一律平等。
"""


def source_code():
    """Returns English text with identifiers from Python's unittest."""
    return inspect.getsource(unittest.case).splitlines()


def unknown_words(vocabulary, texts, lowercase=True):
    tokenizer = WordPieceTokenizer(vocabulary, lowercase)
    return sum(ids.count(tokenizer.unk_token_id) for ids in tokenizer(texts))


@pytest.mark.parametrize(
    ("corpus", "lowercase", "reason"),
    [
        (["An English text with a naïve café."], True, "100% of the letters have a case"),
        (["Ein Satz über das Öl und die größeren Dinge"], True, "stripping accents changes"),
        (CHINESE.splitlines(), False, "% of the letters have a case"),
        (["हिन्दी भारत की भाषा है"], False, "0% of the letters have a case"),
        (["اللغة العربية"], False, "0% of the letters have a case"),
        (["Tiếng Việt là ngôn ngữ của người Việt"], False, "100% of the letters have a case, and"),
        (["English " * 4, "한국어 말"] * 50, False, "stripping accents changes 1"),
        (["3.14"], True, "there are no letters"),
    ],
)
def test_choose_lowercase(corpus, lowercase, reason, tmp_path):
    choice = choose_lowercase(corpus)
    assert choice.lowercase is lowercase
    assert reason in choice.reason
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(corpus), encoding="utf-8")
    assert choose_lowercase(path) == choose_lowercase([path]) == choice


def test_choose_lowercase_reads_whole_corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("an English line\n" * 200_000 + "한국어 문장이다\n" * 200_000, "utf-8")
    assert choose_lowercase(path).lowercase is False
    with pytest.raises(
        ValueError,
        match=r"corpus must be a path, or a list of texts or paths, because lowercase=None .* "
        r"Received: generator",
    ):
        train_vocabulary((text for text in ["a"]), 40, lowercase=None, progress=False)
    vocabulary = train_vocabulary(["한국어"] * 9, 40, lowercase=None, progress=False)
    assert "한" in vocabulary


def test_english_vocabulary():
    texts = source_code()
    vocabulary = train_vocabulary(texts, 800, progress=False)
    assert len(vocabulary) == len(set(vocabulary)) == 800
    assert vocabulary[:5] == vocabularies.SPECIAL_TOKENS
    letters = {letter for text in texts for letter in text.lower() if not letter.isspace()}
    assert letters <= set(vocabulary)
    assert unknown_words(vocabulary, texts) == 0
    assert {"self", "test", "assert", "##ing"} <= set(vocabulary)
    pieces = sum(map(len, WordPieceTokenizer(vocabulary)(texts)))
    letters = sum(len(word) for text in texts for word in words(text, lowercase=True))
    assert pieces < letters / 2.5


def test_alphabet_size_drops_rarest_characters():
    texts = ["aaaa aaaa bbbb bbbb ccc 中中中中国"]
    vocabulary = train_vocabulary(texts, 100, alphabet_size=3, progress=False)
    assert vocabulary[5:10] == ("a", "b", "中", "##a", "##b")
    assert unknown_words(vocabulary, texts) == 2
    # Words with any other character are skipped.
    assert not any("c" in token for token in vocabulary[5:])
    assert train_vocabulary(texts, 16, progress=False)[5:10] == ("a", "b", "中", "##a", "##b")


def test_training_is_deterministic():
    texts = [*source_code()[:400], CHINESE]
    first = train_vocabulary(texts, 700, progress=False)
    assert all(train_vocabulary(texts, 700, progress=False) == first for _ in range(3))
    assert train_vocabulary(reversed(texts), 700, progress=False) == first


def test_corpus_of_files_texts_and_bytes(tmp_path):
    texts = [*source_code()[:200], "Größe «é»"]
    path = tmp_path / "corpus.txt"
    path.write_bytes("\r\n".join(texts).encode() + b"\n")
    expected = train_vocabulary(texts, 300, progress=False)
    assert train_vocabulary(path, 300, progress=False) == expected
    assert train_vocabulary(str(path), 300, progress=False) == expected
    other = tmp_path / "other.txt"
    other.write_text("\n".join(texts[100:]), encoding="utf-8")
    mixed = (item for item in (texts[0].encode(), *texts[1:100], other))
    assert train_vocabulary(mixed, 300, progress=False) == expected
    path.write_bytes("\n".join(["text", "서울"]).encode("cp949"))
    with pytest.raises(
        ValueError, match=r"corpus.txt, line 2: .* UTF-8. .*: bytes bc ad bf ef at p"
    ):
        train_vocabulary(path, 300, progress=False)
    with pytest.raises(
        ValueError,
        match=r"Files must be passed as pathlib\.Path. Received: the text .*, which is an existing "
        r"file",
    ):
        train_vocabulary([str(path)], 300, progress=False)


def test_invalid_sizes_and_corpora_raise():
    with pytest.raises(ValueError, match="must contain words"):
        train_vocabulary(["", " \n"], 100, progress=False)
    with pytest.raises(
        ValueError,
        match=r"vocabulary_size must be at least 11, for the special tokens and the 3 "
        r"characters of the alphabet. Received: 9",
    ):
        train_vocabulary(["abc"], 9, alphabet_size=3, progress=False)


def test_missing_library_error_shows_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[vocabulary\]'"):
        train_vocabulary(["the"], 100)


@pytest.mark.parametrize("lowercase", [True, False])
def test_split_words_matches_reference(lowercase):
    """Pieces must be learned from the words that the tokenizer looks up."""
    characters = vocabularies.assigned_characters()[::9]
    texts = [f"a{character}b {character} the\t" for character in characters]
    split = split_words(lowercase)
    expected = [
        ["".join(letter for letter, _ in word) for word in words(text, lowercase)] for text in texts
    ]
    assert [
        text for text, row in zip(texts, expected, strict=True) if list(split(text)) != row
    ] == []


def test_special_token_ids_follow_their_order():
    texts = source_code()
    mpnet = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "[UNK]", "mask": "<mask>"}
    vocabulary = train_vocabulary(texts, 500, special_tokens=mpnet, progress=False)
    deberta = {role: f"[{role.upper()}]" for role in ("pad", "cls", "sep", "unk", "mask")}
    model = train_sentence_piece_model(
        texts, 500, False, True, special_tokens=deberta, progress=False
    )
    options = {"lowercase": False, "keep_accents": True, "albert_rules": False}
    for tokenizer, names in (
        (WordPieceTokenizer(vocabulary, special_tokens=mpnet), mpnet),
        (SentencePieceTokenizer(model, **options, special_tokens=deberta), deberta),
    ):
        assert tokenizer.vocabulary[:5] == tuple(names.values())
        row = tokenizer.encode("import unittest\u2603")
        assert (row[0], row[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
        assert tokenizer.unk_token_id in row

# SPDX-License-Identifier: Apache-2.0
"""The vocabulary and the casing, from each of the files that may say them."""

import json
import os
import warnings
from pathlib import Path

import pytest
import transformers

from keras_bert.checkpoints import CheckpointError, CheckpointWarning
from keras_bert.checkpoints.tokenizer_files import read_tokenizer, write_tokenizer
from keras_bert.checkpoints.wordpiece_files import looks_uncased, read_vocabulary

pytestmark = pytest.mark.backend_independent

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film", "##s", "\u2028", "é"]


@pytest.mark.parametrize("lowercase", [True, False])
def test_what_is_written_is_read(lowercase, tmp_path):
    write_tokenizer(tmp_path, {"vocabulary": VOCABULARY, "lowercase": lowercase}, 12)
    tokenizer = read_tokenizer(tmp_path)
    assert tokenizer["vocabulary"] == VOCABULARY
    assert tokenizer["lowercase"] is lowercase


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_tokenizer_of_transformers_is_read_without_vocab_txt(lowercase, tmp_path):
    vocabulary = [piece for piece in VOCABULARY if piece != "\u2028"]  # which it splits lines at
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path, do_lower_case=lowercase)
    tokenizer.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "vocab.txt").unlink(missing_ok=True)
    assert (tmp_path / "saved" / "tokenizer.json").exists()
    found = read_tokenizer(tmp_path / "saved")
    assert found["vocabulary"] == vocabulary
    assert found["lowercase"] is lowercase
    (tmp_path / "saved" / "tokenizer_config.json").unlink()
    assert read_tokenizer(tmp_path / "saved")["lowercase"] is lowercase


def test_no_files_are_no_tokenizer(tmp_path):
    assert read_tokenizer(tmp_path) is None


def test_line_ends_of_windows_and_a_missing_last_one(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"[PAD]\r\nfilm\r\n##s")
    assert read_vocabulary(tmp_path / "vocab.txt") == ["[PAD]", "film", "##s"]


def test_an_empty_vocabulary_and_one_of_other_bytes_name_the_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"vocab\.txt: the vocabulary is empty"):
        read_tokenizer(tmp_path)
    path.write_bytes(b"[PAD]\n\xff\n")
    with pytest.raises(CheckpointError, match=r"vocab\.txt: the file must be UTF-8; byte 6"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"type": "WordLevel", "vocab": {"a": 0}}, "model.type is 'WordLevel'; it must be 'WordP"),
        (None, "model.type is None"),
        ({"type": "WordPiece", "vocab": {"a": 0, "b": 2}}, "no piece has id 1"),
        ({"type": "WordPiece", "vocab": {}}, "no piece has id 0"),
        ({"type": "WordPiece", "vocab": {"a": [0]}}, "malformed"),
    ],
)
def test_another_tokenizer_is_an_error(model, message, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    with pytest.raises(CheckpointError, match=message) as raised:
        read_tokenizer(tmp_path)
    assert str(tmp_path / "tokenizer.json") in str(raised.value)


def test_added_tokens_join_the_vocabulary(tmp_path):
    tokenizer = {
        "model": {"type": "WordPiece", "vocab": {"a": 0}},
        "added_tokens": [{"id": 1, "content": "[ENTITY]"}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert read_tokenizer(tmp_path)["vocabulary"] == ["a", "[ENTITY]"]


@pytest.mark.parametrize(
    ("vocabulary", "uncased"),
    [
        (["[PAD]", "film"], True),
        (["[PAD]", "Film"], False),
        (["##É"], False),
        (["[unused1]", "<T>"], True),
    ],
)
def test_a_folder_that_does_not_say_is_told_by_its_vocabulary(vocabulary, uncased, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    assert read_tokenizer(tmp_path)["lowercase"] is uncased


@pytest.mark.parametrize(
    ("name", "uncased"),
    [("bert-base-uncased", True), ("bert-base-cased", False), ("bert-base-chinese", True)],
)
def test_the_released_vocabularies_are_told_apart(name, uncased):
    path = Path(os.environ.get("KERAS_BERT_DATA", "")) / "vocab" / f"{name}.txt"
    if not path.is_file():
        pytest.skip("KERAS_BERT_DATA does not name a folder with vocab/")
    assert looks_uncased(read_vocabulary(path)) is uncased


@pytest.mark.parametrize("settings", [{"strip_accents": False}, {"tokenize_chinese_chars": False}])
def test_another_normalization_warns(settings, tmp_path):
    write_tokenizer(tmp_path, {"vocabulary": VOCABULARY}, 12)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    with pytest.warns(CheckpointWarning, match=next(iter(settings))):
        read_tokenizer(tmp_path)


def test_settings_of_the_original_tokenizer_do_not_warn(tmp_path):
    write_tokenizer(tmp_path, {"vocabulary": VOCABULARY, "lowercase": False}, 12)
    path = tmp_path / "tokenizer_config.json"
    settings = {"do_lower_case": False, "strip_accents": None, "tokenize_chinese_chars": True}
    path.write_text(json.dumps(settings))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_tokenizer(tmp_path)

# SPDX-License-Identifier: Apache-2.0
"""Compares the `tokenizer.json` of each type of tokenizer with the `tokenizers` library."""

import json

import pytest

from keras_bert.checkpoints import CheckpointError
from keras_bert.checkpoints.tokenizer_check import check_tokenizer_json
from keras_bert.text import (
    SentencePieceTokenizer,
    tokenizer_from_config,
    train_sentence_piece_model,
)
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer
from tests.text import families, small_tokenizers

pytest.importorskip("tokenizers")

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize("kind", ["wordpiece", "byte_pair", "sentence_piece", *families.CONFIGS])
def test_tokenizer_json_gives_the_same_ids(kind, tmp_path):
    make = families.make if kind in families.CONFIGS else small_tokenizers.make
    config = make(kind).get_config()
    write_tokenizer(tmp_path, config, 12)
    check_tokenizer_json(tmp_path, tokenizer_from_config(config))


@pytest.mark.parametrize("keep_accents", [False, True])
def test_decomposed_hangul_gives_the_same_ids(keep_accents, tmp_path):
    texts = ["한국어 한 모델", "한국 모델 이름"] * 10
    model = train_sentence_piece_model(texts, 40, True, keep_accents, progress=False)
    tokenizer = SentencePieceTokenizer(model, keep_accents=keep_accents)
    assert tokenizer.unk_token_id not in tokenizer("\u1112\u1161\u11ab")
    write_tokenizer(tmp_path, tokenizer.get_config(), 12)
    check_tokenizer_json(tmp_path, tokenizer)
    assert tokenizer_from_config(read_tokenizer(tmp_path))("한국어") == tokenizer("한국어")


def test_different_ids_raise(tmp_path):
    config = small_tokenizers.make("wordpiece", lowercase=False).get_config()
    write_tokenizer(tmp_path, config, 12)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text("utf-8"))
    content["normalizer"]["lowercase"] = True
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(CheckpointError, match=r"in other libraries\. Received: .* for the text 'G"):
        check_tokenizer_json(tmp_path, tokenizer_from_config(config))

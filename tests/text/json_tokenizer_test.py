# SPDX-License-Identifier: Apache-2.0

import json

import pytest

tokenizers = pytest.importorskip("tokenizers")
pytestmark = pytest.mark.on_torch

from keras_bert.text import Tokenizer  # noqa: E402
from keras_bert.text.json_tokenizer import (  # noqa: E402
    JsonTokenizer,
    tokenizer_from_json,
    unknown_token_id,
    without_tokens,
)
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer  # noqa: E402
from tests.text import small_tokenizers  # noqa: E402

TEXTS = ["the test fails", "", "東京 is, it", "a failure  message with exception"]
KINDS = ["wordpiece", "byte_pair", "sentence_piece"]


def write_json(kind, directory):
    write_tokenizer(directory, small_tokenizers.make(kind).get_config(), 16)
    return (directory / "tokenizer.json").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_removed_tokens_do_not_change_others(kind, tmp_path):
    original = small_tokenizers.make(kind)
    removed = {original.cls_token, original.sep_token, original.mask_token}
    content, kept = without_tokens(write_json(kind, tmp_path), removed)
    fast, library = tokenizer_from_json(content), JsonTokenizer(content)
    assert isinstance(fast, Tokenizer)
    assert list(fast.vocabulary) == list(library.vocabulary)
    assert list(library.vocabulary) == [original.vocabulary[index] for index in kept]
    assert removed.isdisjoint(library.vocabulary)
    for text in TEXTS:
        ids, *offsets = library.tokenize_with_offsets(text)
        assert [kept[token_id] for token_id in ids] == list(original(text))
        assert list(fast(text)) == library(text) == ids
        assert len(offsets[0]) == len(offsets[1]) == len(ids)
    flat_ids, lengths = library.flat_ids(TEXTS)
    assert flat_ids.tolist() == [token_id for text in TEXTS for token_id in library(text)]
    assert lengths.tolist() == [len(library(text)) for text in TEXTS]


def test_other_models_use_the_library():
    vocabulary = {"[UNK]": 0, "red": 1, "cat": 2}
    fields = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "truncation": {
            **{"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
        },
        "padding": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }
    content = json.dumps(fields)
    tokenizer = tokenizer_from_json(content)
    assert isinstance(tokenizer, JsonTokenizer)
    assert tokenizer("Red cat 東") == [1, 2, 0]
    assert tokenizer.tokenize_with_offsets("Red  cat") == ([1, 2], [0, 5], [3, 8])
    assert unknown_token_id(content) == 0
    with pytest.raises(ValueError, match=r"The tokenizer\.json is invalid"):
        tokenizer_from_json('{"model": 5}')

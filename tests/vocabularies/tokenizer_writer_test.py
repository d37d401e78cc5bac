# SPDX-License-Identifier: Apache-2.0
"""Reads random tokenizers of every kind from the files that were written for them."""

import functools
import random

import pytest

pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")

from keras_bert.families.shared import ROBERTA_TOKENS, WORDPIECE_TOKENS  # noqa: E402
from keras_bert.text import tokenizer_from_config, train_sentence_piece_model  # noqa: E402
from keras_bert.vocabularies.tokenizer_config import KINDS  # noqa: E402
from keras_bert.vocabularies.tokenizer_reader import read_tokenizer  # noqa: E402
from keras_bert.vocabularies.tokenizer_settings import MPNET, TOKENS_OF_CLASSES  # noqa: E402
from keras_bert.vocabularies.tokenizer_writer import write_tokenizer  # noqa: E402
from tests.text import small_tokenizers  # noqa: E402

pytestmark = pytest.mark.backend_independent

BOOL = (False, True)
WITHOUT_NORMALIZATION = {"lowercase": False, "keep_accents": True, "albert_rules": False}
OTHER_NAMES = {"cls": "<start>", "sep": "<end>"}
ADDED = ["covid19", "new tok", "[E1]", "Été", "e\u0301x", "서울", "ab", "bcd"]
TEXTS = [
    *("COVID19 covid19s new\ttok New Tok [e1][E1] ete Été e\u0301te\u0301 abcd \u200bab", "éx ÉX"),
    *("A [MASK] b <mask> c</s> d<s>[SEP]", "``q'' 1990, 서울역 中国 ca\u0301fe", "", "a" * 120),
]


def random_wordpiece_config(generator):
    added = generator.sample(ADDED, generator.randrange(4))
    names = generator.choice([{}, {}, TOKENS_OF_CLASSES[MPNET], OTHER_NAMES])
    first = [*WORDPIECE_TOKENS.values(), *(set(names.values()) - {*WORDPIECE_TOKENS.values()})]
    tokens = [token for token in small_tokenizers.wordpiece_vocabulary() if token not in first]
    return {
        "vocabulary": [*first, *tokens, *added],
        "lowercase": generator.choice(BOOL),
        "strip_accents": generator.choice([None, *BOOL]),
        "tokenize_chinese_chars": generator.choice(BOOL),
        "added_tokens": added,
        "normalized_tokens": added[::2],
        # The tokenizers library decodes normalized tokens to normalized text: they are not special.
        "special_added_tokens": added[1::2],
        "max_word_length": generator.choice([100, 200, 7]),
        "num_segments": generator.choice([1, 2]),
        "special_tokens": names or None,
        "pair_separators": generator.choice([1, 2]),
    }


def random_byte_pair_config(generator):
    vocabulary, merges = small_tokenizers.byte_pair_vocabulary()
    names = generator.choice([{}, {}, OTHER_NAMES, WORDPIECE_TOKENS])
    added = generator.sample(ADDED, generator.randrange(4))
    new = {*names.values(), *added} - {*vocabulary}
    return {
        "kind": "byte_pair",
        "vocabulary": [*vocabulary, *sorted(new)],
        "merges": list(merges),
        "add_prefix_space": False,
        "special_tokens": names or None,
        "pair_separators": generator.choice([1, 2]),
        "mask_takes_space": generator.choice(BOOL),
        "added_tokens": added,
        "special_added_tokens": [token for token in added if generator.random() < 0.5],
        "word_pattern": generator.choice(["gpt2", "gpt2", "llama3"]),
        "compose": generator.choice(BOOL),
        "ignore_merges": generator.choice(BOOL),
        "space_before_first_word": generator.choice(BOOL),
        "repeats_cls": generator.choice(BOOL),
    }


def random_sentence_piece_config(generator):
    names = generator.choice([{}, ROBERTA_TOKENS, {**WORDPIECE_TOKENS}])
    options = {name: generator.choice(BOOL) for name in WITHOUT_NORMALIZATION}
    compose = generator.choice(BOOL)
    config = small_tokenizers.SentencePieceTokenizer(
        _sentence_piece_model(tuple(names.items())), special_tokens=names or None
    ).get_config()
    return {
        **config,
        **(WITHOUT_NORMALIZATION if compose else options),
        "compose": compose,
        "pair_separators": generator.choice([1, 2]),
        "num_segments": generator.choice([1, 2]),
    }


@functools.cache
def _sentence_piece_model(names):
    return train_sentence_piece_model(
        small_tokenizers.texts(), 400, special_tokens=dict(names) or None, progress=False
    )


MAKERS = {
    "wordpiece": random_wordpiece_config,
    "byte_pair": random_byte_pair_config,
    "sentence_piece": random_sentence_piece_config,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [8, pytest.param(300, marks=pytest.mark.release)])
def test_random_tokenizer_files_round_trip(kind, count, tmp_path):
    for seed in range(count):
        generator = random.Random(seed)
        config = MAKERS[kind](generator) | {
            "special_tokens_in_text": True,
            "truncation_side": generator.choice(["right", "left"]),
        }
        config = {name: value for name, value in config.items() if value is not None}
        directory = tmp_path / str(seed)
        directory.mkdir()
        write_tokenizer(directory, config, 12)
        read_config = read_tokenizer(directory)
        tokenizer, restored = tokenizer_from_config(config), tokenizer_from_config(read_config)
        assert restored(TEXTS) == tokenizer(TEXTS), seed
        assert restored.encode(TEXTS, TEXTS) == tokenizer.encode(TEXTS, TEXTS), seed
        ids = [
            index for index in range(len(tokenizer.vocabulary)) if index != tokenizer.unk_token_id
        ]
        decodable = [index for index in ids if restored.decode([index], skip_special_tokens=True)]
        assert decodable == [
            index for index in ids if tokenizer.decode([index], skip_special_tokens=True)
        ]
        if seed % 2:
            continue
        transformers_tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
        for text in filter(None, TEXTS[:-1]):  # The last text has a word of 120 letters.
            expected = transformers_tokenizer(text, text)["input_ids"]
            assert tokenizer.encode(text, text) == expected, (seed, text)
        for token in config.get("special_added_tokens", ()):
            ids = [tokenizer.token_to_id(token)]
            assert transformers_tokenizer.decode(ids, skip_special_tokens=True) == ""
            assert tokenizer.decode(ids, skip_special_tokens=True) == ""

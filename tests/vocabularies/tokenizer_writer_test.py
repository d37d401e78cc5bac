# SPDX-License-Identifier: Apache-2.0
"""Random tokenizers of every kind are read again from the files that are written."""

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
PLAIN = {"lowercase": False, "keep_accents": True, "albert_rules": False}
OTHER_NAMES = {"cls": "<start>", "sep": "<end>"}
ADDED = ["covid19", "new tok", "[E1]", "Été", "e\u0301x", "서울", "ab", "bcd"]
TEXTS = [
    *("COVID19 covid19s new\ttok New Tok [e1][E1] ete Été e\u0301te\u0301 abcd \u200bab", "éx ÉX"),
    *("A [MASK] b <mask> c</s> d<s>[SEP]", "``q'' 1990, 서울역 中国 ca\u0301fe", "", "a" * 120),
]


def wordpiece(draw):
    added = draw.sample(ADDED, draw.randrange(4))
    names = draw.choice([{}, {}, TOKENS_OF_CLASSES[MPNET], OTHER_NAMES])
    first = [*WORDPIECE_TOKENS.values(), *(set(names.values()) - {*WORDPIECE_TOKENS.values()})]
    tokens = [token for token in small_tokenizers.wordpiece_vocabulary() if token not in first]
    return {
        "vocabulary": [*first, *tokens, *added],
        "lowercase": draw.choice(BOOL),
        "strip_accents": draw.choice([None, *BOOL]),
        "tokenize_chinese_chars": draw.choice(BOOL),
        "added_tokens": added,
        "normalized_tokens": added[::2],
        # The tokenizers library decodes normalized tokens to normalized text, which is not special.
        "special_added_tokens": added[1::2],
        "max_word_length": draw.choice([100, 200, 7]),
        "num_segments": draw.choice([1, 2]),
        "special_tokens": names or None,
        "pair_separators": draw.choice([1, 2]),
    }


def byte_pair(draw):
    vocabulary, merges = small_tokenizers.byte_pair_vocabulary()
    names = draw.choice([{}, {}, OTHER_NAMES, WORDPIECE_TOKENS])
    added = draw.sample(ADDED, draw.randrange(4))
    new = {*names.values(), *added} - {*vocabulary}
    return {
        "kind": "byte_pair",
        "vocabulary": [*vocabulary, *sorted(new)],
        "merges": list(merges),
        "add_prefix_space": False,
        "special_tokens": names or None,
        "pair_separators": draw.choice([1, 2]),
        "mask_takes_space": draw.choice(BOOL),
        "added_tokens": added,
        "special_added_tokens": [token for token in added if draw.random() < 0.5],
        "word_pattern": draw.choice(["gpt2", "gpt2", "llama3"]),
        "compose": draw.choice(BOOL),
        "ignore_merges": draw.choice(BOOL),
        "space_before_first_word": draw.choice(BOOL),
        "repeats_cls": draw.choice(BOOL),
    }


def sentence_piece(draw):
    names = draw.choice([{}, ROBERTA_TOKENS, {**WORDPIECE_TOKENS}])
    options = {name: draw.choice(BOOL) for name in PLAIN}
    compose = draw.choice(BOOL)
    config = small_tokenizers.SentencePieceTokenizer(
        _sentence_piece_model(tuple(names.items())), special_tokens=names or None
    ).get_config()
    return {
        **config,
        **(PLAIN if compose else options),
        "compose": compose,
        "pair_separators": draw.choice([1, 2]),
        "num_segments": draw.choice([1, 2]),
    }


@functools.cache
def _sentence_piece_model(names):
    return train_sentence_piece_model(
        small_tokenizers.texts(), 400, special_tokens=dict(names) or None, progress=False
    )


MAKERS = {"wordpiece": wordpiece, "byte_pair": byte_pair, "sentence_piece": sentence_piece}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [8, pytest.param(300, marks=pytest.mark.release)])
def test_random_tokenizers_are_read_again(kind, count, tmp_path):
    for seed in range(count):
        draw = random.Random(seed)
        config = MAKERS[kind](draw) | {
            "special_tokens_in_text": True,
            "truncation_side": draw.choice(["right", "left"]),
        }
        config = {name: value for name, value in config.items() if value is not None}
        folder = tmp_path / str(seed)
        folder.mkdir()
        write_tokenizer(folder, config, 12)
        read = read_tokenizer(folder)
        ours, again = tokenizer_from_config(config), tokenizer_from_config(read)
        assert again(TEXTS) == ours(TEXTS), seed
        assert again.encode(TEXTS, TEXTS) == ours.encode(TEXTS, TEXTS), seed
        ids = [index for index in range(len(ours.vocabulary)) if index != ours.unk_token_id]
        kept = [index for index in ids if again.decode([index], skip_special_tokens=True)]
        assert kept == [index for index in ids if ours.decode([index], skip_special_tokens=True)]
        if seed % 2:
            continue
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        for text in filter(None, TEXTS[:-1]):  # whose word has 120 letters
            expected = theirs(text, text)["input_ids"]
            assert ours.encode(text, text) == expected, (seed, text)
        for token in config.get("special_added_tokens", ()):
            ids = [ours.token_to_id(token)]
            assert theirs.decode(ids, skip_special_tokens=True) == ""
            assert ours.decode(ids, skip_special_tokens=True) == ""

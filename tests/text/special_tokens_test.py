# SPDX-License-Identifier: Apache-2.0
"""Compares added tokens with the tokenizers library, in Python and in a graph."""

import json
import random
import unicodedata

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("tensorflow_text")
tokenizers = pytest.importorskip("tokenizers")

from keras_bert.families.shared import ROBERTA_TOKENS, WORDPIECE_TOKENS  # noqa: E402
from keras_bert.text import BytePairTokenizer, WordPieceTokenizer  # noqa: E402
from keras_bert.vocabularies.tokenizer_config import with_defaults  # noqa: E402
from keras_bert.vocabularies.tokenizer_json_writer import byte_pair_json, wordpiece_json  # noqa: E402
from tests.text import small_tokenizers  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

ADDED = [
    "ab",
    "bcd",
    "cafe",
    "New tok",
    "É X",
    "서울",
    "दिल्ली",
    "İx",
    "中国",
    "[E1]",
    "abcde",
    "e\u0301x",
]
# With these, some of the added tokens need marks outside of the ideographs.
OTHER_ADDED = [f"[unused{number}]" for number in range(30)]
PARTS = [
    *("ab", "cd", "bcd", "e", "cafe", "cafe\u0301", "CAF\u00c9", "new", "tok", "NewTok", "é x"),
    *("E\u0301 X", "ÉX", "i\u0307x", "서울", unicodedata.normalize("NFD", "서울"), "दिल्ली", "दिल"),
    *("中国", "中", "[E1]", "[e1]", " ", "\t", "\u00a0", "\u200b", "\u00ad", "\u0301", "\u200d"),
    *("\ufeff", "\x01", ",", "s", "\u3000", "ex", "éx", "  ", "\u0f73", "x", "[unused7]"),
]
RULES = [
    {"lowercase": True},
    {"lowercase": False},
    {"lowercase": True, "strip_accents": False},
    {"lowercase": False, "strip_accents": True},
    {"lowercase": True, "tokenize_chinese_chars": False},
]


def random_texts(generator, count):
    return ["".join(generator.choices(PARTS, k=generator.randrange(1, 9))) for _ in range(count)]


def check_added_tokens(tokenizer, file, count, seed):
    library = tokenizers.Tokenizer.from_str(json.dumps(file))
    batch = random_texts(random.Random(seed), count)
    ids, starts, ends = tokenizer.tokenize_with_offsets(batch)
    for text, row in zip(batch, ids, strict=True):
        assert row == library.encode(text, add_special_tokens=False).ids, repr(text)
    assert ids == tokenizer(batch)
    graph = tokenizer.tokenize_with_offsets(tf.constant(batch))
    assert [part.to_list() for part in graph] == [ids, starts, ends]
    assert tokenizer(tf.constant(batch)).to_list() == ids
    for text, *offsets in zip(batch, starts, ends, strict=True):
        assert offsets == list(map(sorted, offsets)), repr(text)


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        *((rules, 200) for rules in RULES[:2]),
        *(pytest.param(rules, 20_000, marks=pytest.mark.release) for rules in RULES),
    ],
)
def test_added_wordpiece_tokens_match_tokenizers(rules, count):
    generator = random.Random(str(rules))
    added = [*ADDED, *OTHER_ADDED]
    generator.shuffle(added)
    tokens = small_tokenizers.wordpiece_vocabulary()
    tokenizer = WordPieceTokenizer(
        [*tokens, *added],
        **rules,
        special_tokens_in_text=True,
        added_tokens=added,
        normalized_tokens=[token for token in added if generator.random() < 0.7],
        max_word_length=100,
    )
    file = wordpiece_json(with_defaults(tokenizer.get_config()), WORDPIECE_TOKENS)
    check_added_tokens(tokenizer, file, count, count)


@pytest.mark.parametrize(
    ("compose", "count"),
    [
        (True, 200),
        *(pytest.param(compose, 20_000, marks=pytest.mark.release) for compose in (False, True)),
    ],
)
def test_added_byte_pair_tokens_match_tokenizers(compose, count):
    vocabulary, merges = small_tokenizers.byte_pair_vocabulary()
    tokenizer = BytePairTokenizer(
        [*vocabulary, *ADDED],
        merges,
        special_tokens_in_text=True,
        added_tokens=ADDED,
        compose=compose,
    )
    file = byte_pair_json(with_defaults(tokenizer.get_config()), ROBERTA_TOKENS)
    check_added_tokens(tokenizer, file, count, count)

# SPDX-License-Identifier: Apache-2.0
"""Ids and offsets against those of the original algorithm: every character, and real text."""

import itertools
import random
import sys

import pytest

tf = pytest.importorskip("tensorflow")

from keras_bert.text import WordPieceTokenizer  # noqa: E402
from tests.text import real_text, vocabularies  # noqa: E402
from tests.text.reference_wordpiece import ReferenceTokenizer  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

# The tokenizer lowers and strips accents by Unicode 14 or newer, whichever TensorFlow's copies are.
# New characters of Unicode 16 (Python 3.14) that they do not know yet, all in `lowercase` only:
# capital letters, marks, two letters with a decomposition; and U+1171E, which is no mark any more.
UNICODE_16 = {
    0x897, 0x1C89, *range(0x10D50, 0x10D66), *range(0x10D69, 0x10D6E), 0x10EFC, 0x11385,
    *range(0x113BB, 0x113C1), 0x113CE, 0x113D0, 0x113D2, 0x113E1, 0x113E2, 0x1171E, 0x11F5A,
    *range(0x1611E, 0x1612A), *range(0x1612D, 0x16130), 0x1E5EE, 0x1E5EF,
    0xA7CB, 0xA7CC, 0xA7DA, 0xA7DC,
}  # fmt: skip
NEWER_CHARACTERS = UNICODE_16 if sys.version_info >= (3, 14) else set()

MIXED = (
    "abAB09éÉßİıΑΣσςΩ'.-_$`~¿—…«」「、。ﬁ½①²\u00ad\u200b\u200d\ufeff\u2028\x85\x1c\t\n\r  \xa0"
    "\u3000\0\ufffd中国\uf900\U0002f81a한국ｶﾞがガกำ่ำ\u0e49हिन्दी\u0301\u0327\u0323\u0345\u20e3#[]MASK"
    "😀👍🏽\ue000\uffff\U0010ffff"
)


class Compared:
    """A tokenizer beside the original algorithm.

    Args:
        vocabulary: The tokens.
        lowercase: Whether text is lower-cased.
        in_python: Whether to compare plain Python too, and not graph operations alone.
        options: Other arguments of both.
    """

    def __init__(self, vocabulary, lowercase, in_python=True, **options):
        self.in_python = in_python
        self.tokenizer = WordPieceTokenizer(vocabulary, lowercase, **options)
        self.reference = ReferenceTokenizer(vocabulary, lowercase, **options)

    def rows(self, texts):
        """For each text ids alone, and ids and places, by graph operations and in Python."""
        tensor = tf.constant(texts)
        in_graph = (self.tokenizer(tensor), *self.tokenizer.tokenize_with_offsets(tensor))
        parts = list(map(rows, in_graph))
        if self.in_python:
            parts += (self.tokenizer(texts), *self.tokenizer.tokenize_with_offsets(texts))
        return zip(*parts, strict=True)

    def is_right(self, text, *row):
        """Whether a row of `rows` is what the original algorithm gives."""
        expected = self.reference(text)
        return all(
            expected == list(zip(ids, starts, ends, strict=True)) and ids == alone
            for alone, ids, starts, ends in zip(*[iter(row)] * 4, strict=True)
        )


def rows(ragged):
    """The rows as lists, made one at a time."""
    values, splits = ragged.flat_values.numpy(), ragged.row_splits.numpy()
    return (values[begin:end].tolist() for begin, end in itertools.pairwise(splits))


def differences(texts, *compared):
    """Texts whose ids or places are not those of the original."""
    by_text = zip(*(each.rows(texts) for each in compared), strict=True)
    return [
        text
        for text, outcomes in zip(texts, by_text, strict=True)
        if not all(
            each.is_right(text, *outcome) for each, outcome in zip(compared, outcomes, strict=True)
        )
    ]


def differing_characters(characters, *compared):
    texts = [f"a{character}b {character} the" for character in characters]
    codes = {ord(text[1]) for text in differences(texts, *compared)}
    return {hex(code) for code in codes - NEWER_CHARACTERS}


@pytest.mark.parametrize("lowercase", [True, pytest.param(False, marks=pytest.mark.release)])
def test_every_character(lowercase):
    characters = vocabularies.characters_of_rules()
    all_known = Compared(vocabularies.character_vocabulary(characters, "the"), lowercase)
    assert differing_characters(characters, all_known) == set()


@pytest.mark.parametrize("lowercase", [True, False])
def test_characters_that_are_mostly_unknown(lowercase):
    few_known = Compared(vocabularies.released() if lowercase else vocabularies.cased(), lowercase)
    assert differing_characters(vocabularies.assigned_characters()[::7], few_known) == set()


@real_text.needed
@pytest.mark.parametrize(
    ("lowercase", "names"), [(True, ["uncased", "chinese"]), (False, ["cased"])]
)
def test_characters_with_the_released_vocabularies(lowercase, names):
    # What becomes of each character is compared above; here it has other ids.
    step = 1 if real_text.WHOLE else 7
    compared = [Compared(real_text.vocabulary(name), lowercase, in_python=False) for name in names]
    assert differing_characters(vocabularies.assigned_characters()[::step], *compared) == set()


@pytest.mark.parametrize("lowercase", [True, False])
def test_random_mixtures(lowercase):
    vocabulary = vocabularies.character_vocabulary(
        set(MIXED) - set(" \t\n\r"), "ab", "##ab", "##b0", "σς"
    )
    generator = random.Random(0)
    texts = ["".join(generator.choices(MIXED, k=generator.randrange(24))) for _ in range(10_000)]
    assert differences(texts, Compared(vocabulary, lowercase)) == []


@pytest.mark.parametrize(
    ("lowercase", "options"),
    [
        (True, {"strip_accents": False}),
        (False, {"strip_accents": True}),
        (True, {"tokenize_chinese_chars": False}),
    ],
)
def test_accents_without_case_and_ideographs_in_words(lowercase, options):
    characters = vocabularies.assigned_characters()[::27]
    all_known = Compared(vocabularies.character_vocabulary(characters, "the"), lowercase, **options)
    assert differing_characters(characters, all_known) == set()
    known = set(MIXED) - set(" \t\n\r\U0010ffff")
    compared = Compared(
        vocabularies.character_vocabulary(known, "中国", "##国か"), lowercase, **options
    )
    generator = random.Random(0)
    texts = ["".join(generator.choices(MIXED, k=generator.randrange(24))) for _ in range(1_000)]
    texts += ["中" * 201 + " " + "中" * 200, "\U000f0000中", "[MASK]中[SEP]"]
    assert differences(texts, compared) == []


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def edge_case_tokenizer(request):
    return Compared((*vocabularies.released(), "##é", "é", "##"), request.param)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\t\n\r \xa0\u2003",
        "##ing",
        "# #ing a##b ## ### the##",
        "[MASK] [UNK][CLS] [PAD]x",
        "ΟΔΥΣΣΕΥΣ ΣΑΣ Σ Σ. ΑΣ'Α ΑΣ\u00adΑ \u00adΣ ΑΣ\u0301 中ΑΣ国",
        "İstanbul IĞDIR ıI",
        "e\u0301a\u0328\u0301 \u1ec7 \u0301\u0301 \u0301a",
        "한국어 漢字かな交じり文",
        "it's a well-known $5.99 «fact»… ½ ﬁ ２",
        "a\u2028b\u2029c\x85d\x1ce\x0bf\x0cg",
        "\ufeffBOM \u200bzero\u200bwidth\u200d joiner",
        "x" * 200 + " " + "x" * 201 + " x",
        "é" * 200 + "." + "é" * 201 + "é" * 5 + "。",
        "e\u0301" * 200 + " " + "e\u0301" * 201,
        "ก" * 150 + "中" + "ก" * 201 + "中" * 300,
        ("a" * 150 + "\u200b") * 2 + "!" + ("b" * 100 + "\x00") * 2,
        "z" * 70_000 + " ok",
    ],
)
def test_edges(edge_case_tokenizer, text):
    assert differences([text, "it", text], edge_case_tokenizer) == []


def test_tokens_that_no_text_can_have():
    never = ["a b", "a\u2028b", "\u2028", "##\u2028", "##", "a\x85b", "a.b", "##.", "a中", "##中"]
    vocabulary = (*vocabularies.character_vocabulary("abc.中"), *never)
    texts = ["a b", "a\u2028b", "\u2028", "ab##", "##", "a\x85b", "a.b", "a中", "##\u2028", "a  b"]
    assert differences(texts, Compared(tuple(dict.fromkeys(vocabulary)), lowercase=True)) == []


@real_text.needed
@pytest.mark.parametrize(
    ("name", "lowercase"),
    [("uncased", True), pytest.param("cased", False, marks=pytest.mark.release)],
)
def test_real_text(name, lowercase):
    compared = Compared(real_text.vocabulary(name), lowercase)
    wrong, count = [], 0
    for lines in real_text.batches(4096, every=8):
        count += len(lines)
        wrong += differences(lines, compared)
    assert count > 25_000
    assert wrong == []

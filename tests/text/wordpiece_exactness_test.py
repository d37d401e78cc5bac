# SPDX-License-Identifier: Apache-2.0
"""Compares ids and offsets with the reference implementation, on all characters and real text."""

import itertools
import random
import sys

import pytest

tf = pytest.importorskip("tensorflow")

from keras_bert.text import WordPieceTokenizer  # noqa: E402
from tests.text import real_text, vocabularies  # noqa: E402
from tests.text.reference_wordpiece import ReferenceTokenizer  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

# The tokenizer lowercases and strips accents by Unicode 14 or newer, depending on TensorFlow.
# These are Unicode 16 characters (Python 3.14) that it may not know yet, all with `lowercase` only:
# capital letters, marks, two letters with a decomposition, and U+1171E, which is no longer a mark.
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


class Comparison:
    """A tokenizer and the reference implementation.

    Args:
        vocabulary: Tokens in id order.
        lowercase: Whether text is lowercased.
        include_python: Whether to also compare plain Python, in addition to graph operations.
        options: Other arguments of both tokenizers.
    """

    def __init__(self, vocabulary, lowercase, include_python=True, **options):
        self.include_python = include_python
        self.tokenizer = WordPieceTokenizer(vocabulary, lowercase, **options)
        self.reference = ReferenceTokenizer(vocabulary, lowercase, **options)

    def rows(self, texts):
        """Yields, for each text, ids without and with offsets, from the graph and from Python."""
        tensor = tf.constant(texts)
        graph_outputs = (self.tokenizer(tensor), *self.tokenizer.tokenize_with_offsets(tensor))
        parts = list(map(iterate_rows, graph_outputs))
        if self.include_python:
            parts += (self.tokenizer(texts), *self.tokenizer.tokenize_with_offsets(texts))
        return zip(*parts, strict=True)

    def matches_reference(self, text, *row):
        """Returns whether a row of `rows` matches the reference implementation."""
        expected = self.reference(text)
        return all(
            expected == list(zip(ids, starts, ends, strict=True)) and ids == ids_only
            for ids_only, ids, starts, ends in zip(*[iter(row)] * 4, strict=True)
        )


def iterate_rows(ragged):
    """Yields the rows as lists, one at a time."""
    values, splits = ragged.flat_values.numpy(), ragged.row_splits.numpy()
    return (values[start:end].tolist() for start, end in itertools.pairwise(splits))


def find_mismatches(texts, *comparisons):
    """Returns texts whose ids or offsets differ from the reference implementation."""
    outputs_by_text = zip(*(comparison.rows(texts) for comparison in comparisons), strict=True)
    return [
        text
        for text, outcomes in zip(texts, outputs_by_text, strict=True)
        if not all(
            comparison.matches_reference(text, *outcome)
            for comparison, outcome in zip(comparisons, outcomes, strict=True)
        )
    ]


def find_mismatched_characters(characters, *comparisons):
    texts = [f"a{character}b {character} the" for character in characters]
    codes = {ord(text[1]) for text in find_mismatches(texts, *comparisons)}
    return {hex(code) for code in codes - NEWER_CHARACTERS}


@pytest.mark.parametrize("lowercase", [True, pytest.param(False, marks=pytest.mark.release)])
def test_characters_match_reference(lowercase):
    characters = vocabularies.representative_characters()
    all_known = Comparison(vocabularies.character_vocabulary(characters, "the"), lowercase)
    assert find_mismatched_characters(characters, all_known) == set()


@pytest.mark.parametrize("lowercase", [True, False])
def test_unknown_characters_match_reference(lowercase):
    few_known = Comparison(
        vocabularies.released_vocabulary() if lowercase else vocabularies.cased_vocabulary(),
        lowercase,
    )
    assert (
        find_mismatched_characters(
            vocabularies.assigned_characters()[:: 7 * real_text.STEP], few_known
        )
        == set()
    )


@real_text.requires_data
@pytest.mark.parametrize(
    ("lowercase", "names"), [(True, ["uncased", "chinese"]), (False, ["cased"])]
)
def test_released_vocabularies_match_reference(lowercase, names):
    # The normalization of each character is compared above. These vocabularies have other ids.
    step = 1 if real_text.WHOLE else 7
    comparisons = [
        Comparison(real_text.vocabulary(name), lowercase, include_python=False) for name in names
    ]
    assert (
        find_mismatched_characters(vocabularies.assigned_characters()[::step], *comparisons)
        == set()
    )


@pytest.mark.parametrize("lowercase", [True, False])
def test_random_mixtures_match_reference(lowercase):
    vocabulary = vocabularies.character_vocabulary(
        set(MIXED) - set(" \t\n\r"), "ab", "##ab", "##b0", "σς"
    )
    generator = random.Random(0)
    texts = ["".join(generator.choices(MIXED, k=generator.randrange(24))) for _ in range(10_000)]
    assert find_mismatches(texts, Comparison(vocabulary, lowercase)) == []


@pytest.mark.parametrize(
    ("lowercase", "options"),
    [
        (True, {"strip_accents": False}),
        (False, {"strip_accents": True}),
        (True, {"tokenize_chinese_chars": False}),
    ],
)
def test_accent_and_ideograph_options(lowercase, options):
    characters = vocabularies.assigned_characters()[:: 27 * real_text.STEP]
    all_known = Comparison(
        vocabularies.character_vocabulary(characters, "the"), lowercase, **options
    )
    assert find_mismatched_characters(characters, all_known) == set()
    known = set(MIXED) - set(" \t\n\r\U0010ffff")
    comparison = Comparison(
        vocabularies.character_vocabulary(known, "中国", "##国か"), lowercase, **options
    )
    generator = random.Random(0)
    texts = ["".join(generator.choices(MIXED, k=generator.randrange(24))) for _ in range(1_000)]
    texts += ["中" * 201 + " " + "中" * 200, "\U000f0000中", "[MASK]中[SEP]"]
    assert find_mismatches(texts, comparison) == []


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def edge_case_tokenizer(request):
    return Comparison((*vocabularies.released_vocabulary(), "##é", "é", "##"), request.param)


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
def test_edge_cases_match_reference(edge_case_tokenizer, text):
    assert find_mismatches([text, "it", text], edge_case_tokenizer) == []


def test_unreachable_tokens_match_reference():
    unreachable = [
        "a b",
        "a\u2028b",
        "\u2028",
        "##\u2028",
        "##",
        "a\x85b",
        "a.b",
        "##.",
        "a中",
        "##中",
    ]
    vocabulary = (*vocabularies.character_vocabulary("abc.中"), *unreachable)
    texts = ["a b", "a\u2028b", "\u2028", "ab##", "##", "a\x85b", "a.b", "a中", "##\u2028", "a  b"]
    assert (
        find_mismatches(texts, Comparison(tuple(dict.fromkeys(vocabulary)), lowercase=True)) == []
    )


@real_text.requires_data
@pytest.mark.parametrize(
    ("name", "lowercase"),
    [("uncased", True), pytest.param("cased", False, marks=pytest.mark.release)],
)
def test_real_text_matches_reference(name, lowercase):
    comparison = Comparison(real_text.vocabulary(name), lowercase)
    mismatches, count = [], 0
    for lines in real_text.batches(4096, every=24):
        count += len(lines)
        mismatches += find_mismatches(lines, comparison)
    assert count > 8_000
    assert mismatches == []

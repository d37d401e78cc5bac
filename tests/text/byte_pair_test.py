# SPDX-License-Identifier: Apache-2.0
"""Byte-level BPE against the tokenizers library: ids, offsets, special tokens, files, errors."""

import json
import random

import pytest

tf = pytest.importorskip("tensorflow")
tokenizers = pytest.importorskip("tokenizers")

from keras_bert.text import BytePairTokenizer, train_byte_pair_vocabulary  # noqa: E402
from tests.text import small_tokenizers, vocabularies  # noqa: E402
from tests.text.executors import InGraph  # noqa: E402
from tests.text.reference_byte_pair import differences, reference  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MIXED = (
    "ab1 2é.,'stmdrevl\t\n\r\x0b\x1c\x85\xa0\u1680\u2003\u2028\u3000   中国٣½Ⅷ’'s\u0301ﬁ🙂👍🏽"
    "\x00\x7f\u200b\u200d\ufeff\ufffd\ue000\U0010ffff<>_-ĠÂ"
)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "prefixed"])
def pair(request):
    """A tokenizer and the reference of it."""
    made = small_tokenizers.byte_pair_vocabulary()
    return BytePairTokenizer(*made, add_prefix_space=request.param), reference(
        *made, add_prefix_space=request.param
    )


def test_english_and_other_text(pair):
    assert differences(small_tokenizers.texts(), *pair) == []


def test_random_mixtures(pair):
    generator = random.Random(0)
    texts = ["".join(generator.choices(MIXED, k=generator.randrange(24))) for _ in range(8000)]
    assert differences(texts, *pair) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "   ",
        "'s",
        "it's we'll they've I'm she'd you're don't",
        "'s't're'street 'S 'LL ''s a'",
        "x 're  're\n're",
        "'l 'r 'v 're",
        "a  b   c \n\n d\t\te \n",
        "\n",
        "z" * 5000 + "q" * 33,
        "".join(random.Random(1).choices("abcdefgh0123456789+/", k=800)),
        "<mask></s> <s>",
        "é" * 300,
        "👩‍👩‍👧‍👦🇩🇪",
    ],
)
def test_edges(pair, text):
    assert differences([text, "it", text], *pair) == []


def test_every_seventh_character(pair):
    texts = [f"a{it}1{it} {it}{it}'s" for it in vocabularies.assigned_characters()[::7]]
    assert differences(texts, *pair) == []


def test_special_tokens_that_are_typed():
    made = small_tokenizers.byte_pair_vocabulary()
    tokenizer = BytePairTokenizer(*made, special_tokens_in_text=True)
    expected = reference(*made, special_tokens_in_text=True)
    generator = random.Random(2)
    parts = (*SPECIAL, "<mask>", " ", "  ", "\n", "\u3000", "the", " test", "'s", "<", "mask", "é")
    texts = ["".join(generator.choices(parts, k=generator.randrange(10))) for _ in range(3000)]
    assert differences(texts, tokenizer, expected) == []


def test_of_merges_of_one_pair_the_last_one_counts():
    tokens = [*SPECIAL, "a", "b", "c", "ab", "bc"]
    merges = ["a b", "b c", "a b"]
    model = tokenizers.models.BPE(
        {token: i for i, token in enumerate(tokens)}, [tuple(merge.split()) for merge in merges]
    )
    expected = [token.id for token in model.tokenize("abc")]
    tokenizer = BytePairTokenizer(tokens, merges)
    for each in (tokenizer, InGraph(tokenizer)):
        assert each("abc") == expected == [tokens.index("a"), tokens.index("bc")]


def test_words_of_their_own_have_a_space_before_them():
    tokenizer = small_tokenizers.make("byte_pair")
    words = ["the", "test", "", "'s", " case"]
    expected = tokenizer([" the", " test", "", " 's", " case"])
    for each in (tokenizer, InGraph(tokenizer)):
        assert each.tokenize_words(words) == expected
    assert tokenizer("the test")[-1] == expected[1][0]


def test_bytes_that_the_vocabulary_lacks_are_unknown():
    tokens = [*SPECIAL, "a", "b", "Ġ", "ab", "Ġab"]
    tokenizer = BytePairTokenizer(tokens, ["a b", "Ġ ab"])
    for each in (tokenizer, InGraph(tokenizer)):
        ids, starts, ends = each.tokenize_with_offsets("ab éab")
        assert ids == [8, 7, 3, 3, 8]
        assert (starts, ends) == ([0, 3, 3, 3, 4], [2, 3, 4, 4, 6])


def test_tokens_that_no_merge_leads_to():
    tokens = [*SPECIAL, *"abc", "ab", "bc", "abc"]
    tokenizer = BytePairTokenizer(tokens, ["a b", "b c", "a bc"])
    for each in (tokenizer, InGraph(tokenizer)):
        assert each(["abc", "bc", "ab"]) == [[8, 7], [9], [8]]


def test_detokenize_puts_bytes_together():
    tokenizer = small_tokenizers.make("byte_pair")
    for text in (small_tokenizers.OTHER_TEXT, " two  spaces\n", "🙂"):
        for each in (tokenizer, InGraph(tokenizer)):
            assert each.detokenize(tokenizer(text)) == text
    for each in (tokenizer, InGraph(tokenizer)):
        assert each.detokenize(tokenizer("🙂")[:1]) == "\ufffd"
    assert tokenizer.token_text(tokenizer.token_to_id("Ġthe")) == " the"


def test_malformed_files_are_named(tmp_path):
    tokenizer = small_tokenizers.make("byte_pair")
    tokenizer.save_vocabulary(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["merges.txt", "vocab.json"]
    (tmp_path / "merges.txt").write_text("#version: 0.2\nĠ t\nbroken\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"merges\.txt, line 3 must be two tokens"):
        BytePairTokenizer(tmp_path / "vocab.json", tmp_path / "merges.txt")
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 2}))
    with pytest.raises(ValueError, match=r"vocab\.json: the file must contain the ids 0, 1, 2"):
        BytePairTokenizer(tmp_path / "vocab.json", [])


@pytest.mark.parametrize(
    ("vocabulary", "merges", "error", "message"),
    [
        (SPECIAL[1:], [], ValueError, "must contain <s>, <pad>, </s>, <unk>. .* without <s>"),
        ([*SPECIAL, "a", "a"], [], ValueError, r"'a' .index 5, index 6."),
        (
            [*SPECIAL, "a", "b"],
            ["a b"],
            ValueError,
            "Merge 0 must be .*'a b': the vocabulary lacks 'ab'",
        ),
        ([*SPECIAL, "a"], ["a"], ValueError, "Merge 0 must be .*'a': the vocabulary lacks ''"),
        ([*SPECIAL, "a"], [("a", "b")], ValueError, "Merge 0 must be a string"),
    ],
)
def test_invalid_vocabularies_and_texts_are_refused(vocabulary, merges, error, message):
    with pytest.raises(error, match=message):
        BytePairTokenizer(vocabulary, merges)


def test_training_is_that_of_the_library(tmp_path):
    texts = small_tokenizers.texts()
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(texts), encoding="utf-8")
    made = train_byte_pair_vocabulary(path, 700, progress=False)
    assert made == small_tokenizers.byte_pair_vocabulary()
    assert made.vocabulary[:5] == SPECIAL
    assert len(made.vocabulary) == len(set(made.vocabulary)) == 700
    library = tokenizers.ByteLevelBPETokenizer()
    library.train_from_iterator(texts, 700, special_tokens=list(SPECIAL), show_progress=False)
    model = json.loads(library.to_str())["model"]
    assert [" ".join(merge) for merge in model["merges"]] == list(made.merges)
    assert model["vocab"] == {token: index for index, token in enumerate(made.vocabulary)}

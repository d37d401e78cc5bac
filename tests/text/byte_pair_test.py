# SPDX-License-Identifier: Apache-2.0
"""Compares byte-level BPE with the tokenizers library, and tests its files and errors."""

import json
import random

import pytest

tf = pytest.importorskip("tensorflow")
tokenizers = pytest.importorskip("tokenizers")

from keras_bert.text import BytePairTokenizer, train_byte_pair_vocabulary  # noqa: E402
from tests.text import real_text, small_tokenizers, vocabularies  # noqa: E402
from tests.text.executors import GraphTokenizer  # noqa: E402
from tests.text.reference_byte_pair import find_mismatches, make_reference  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
MIXED = (
    "ab1 2é.,'stmdrevl\t\n\r\x0b\x1c\x85\xa0\u1680\u2003\u2028\u3000   中国٣½Ⅷ’'s\u0301ﬁ🙂👍🏽"
    "\x00\x7f\u200b\u200d\ufeff\ufffd\ue000\U0010ffff<>_-ĠÂ"
)


@pytest.fixture(scope="module", params=[False, True], ids=["default", "add_prefix_space"])
def pair(request):
    """A tokenizer and its reference."""
    trained = small_tokenizers.byte_pair_vocabulary()
    return BytePairTokenizer(*trained, add_prefix_space=request.param), make_reference(
        *trained, add_prefix_space=request.param
    )


def test_texts_match_tokenizers(pair):
    assert find_mismatches(small_tokenizers.texts(), *pair) == []


def test_random_mixtures_match_tokenizers(pair):
    generator = random.Random(0)
    count = 8000 // real_text.STEP
    texts = ["".join(generator.choices(MIXED, k=generator.randrange(24))) for _ in range(count)]
    assert find_mismatches(texts, *pair) == []


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
def test_edge_cases_match_tokenizers(pair, text):
    assert find_mismatches([text, "it", text], *pair) == []


def test_characters_match_tokenizers(pair):
    texts = [
        f"a{character}1{character} {character}{character}'s"
        for character in vocabularies.assigned_characters()[:: 7 * real_text.STEP]
    ]
    assert find_mismatches(texts, *pair) == []


def test_special_tokens_in_text_match_tokenizers():
    trained = small_tokenizers.byte_pair_vocabulary()
    tokenizer = BytePairTokenizer(*trained, special_tokens_in_text=True)
    expected = make_reference(*trained, special_tokens_in_text=True)
    generator = random.Random(2)
    choices = (
        *SPECIAL,
        "<mask>",
        " ",
        "  ",
        "\n",
        "\u3000",
        "the",
        " test",
        "'s",
        "<",
        "mask",
        "é",
    )
    texts = ["".join(generator.choices(choices, k=generator.randrange(10))) for _ in range(3000)]
    assert find_mismatches(texts, tokenizer, expected) == []


def test_last_of_duplicate_merges_counts():
    tokens = [*SPECIAL, "a", "b", "c", "ab", "bc"]
    merges = ["a b", "b c", "a b"]
    model = tokenizers.models.BPE(
        {token: i for i, token in enumerate(tokens)}, [tuple(merge.split()) for merge in merges]
    )
    expected = [token.id for token in model.tokenize("abc")]
    tokenizer = BytePairTokenizer(tokens, merges)
    for executor in (tokenizer, GraphTokenizer(tokenizer)):
        assert executor("abc") == expected == [tokens.index("a"), tokens.index("bc")]


def test_separate_words_have_a_leading_space():
    tokenizer = small_tokenizers.make("byte_pair")
    words = ["the", "test", "", "'s", " case"]
    expected = tokenizer([" the", " test", "", " 's", " case"])
    for executor in (tokenizer, GraphTokenizer(tokenizer)):
        assert executor.tokenize_words(words) == expected
    assert tokenizer("the test")[-1] == expected[1][0]


def test_missing_bytes_are_unknown():
    tokens = [*SPECIAL, "a", "b", "Ġ", "ab", "Ġab"]
    tokenizer = BytePairTokenizer(tokens, ["a b", "Ġ ab"])
    for executor in (tokenizer, GraphTokenizer(tokenizer)):
        ids, starts, ends = executor.tokenize_with_offsets("ab éab")
        assert ids == [8, 7, 3, 3, 8]
        assert (starts, ends) == ([0, 3, 3, 3, 4], [2, 3, 4, 4, 6])


def test_unreachable_tokens():
    tokens = [*SPECIAL, *"abc", "ab", "bc", "abc"]
    tokenizer = BytePairTokenizer(tokens, ["a b", "b c", "a bc"])
    for executor in (tokenizer, GraphTokenizer(tokenizer)):
        assert executor(["abc", "bc", "ab"]) == [[8, 7], [9], [8]]


def test_detokenize_joins_bytes():
    tokenizer = small_tokenizers.make("byte_pair")
    for text in (small_tokenizers.OTHER_TEXT, " two  spaces\n", "🙂"):
        for executor in (tokenizer, GraphTokenizer(tokenizer)):
            assert executor.detokenize(tokenizer(text)) == text
    for executor in (tokenizer, GraphTokenizer(tokenizer)):
        assert executor.detokenize(tokenizer("🙂")[:1]) == "\ufffd"
    assert tokenizer.token_text(tokenizer.token_to_id("Ġthe")) == " the"


def test_invalid_file_error_includes_name(tmp_path):
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
        (
            SPECIAL[1:],
            [],
            ValueError,
            "must contain <s>, <pad>, </s>, <unk>. Received: 4 tokens without <s>",
        ),
        ([*SPECIAL, "a", "a"], [], ValueError, r"'a' .index 5, index 6."),
        (
            [*SPECIAL, "a", "b"],
            ["a b"],
            ValueError,
            "Merge 0 must be two tokens of the vocabulary .* Received: 'a b': the vocabulary "
            "lacks 'ab'",
        ),
        (
            [*SPECIAL, "a"],
            ["a"],
            ValueError,
            "Merge 0 must be two tokens of the vocabulary .* Received: 'a': the vocabulary "
            "lacks ''",
        ),
        ([*SPECIAL, "a"], [("a", "b")], ValueError, "Merge 0 must be a string"),
    ],
)
def test_invalid_vocabulary_raises(vocabulary, merges, error, message):
    with pytest.raises(error, match=message):
        BytePairTokenizer(vocabulary, merges)


def test_training_matches_tokenizers(tmp_path):
    texts = small_tokenizers.texts()
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(texts), encoding="utf-8")
    trained = train_byte_pair_vocabulary(path, 700, progress=False)
    assert trained == small_tokenizers.byte_pair_vocabulary()
    assert trained.vocabulary[:5] == SPECIAL
    assert len(trained.vocabulary) == len(set(trained.vocabulary)) == 700
    library = tokenizers.ByteLevelBPETokenizer()
    library.train_from_iterator(texts, 700, special_tokens=list(SPECIAL), show_progress=False)
    model = json.loads(library.to_str())["model"]
    assert [" ".join(merge) for merge in model["merges"]] == list(trained.merges)
    assert model["vocab"] == {token: index for index, token in enumerate(trained.vocabulary)}

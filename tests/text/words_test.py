# SPDX-License-Identifier: Apache-2.0

import random

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

tf = pytest.importorskip("tensorflow")

from keras_bert.text.graph.words import words_with_offsets  # noqa: E402
from keras_bert.text.words import WORD_UNITS, infer_word_unit, split_words  # noqa: E402
from tests.text import real_text, vocabularies  # noqa: E402

UNITS = WORD_UNITS[:-1]  # The last is split like the first.


def split_in_graph(texts, unit="words"):
    """Returns the words of each text with their offsets."""
    words, starts, ends = (part.to_list() for part in words_with_offsets(tf.constant(texts), unit))
    words = [[word.decode() for word in row] for row in words]
    return [list(map(list, row)) for row in zip(words, starts, ends, strict=True)]


def split_in_python(texts, unit="words"):
    return [list(split_words(text, unit)) for text in texts]


@pytest.mark.parametrize("split", [split_in_python, split_in_graph])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ann lives in Paris.", "Ann|lives|in|Paris|."),
        ('He said: "Go!"', 'He|said|:|"|Go|!|"'),
        ("the U.S. and AT&T at 3 o'clock (12:30)", "the|U.S.|and|AT&T|at|3|o'clock|(|12:30|)"),
        ("$3,000.50, co-op; and/or...", "$|3,000.50|,|co-op|;|and/or|..."),
        ("RT @anna: #topNews http://t.co/a?b=1 ok", "RT|@anna|:|#topNews|http://t.co/a?b=1|ok"),
        ("我在 Berlin，好。", "我|在|Berlin|，|好|。"),
        ("서울에서 만나요", "서울에서|만나요"),
        ("می‌خواهم بروم", "می‌خواهم|بروم"),
        ("cafe\u0301 👩‍🚒👍🏽 ok", "cafe\u0301|👩‍🚒👍🏽|ok"),
        ("a\x00b\u200b \u3000c", "a|b\u200b|c"),
        ("a—b", "a|—|b"),
        ("", ""),
        (" \t\n", ""),
    ],
)
def test_split_words_and_offsets(split, text, words):
    ((actual, starts, ends),) = split([text])
    assert actual == [word for word in words.split("|") if word]
    assert [text[start:end] for start, end in zip(starts, ends, strict=True)] == actual


@pytest.mark.parametrize("split", [split_in_python, split_in_graph])
def test_units_and_offsets(split):
    # A decomposed syllable (2 code points), an emoji with a skin tone, and Japanese and Thai
    text = "\u1100\u1161 👍🏽\tABC, 東のタイ\u3000ไทย."
    expected = {
        "words": "\u1100\u1161|👍🏽|ABC|,|東|のタイ|ไทย|.",
        "words_or_characters": "\u1100\u1161|👍🏽|ABC|,|東|の|タ|イ|ไ|ท|ย|.",
        "whitespace": "\u1100\u1161|👍🏽|ABC,|東のタイ|ไทย.",
        "characters": "|".join("".join(text.split())),
        "characters_and_spaces": "|".join(text),
    }
    for unit in UNITS:
        ((words, starts, ends),) = split([text], unit)
        assert words == expected[unit].split("|")
        assert [text[start:end] for start, end in zip(starts, ends, strict=True)] == words


@pytest.mark.parametrize(
    ("words", "unit"),
    [
        ("|".join("경찰은 자금을 관리했다."), "characters_and_spaces"),
        ("|".join("경찰은자금을관리했다."), "characters"),
        ("我|在|Berlin|，|好|的|城|市|人|多|。", "words"),
        ("私|は|Tokyo|タ|イ|に|住|ん|で|い|ま|す", "words_or_characters"),
        ("東京|に|住ん|で|い|ます|が|、|大阪|も", "segmented"),
        ("Việt Nam|là|một|nước|ở|Đông Nam Á|,|có|nhiều|người", "segmented"),
        ("He|said|:|do|n't|go|,|Ann|Lee|!", "words"),
        ("용퇴,|항룡|압력설|의심만|가율,|비토리오|양일|만에|영사관|감호.", "whitespace"),
    ],
)
def test_infer_word_unit(words, unit):
    sentence = words.split("|")
    assert infer_word_unit([sentence]) == unit
    assert infer_word_unit([sentence[:9]] * 10) is None


def find_mismatches(texts, unit="words"):
    rows = zip(texts, split_in_python(texts, unit), split_in_graph(texts, unit), strict=True)
    return [text for text, python_words, graph_words in rows if python_words != graph_words]


@pytest.mark.parametrize("unit", UNITS)
def test_graph_matches_python_on_all_characters(unit):
    characters = vocabularies.representative_characters()
    if unit != "words":  # All units use the same classes of characters.
        characters = characters[:: real_text.STEP]
    texts = [
        f"a{character}1 {character}{character} .{character}b http://{character}a"
        for character in characters
    ]
    assert find_mismatches(texts, unit) == []


@pytest.mark.parametrize("unit", UNITS)
def test_graph_matches_python_on_random_text(unit):
    characters = "aZ09éß中ไมのﾊ\u1100\u1161" + (
        "\u0301\u200d\ufe0f👍🏽😀.,:/-'’&@_+#$<|…» \t\0\x0b\x1c\x85\xa0\u2028\u3000\ue000"
    )
    generator = random.Random(0)
    tokens = [*characters, "http://", "https://", "U.S.", "3,0", "한국"]
    count = 10_000 if unit == "words" else 1000
    texts = ["".join(generator.choices(tokens, k=generator.randrange(24))) for _ in range(count)]
    assert find_mismatches(texts, unit) == []


@pytest.mark.release
@real_text.requires_data
def test_graph_matches_python_on_real_text():
    mismatches, count = [], 0
    for lines in real_text.batches(4096, every=16):
        count += len(lines)
        mismatches += find_mismatches(lines)
    assert count > 10_000
    assert mismatches == []


def test_offsets_restart_in_each_text():
    texts = ["é a", "", "😀 b c"]
    words, starts, ends = words_with_offsets(tf.constant(texts))
    assert starts.to_list() == [[0, 2], [], [0, 2, 4]]
    assert ends.to_list() == [[1, 3], [], [1, 3, 5]]
    assert words.row_lengths().numpy().tolist() == [2, 0, 3]


def test_invalid_bytes_are_dropped():
    words, starts, _ = words_with_offsets(tf.constant([b"\xffa \xc3 b"]))
    assert words.to_list() == [[b"a", b"b"]]
    assert starts.to_list() == [[0, 3]]

# SPDX-License-Identifier: Apache-2.0

import random

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

tf = pytest.importorskip("tensorflow")

from keras_bert.text.graph.words import words_with_offsets  # noqa: E402
from keras_bert.text.words import split_words  # noqa: E402
from tests.text import real_text, vocabularies  # noqa: E402


def split_in_graph(texts):
    """Returns the words of each text with their offsets."""
    words, starts, ends = (part.to_list() for part in words_with_offsets(tf.constant(texts)))
    words = [[word.decode() for word in row] for row in words]
    return [list(map(list, row)) for row in zip(words, starts, ends, strict=True)]


def split_in_python(texts):
    return [list(split_words(text)) for text in texts]


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


def find_mismatches(texts):
    rows = zip(texts, split_in_python(texts), split_in_graph(texts), strict=True)
    return [text for text, python_words, graph_words in rows if python_words != graph_words]


def test_graph_matches_python_on_all_characters():
    characters = vocabularies.representative_characters()
    assert (
        find_mismatches(
            [
                f"a{character}1 {character}{character} .{character}b http://{character}a"
                for character in characters
            ]
        )
        == []
    )


def test_graph_matches_python_on_random_text():
    characters = (
        "aZ09éß中\u0301\u200d\ufe0f👍🏽😀.,:/-'’&@_+#$<|…» \t\0\x0b\x1c\x85\xa0\u2028\u3000\ue000"
    )
    generator = random.Random(0)
    tokens = [*characters, "http://", "https://", "U.S.", "3,0", "한국"]
    texts = ["".join(generator.choices(tokens, k=generator.randrange(24))) for _ in range(10_000)]
    assert find_mismatches(texts) == []


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

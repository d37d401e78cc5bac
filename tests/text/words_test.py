# SPDX-License-Identifier: Apache-2.0

import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

tf = pytest.importorskip("tensorflow")

from keras_bert.text.graph.words import words_with_offsets  # noqa: E402


def split(text):
    words, starts, ends = words_with_offsets(tf.constant([text]))
    words = [word.decode() for word in words.to_list()[0]]
    places = list(zip(starts.to_list()[0], ends.to_list()[0], strict=True))
    return words, places


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
def test_words(text, words):
    found, places = split(text)
    assert found == [word for word in words.split("|") if word]
    assert [text[start:end] for start, end in places] == found


def test_offsets_are_of_each_text_for_itself():
    texts = ["é a", "", "😀 b c"]
    words, starts, ends = words_with_offsets(tf.constant(texts))
    assert starts.to_list() == [[0, 2], [], [0, 2, 4]]
    assert ends.to_list() == [[1, 3], [], [1, 3, 5]]
    assert words.row_lengths().numpy().tolist() == [2, 0, 3]


def test_invalid_bytes_are_left_out():
    words, starts, _ = words_with_offsets(tf.constant([b"\xffa \xc3 b"]))
    assert words.to_list() == [[b"a", b"b"]]
    assert starts.to_list() == [[0, 3]]


def test_no_text_has_no_words():
    words, _, ends = words_with_offsets(tf.constant([], tf.string))
    assert words.nrows() == ends.nrows() == 0

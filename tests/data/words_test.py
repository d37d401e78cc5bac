# SPDX-License-Identifier: Apache-2.0


import numpy as np
import pytest

from keras_bert.data.words import TokenClassifierPreprocessor, nested_words
from tests.text.small_tokenizers import make_tokenizer

pytestmark = pytest.mark.backend_independent

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh", *(f"##{x}" for x in "abcdefgh")]
UNK, CLS, SEP = 1, 2, 3


def make_preprocessor(sequence_length=10, overlap=None):
    return TokenClassifierPreprocessor(make_tokenizer(*TOKENS), sequence_length, overlap)


def ids(*pieces):
    return [TOKENS.index(piece) for piece in pieces]


def word_places(windows):
    return list(zip(windows.word_window.tolist(), windows.word_position.tolist(), strict=True))


def test_word_position_is_first_piece():
    windows = make_preprocessor().windows([["a", "bcd", "e"], ["f"]])
    assert windows.token_ids.to_list() == [
        [CLS, *ids("a", "b", "##c", "##d", "e"), SEP],
        [CLS, *ids("f"), SEP],
    ]
    assert word_places(windows) == [(0, 1), (0, 2), (0, 5), (1, 1)]
    assert windows.scatter(np.array([1, 2, 3, 4])).to_list() == [
        [0, 1, 2, 0, 0, 3, 0],
        [0, 4, 0],
    ]


def test_words_without_pieces_become_unknown():
    windows = make_preprocessor().windows([["a", "\x00", "\u200b", "b", ""]])
    assert windows.token_ids.to_list() == [[CLS, *ids("a"), UNK, UNK, *ids("b"), UNK, SEP]]
    assert word_places(windows) == [(0, position) for position in range(1, 6)]


def test_long_sentence_is_split_between_words():
    windows = make_preprocessor(sequence_length=8, overlap=3).windows([["ab"] * 6])
    # Each word has two pieces. A window starts every three tokens, moved back to a word start.
    assert windows.token_ids.to_list() == [
        [CLS, *ids("a", "##b") * 3, SEP],
        [CLS, *ids("a", "##b") * 2, SEP],
        [CLS, *ids("a", "##b") * 3, SEP],
    ]
    assert word_places(windows) == [(0, 1), (0, 3), (1, 1), (1, 3), (2, 3), (2, 5)]


def test_overlong_word_is_truncated():
    windows = make_preprocessor(sequence_length=8, overlap=2).windows([["a", "bcdefghabc", "d"]])
    assert windows.token_ids.to_list() == [[CLS, *ids("a", "b", "##c", "d"), SEP]]
    assert word_places(windows) == [(0, 1), (0, 2), (0, 4)]


def test_windows_include_neighbor_sentences():
    documents = [[["a"], ["b", "c"], ["d", "e"], ["f"]], [["g"]]]
    windows = make_preprocessor(sequence_length=6).windows(documents)
    assert windows.token_ids.to_list() == [
        [CLS, *ids("a", "b", "c", "d"), SEP],
        [CLS, *ids("a", "b", "c", "d"), SEP],
        [CLS, *ids("c", "d", "e", "f"), SEP],
        [CLS, *ids("c", "d", "e", "f"), SEP],
        [CLS, *ids("g"), SEP],
    ]
    assert word_places(windows) == [(0, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 4), (4, 1)]


@pytest.mark.parametrize("nested", [False, True], ids=["sentences", "documents"])
def test_windows_contain_whole_words(nested):
    generator = np.random.default_rng(0)
    preprocessor = make_preprocessor(sequence_length=12, overlap=4)
    for _ in range(60):
        sentences = [
            ["abcdefgh"[: generator.integers(1, 9)] for _ in range(generator.integers(0, 14))]
            for _ in range(generator.integers(0, 5))
        ]
        half = len(sentences) // 2
        words = [sentences[:half], [], sentences[half:]] if nested else sentences
        windows = preprocessor.windows(words)
        rows = windows.token_ids.to_list()
        assert all(row[0] == CLS and row[-1] == SEP and len(row) <= 12 for row in rows)
        flat = [word for sentence in sentences for word in sentence]
        assert len(word_places(windows)) == len(flat)
        long = [sum(map(len, sentence)) > 10 for sentence in sentences for _ in sentence]
        for word, is_long, (window, position) in zip(flat, long, word_places(windows), strict=True):
            pieces = ids(word[0], *(f"##{letter}" for letter in word[1:]))[: 4 if is_long else None]
            assert rows[window][position : position + len(pieces)] == pieces
            # The word ends there: neither a longer word nor a truncated word follows.
            assert not TOKENS[rows[window][position + len(pieces)]].startswith("##")
        assert not any(TOKENS[row[1]].startswith("##") for row in rows)


def test_word_is_read_in_window_with_most_context():
    preprocessor = make_preprocessor(sequence_length=10, overlap=4)
    windows = preprocessor.windows([["a"] * 30])
    rows = windows.token_ids.to_list()
    for index, (window, position) in enumerate(word_places(windows)):
        context = min(position, len(rows[window]) - 1 - position)
        assert context >= min(3, index + 1, 30 - index)


def test_windows_match_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*TOKENS, "[MASK]"]))
    transformers_tokenizer = transformers.BertTokenizerFast(str(path))
    sentence = ["abc", "d", "E", "zz", "f.g", "héa"]
    encoded = transformers_tokenizer(sentence, is_split_into_words=True)
    windows = make_preprocessor(sequence_length=32).windows([sentence])
    assert windows.token_ids.to_list() == [encoded["input_ids"]]
    first_pieces = [encoded.word_ids().index(index) for index in range(len(sentence))]
    assert windows.word_position.tolist() == first_pieces


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b"], "Received: 'a' instead of a list"),
        ([["a"], "b"], "instead of a list"),
        ([[[["a"]]]], "too many levels"),
    ],
)
def test_invalid_nesting_raises(words, message):
    with pytest.raises(ValueError, match=message):
        nested_words(words)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3,), "sequence_length must be an integer of at least 4. Received: 3"),
        ((10, 8), r"overlap must be an integer in \[1, 8\). Received: 8"),
        ((10, 0), r"overlap must be an integer in \[1, 8\). Received: 0"),
    ],
)
def test_invalid_lengths_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_preprocessor(*arguments)

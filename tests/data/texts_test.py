# SPDX-License-Identifier: Apache-2.0


import numpy as np
import pytest

from keras_bert.data import TextClassifierPreprocessor
from keras_bert.data.arrays import NUMPY, Ragged
from keras_bert.data.packing import truncate
from keras_bert.data.texts import TokenizedTexts, split_into_windows
from tests.text.small_tokenizers import make_tokenizer

pytestmark = pytest.mark.backend_independent

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh"]
CLS, SEP = TOKENS.index("[CLS]"), TOKENS.index("[SEP]")


@pytest.fixture(scope="module")
def preprocessor():
    return TextClassifierPreprocessor(make_tokenizer(*TOKENS), sequence_length=10)


def ids(letters):
    return [TOKENS.index(letter) for letter in letters]


def unpadded_rows(features, name="token_ids"):
    """Returns the rows without padding."""
    mask = features["padding_mask"]
    return [list(row[keep]) for row, keep in zip(features[name], mask, strict=True)]


def test_long_text_is_truncated_at_the_end(preprocessor):
    assert unpadded_rows(preprocessor(["a b c d e f g h a b c"])) == [[CLS, *ids("abcdefgh"), SEP]]


def test_left_truncation():
    tokenizer = make_tokenizer(*TOKENS, truncation_side="left")
    assert tokenizer.get_config()["truncation_side"] == "left"
    preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=10)
    text, pair = "a b c d e f g h a b c", "h g f e d c b a"
    truncated_text = [CLS, *ids("defghabc"), SEP]
    truncated_pair = [CLS, *ids("habc"), SEP, *ids("cba"), SEP]
    assert unpadded_rows(preprocessor([text, "a"])) == [truncated_text, [CLS, *ids("a"), SEP]]
    assert unpadded_rows(preprocessor([text], [pair])) == [truncated_pair]
    assert tokenizer.encode(text, sequence_length=10) == truncated_text
    assert tokenizer.encode(text, pair, sequence_length=10) == truncated_pair
    # The same in a graph and with the tokens in memory
    tf = pytest.importorskip("tensorflow")
    assert preprocessor(tf.constant([text]), tf.constant([pair]))["token_ids"].numpy().tolist() == [
        truncated_pair
    ]
    tokens = TokenizedTexts(["b " * 20 + text], preprocessor).take(np.array([0])).to_list()
    assert tokens == [ids("abcdefghabc")[-10:]]
    with pytest.raises(ValueError, match="truncation_side must be one of right"):
        make_tokenizer(*TOKENS, truncation_side="middle")


def test_pair_truncation_matches_reference():
    generator = np.random.default_rng(0)
    lengths = generator.integers(0, 12, (200, 2))
    first, second = (
        Ragged(np.concatenate([np.arange(n) for n in column]), column) for column in lengths.T
    )
    for max_tokens in (1, 2, 7, 8):
        truncated = truncate(NUMPY, make_tokenizer(*TOKENS), first, second, max_tokens)
        new_lengths = np.stack([texts.lengths for texts in truncated], axis=1)
        expected = [truncate_one_token_at_a_time(*pair, max_tokens) for pair in lengths]
        np.testing.assert_array_equal(new_lengths, expected)
        assert all(row == list(range(len(row))) for texts in truncated for row in texts.to_list())


def truncate_one_token_at_a_time(first, second, max_tokens):
    """Removes tokens from the end of the longer text (on a tie, the second), as in BERT."""
    while first + second > max_tokens:
        if first > second:
            first -= 1
        else:
            second -= 1
    return [first, second]


def test_too_short_sequence_length_raises():
    with pytest.raises(
        ValueError, match=r"sequence_length must be an integer of at least 5. Received: 4"
    ):
        TextClassifierPreprocessor(make_tokenizer(*TOKENS), sequence_length=4)


@pytest.mark.parametrize("max_tokens", [0, 5, 100])
def test_tokenized_texts_cache_is_bounded(preprocessor, max_tokens, monkeypatch):
    texts = [" ".join("abcdefgh"[: n % 9]) for n in range(40)]
    calls = []
    flat_ids = type(preprocessor.tokenizer).flat_ids
    monkeypatch.setattr(
        type(preprocessor.tokenizer),
        "flat_ids",
        lambda self, texts: calls.append(len(texts)) or flat_ids(self, texts),
    )
    tokenized_texts = TokenizedTexts(texts, preprocessor, max_tokens)
    generator = np.random.default_rng(0)
    for _ in range(20):
        index = generator.integers(0, 40, 12)
        expected = [ids(texts[row].replace(" ", "")) for row in index]
        assert tokenized_texts.take(index).to_list() == expected
    if max_tokens == 100:
        assert sum(calls) <= 40 + 12 * 15
    if max_tokens == 0:
        assert len(calls) == 20
    uncapped = TokenizedTexts(texts, preprocessor)
    calls.clear()
    for _ in range(3):
        uncapped.take(np.arange(40))
    assert calls == [40]


@pytest.mark.parametrize("overlap", [None, 1, 3, 100])
@pytest.mark.parametrize("max_tokens", [2, 7, 8])
def test_windows_cover_long_texts(max_tokens, overlap):
    grid = np.mgrid[:17, :17].reshape(2, -1)
    for lengths in (grid, grid[:1]):
        windows = split_into_windows(NUMPY, list(lengths), max_tokens, overlap)
        assert (np.bincount(windows.row) == windows.counts).all()
        sizes = np.array(windows.lengths)
        fits = lengths.sum(axis=0) <= max_tokens
        assert (windows.counts[fits] == 1).all()
        assert (sizes[:, fits[windows.row]] == lengths[:, fits]).all()
        assert (sizes.sum(axis=0)[~fits[windows.row]] == max_tokens).all()
        for text, counts in enumerate(windows.counts):
            own = windows.row == text
            longer = int(np.argmax(lengths[:, text]))
            starts, ends = (
                windows.starts[longer][own],
                (windows.starts[longer] + sizes[longer])[own],
            )
            assert (starts[0], ends[-1]) == (0, lengths[longer, text])
            space = max_tokens - min(
                lengths[:, text].sum() - lengths[longer, text], max_tokens // 2
            )
            shared = space // 4 if overlap is None else min(overlap, space - 1)
            assert (ends[:-1] - starts[1:] >= shared).all()
            # One window less would not cover the text.
            assert counts == 1 or space + (counts - 2) * (space - shared) < lengths[longer, text]


def test_graph_packs_the_same_windows():
    tf = pytest.importorskip("tensorflow")
    tokenizer = make_tokenizer(*TOKENS)
    preprocessor = TextClassifierPreprocessor(tokenizer, 9, long_texts="max")
    texts, pairs = ["a b c d e f g h a b c", "", "a"], ["a", "b c d e f g h a", "b"]
    for columns in ([texts], [texts, pairs]):
        sequences, counts = preprocessor.pack_windows(*columns)
        packed, graph_counts = preprocessor.pack_windows(*map(tf.constant, columns))
        assert counts.tolist() == graph_counts.numpy().tolist()
        for name, rows in sequences.features.items():
            graph_rows = Ragged(*(part.numpy() for part in packed.features[name]))
            assert graph_rows.to_list() == rows.to_list()
        outputs = np.arange(2 * counts.sum(), dtype="float32").reshape(-1, 2)
        merged = preprocessor.merge_windows(tf.constant(outputs), graph_counts)
        np.testing.assert_array_equal(merged, preprocessor.merge_windows(outputs, counts))

# SPDX-License-Identifier: Apache-2.0

import collections
import json

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

tf = pytest.importorskip("tensorflow")

from keras_bert.data import TextClassifierPreprocessor, text_batches  # noqa: E402
from keras_bert.data.text_batches import batches_from_rows, truncate_pair  # noqa: E402
from keras_bert.text.graph.wordpiece import WordPieceGraph  # noqa: E402
from keras_bert.text.wordpiece import WordPieceTokenizer  # noqa: E402
from tests.text.small_tokenizers import of_tokens  # noqa: E402

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh"]
CLS, SEP = TOKENS.index("[CLS]"), TOKENS.index("[SEP]")


@pytest.fixture(scope="module")
def preprocessor():
    return TextClassifierPreprocessor(of_tokens(*TOKENS), sequence_length=10)


def ids(letters):
    return [TOKENS.index(letter) for letter in letters]


def rows(features, name="token_ids"):
    """The rows without their padding."""
    mask = features["padding_mask"].numpy()
    return [list(row[keep]) for row, keep in zip(features[name].numpy(), mask, strict=True)]


def test_a_single_text(preprocessor):
    features = preprocessor(["a b", "c"])
    assert rows(features) == [[CLS, *ids("ab"), SEP], [CLS, *ids("c"), SEP]]
    assert features["token_ids"].shape == (2, 4)
    assert not features["segment_ids"].numpy().any()


def test_a_pair(preprocessor):
    features = preprocessor(["a b", "c"], ["d", "e f"])
    assert rows(features) == [
        [CLS, *ids("ab"), SEP, *ids("d"), SEP],
        [CLS, *ids("c"), SEP, *ids("ef"), SEP],
    ]
    assert rows(features, "segment_ids") == [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1]]


def test_eager_unbatched_and_dataset_calls_agree(preprocessor):
    texts, pairs = ["a b c", "d", ""], ["e", "f g h a b c d e f g h", "a"]
    batch = preprocessor(texts, pairs)
    dataset = tf.data.Dataset.from_tensor_slices((texts, pairs))
    for index, mapped in enumerate(dataset.map(preprocessor)):
        alone = preprocessor(texts[index], pairs[index])
        for name, value in alone.items():
            np.testing.assert_array_equal(value, mapped[name])
            np.testing.assert_array_equal(value, batch[name][index][: len(value)])


def test_a_long_text_is_cut_at_the_end(preprocessor):
    assert rows(preprocessor(["a b c d e f g h a b c"])) == [[CLS, *ids("abcdefgh"), SEP]]


def test_pairs_are_cut_as_the_reference_cuts_them():
    generator = np.random.default_rng(0)
    lengths = generator.integers(0, 12, (200, 2))
    first, second = (
        tf.ragged.constant([list(range(n)) for n in column], ragged_rank=1, dtype=tf.int32)
        for column in lengths.T
    )
    for max_tokens in (1, 2, 7, 8):
        kept = truncate_pair(first, second, max_tokens)
        received = np.stack([part.row_lengths().numpy() for part in kept], axis=1)
        expected = [one_at_a_time(*pair, max_tokens) for pair in lengths]
        np.testing.assert_array_equal(received, expected)
        assert all(list(row) == list(range(len(row))) for part in kept for row in part.numpy())


def one_at_a_time(first, second, max_tokens):
    """The released code's rule: a token off the longer text's end; on a tie, the second's."""
    while first + second > max_tokens:
        if first > second:
            first -= 1
        else:
            second -= 1
    return [first, second]


def test_an_empty_text_and_an_empty_batch(preprocessor):
    assert rows(preprocessor([""])) == [[CLS, SEP]]
    assert preprocessor(tf.constant([], tf.string))["token_ids"].shape == (0, 2)


def test_config_round_trip_is_json(preprocessor):
    config = json.loads(json.dumps(preprocessor.get_config()))
    same = TextClassifierPreprocessor.from_config(config)
    assert rows(same(["a b"])) == rows(preprocessor(["a b"]))
    assert same.sequence_length == 10


def test_a_length_without_room_for_text_is_refused():
    with pytest.raises(ValueError, match="sequence_length is 4"):
        TextClassifierPreprocessor(of_tokens(*TOKENS), sequence_length=4)


def test_text_is_traced_once_for_all_pipelines_and_numbers_of_rows(caplog, monkeypatch):
    traces = collections.Counter()

    def tokenize(self, texts, tokenize=WordPieceGraph._tokenize):
        traces["tokenizer"] += 1
        return tokenize(self, texts)

    def pack_texts(*arguments, pack_texts=text_batches.pack_texts):
        traces["packing"] += 1
        return pack_texts(*arguments)

    monkeypatch.setattr(WordPieceGraph, "_tokenize", tokenize)
    monkeypatch.setattr(text_batches, "pack_texts", pack_texts)
    # A few objects of a class, for TensorFlow logs a warning about the traces of them together
    for count in range(1, 6):
        tokenizer = WordPieceTokenizer(TOKENS)
        for num_rows, seed in ((3, None), (5, None), (8, 1)):
            preprocessor = TextClassifierPreprocessor(tokenizer, sequence_length=5 + num_rows)
            rows = tf.data.Dataset.from_tensor_slices((["a b", "c"] * num_rows, [0, 1] * num_rows))
            batches = batches_from_rows(rows, preprocessor, batch_size=2, shuffle_seed=seed)
            assert len(list(batches)) == num_rows
        assert traces == {"tokenizer": count, "packing": count}
    assert not caplog.records

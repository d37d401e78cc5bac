# SPDX-License-Identifier: Apache-2.0

import types

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

tf = pytest.importorskip("tensorflow")

from keras_bert.data import batching  # noqa: E402
from keras_bert.data.batching import (  # noqa: E402
    WINDOW_BATCHES,
    bucket_lengths,
    length_bucketed_batches,
    pad_to_bucket,
    row_batches,
)

BUCKETS = (4, 8, 16)


def ragged_rows(indices):
    """Row i holds the id i, 1 + i % 13 times."""
    token_ids = tf.RaggedTensor.from_row_lengths(
        tf.repeat(indices, 1 + indices % 13), 1 + indices % 13
    )
    return {"token_ids": tf.cast(token_ids, tf.int32)}, (indices,)


def batches_of(num_rows, **options):
    rows = tf.data.Dataset.range(1, num_rows + 1).map(lambda i: (i,))
    options = {"batch_size": 4, "buckets": BUCKETS, **options}
    return length_bucketed_batches(rows, ragged_rows, **options)


def test_buckets_end_with_the_longest_row_and_grow_by_about_an_eighth():
    lengths = bucket_lengths(512)
    assert lengths[0] == 8
    assert lengths[-1] == 512
    steps = np.diff(lengths) / lengths[:-1]
    assert steps[8:].max() <= 0.25
    assert bucket_lengths(100, coarse=True) == (16, 32, 64, 100)
    assert bucket_lengths(5) == (5,)


def test_a_length_below_one_is_refused():
    with pytest.raises(ValueError, match="sequence_length is 0"):
        bucket_lengths(0)


@pytest.mark.parametrize("num_rows", [1, 7, 8, 4 * WINDOW_BATCHES + 5])
def test_every_row_comes_once_in_as_many_batches_as_promised(num_rows):
    batches = list(batches_of(num_rows).as_numpy_iterator())
    assert len(batches) == int(batches_of(num_rows).cardinality()) == -(-num_rows // 4)
    seen = np.concatenate([index for _, (index,) in batches])
    assert sorted(seen) == list(range(1, num_rows + 1))
    assert all(len(index) == 4 for _, (index,) in batches[:-1]) or num_rows > 4 * WINDOW_BATCHES


def test_a_window_of_one_batch_leaves_rows_where_they_are():
    batches = batches_of(50, window_batches=1).as_numpy_iterator()
    for start, (_, (index,)) in zip(range(1, 51, 4), batches, strict=True):
        assert sorted(index) == list(range(start, min(start + 4, 51)))


def test_a_window_of_no_batch_is_refused():
    with pytest.raises(ValueError, match="window_batches is 0"):
        batches_of(50, window_batches=0)


def test_rows_keep_their_ids_and_are_padded_to_the_shortest_bucket():
    for features, (index,) in batches_of(50).as_numpy_iterator():
        lengths = 1 + index % 13
        assert features["token_ids"].shape[1] == min(b for b in BUCKETS if b >= lengths.max())
        expected = np.where(
            np.arange(features["token_ids"].shape[1]) < lengths[:, None], index[:, None], 0
        )
        np.testing.assert_array_equal(features["token_ids"], expected)
        np.testing.assert_array_equal(features["padding_mask"], expected != 0)


def test_a_batch_holds_rows_of_like_length():
    batches = list(batches_of(200, buckets=range(1, 17)).as_numpy_iterator())
    padded = sum(features["token_ids"].size for features, _ in batches)
    needed = sum(1 + i % 13 for i in range(1, 201))
    assert padded < 1.05 * needed


def test_shuffling_is_seeded_and_differs_between_epochs():
    def order(dataset):
        return [tuple(index) for _, (index,) in dataset.as_numpy_iterator()]

    first, second = batches_of(60, shuffle_seed=1), batches_of(60, shuffle_seed=1)
    epochs = [order(first), order(first)]
    assert epochs[0] != epochs[1]
    assert epochs == [order(second), order(second)]
    assert order(batches_of(60, shuffle_seed=2)) != epochs[0]
    fixed = batches_of(60, shuffle_seed=1, reshuffle=False)
    assert order(fixed) == order(fixed)


def test_a_padded_last_batch_has_static_shape_and_says_which_rows_are_real():
    dataset = batches_of(10, pad_last_batch=True)
    features, (_, is_real) = dataset.element_spec
    assert features["token_ids"].shape[0] == is_real.shape[0] == 4
    batches = list(dataset.as_numpy_iterator())
    real = np.concatenate([index[is_real == 1] for _, (index, is_real) in batches])
    assert sorted(real) == list(range(1, 11))
    assert sum(is_real.sum() for _, (_, is_real) in batches) == 10


def shuffled_rows_of_unknown_number(num_rows, batch_size=4, **options):
    """Batches, each a tuple of row numbers; the length of row i is 1 + i % 13."""
    rows = tf.data.Dataset.range(1, num_rows + 1).filter(lambda i: i > 0).map(lambda i: (i,))
    preprocessor = types.SimpleNamespace(
        tokenizer=types.SimpleNamespace(pad_token_id=0), sequence_length=13
    )
    options = {"batch_size": batch_size, "shuffle_seed": 1, **options}
    batches = row_batches(rows, ragged_rows, preprocessor, **options)

    def epoch():
        return [tuple(index.tolist()) for _, (index, *_) in batches.as_numpy_iterator()]

    return epoch


@pytest.mark.parametrize("num_rows", [9, 60, 300])
def test_rows_of_unknown_number_are_shuffled_as_others_are(num_rows):
    epoch = shuffled_rows_of_unknown_number(num_rows)
    epochs = [epoch(), epoch()]
    for batches in epochs:
        assert sorted(row for batch in batches for row in batch) == list(range(1, num_rows + 1))
        assert sorted(map(len, batches), reverse=True)[:-1] == [4] * (
            num_rows // 4 - (num_rows % 4 == 0)
        )
    # Neither the order nor the batches are those of the epoch before
    repeated = set(map(frozenset, epochs[0])) & set(map(frozenset, epochs[1]))
    assert len(repeated) < len(epochs[0]) / 4
    again = shuffled_rows_of_unknown_number(num_rows)
    assert [again(), again()] == epochs
    fixed = shuffled_rows_of_unknown_number(num_rows, reshuffle=False)
    assert fixed() == fixed()


def test_windows_of_rows_of_unknown_number_grow():
    """The first batches are random samples, the later ones have rows of similar lengths."""
    batches = shuffled_rows_of_unknown_number(2000, reshuffle=False)()
    assert sorted(map(len, batches)) == [4] * 500
    spreads = [np.ptp([1 + row % 13 for row in batch]) for batch in batches]
    assert np.mean(spreads[:16]) > 4
    assert np.mean(spreads[-100:]) < 1


def test_no_rows_give_no_batches():
    assert list(batches_of(0)) == []


def test_a_row_longer_than_the_last_bucket_is_an_error_and_not_cut():
    features = {"token_ids": tf.ragged.constant([[1] * 17])}
    with pytest.raises(tf.errors.InvalidArgumentError):
        pad_to_bucket(features, tf.constant(BUCKETS, tf.int64))


def ragged_pairs(indices):
    """Each row has two sequences, of 1 + i % 13 and of 2 ids."""
    features, rest = ragged_rows(indices)
    second = tf.fill([tf.size(indices), 2], 7)
    both = [
        features["token_ids"][:, tf.newaxis],
        tf.RaggedTensor.from_tensor(second[:, None], ragged_rank=2),
    ]
    return {"token_ids": tf.concat(both, axis=1)}, rest


@pytest.mark.parametrize("featurize", [ragged_rows, ragged_pairs])
@pytest.mark.parametrize("pad_last_batch", [False, True])
@pytest.mark.parametrize("num_rows", [7, 8, 21])
def test_a_single_window_is_that_of_a_pipeline(featurize, pad_last_batch, num_rows):
    options = {"batch_size": 8, "buckets": BUCKETS, "pad_last_batch": pad_last_batch}
    rows = tf.data.Dataset.range(3, 3 + num_rows).map(lambda i: (i,))
    at_once = length_bucketed_batches(rows, featurize, **options)
    # Of rows whose number is not known, batches are made by a pipeline
    piped = length_bucketed_batches(rows.filter(lambda i: True), featurize, **options)
    assert at_once.element_spec == piped.element_spec
    assert int(at_once.cardinality()) == -(-num_rows // 8)
    for _ in range(2):
        batches = zip(at_once.as_numpy_iterator(), piped.as_numpy_iterator(), strict=True)
        for batch, expected in batches:
            tf.nest.map_structure(np.testing.assert_array_equal, batch, expected)


@pytest.mark.parametrize("seed", [None, 1])
def test_few_rows_are_featurized_once_to_the_same_batches(monkeypatch, seed):
    called_with = []

    def featurize(index):
        called_with.append(index)
        return ragged_rows(index + 1)

    def epochs():
        preprocessor = types.SimpleNamespace(
            tokenizer=types.SimpleNamespace(pad_token_id=0), sequence_length=13
        )
        tf.random.set_seed(2)
        batches = row_batches(
            50, featurize, preprocessor, batch_size=4, shuffle_seed=seed, window_batches=3
        )
        return [list(batches.as_numpy_iterator()) for _ in range(2)]

    found = epochs()
    (index,) = called_with
    np.testing.assert_array_equal(index, range(50))
    monkeypatch.setattr(batching, "MAX_ROWS_IN_MEMORY", 49)
    tf.nest.map_structure(np.testing.assert_array_equal, epochs(), found)
    assert len(called_with) == 2  # the second time in a graph

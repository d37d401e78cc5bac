# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from keras_bert.data import MaskedLMMaskGenerator, pack_sequences, packed_batches
from keras_bert.data.arrays import Ragged
from keras_bert.data.pretraining.packing import best_fit_rows

pytestmark = pytest.mark.backend_independent

CLS, SEP, MASK = 2, 3, 4


def random_lengths(count, longest=64, seed=0):
    """Returns many short lengths and a few long ones."""
    random = np.random.default_rng(seed)
    return np.minimum(3 + random.exponential(longest / 5, count).astype("int64"), longest)


def make_sequences(lengths, first=0):
    """Sequence i is `[CLS]`, repetitions of its number, `[SEP]`. Its second half is segment 1."""
    ids = [[CLS, *[100 + first + i] * (n - 2), SEP] for i, n in enumerate(lengths)]
    segments = [[int(2 * position >= n) for position in range(n)] for n in lengths]
    return {"token_ids": ids, "segment_ids": segments}


def unpack(packed):
    """Yields the sequences of packed rows in row order, as dicts of lists."""
    for row, sequence_ids in enumerate(packed["sequence_ids"]):
        for number in range(1, sequence_ids.max() + 1):
            is_sequence = sequence_ids == number
            yield {name: value[row][is_sequence].tolist() for name, value in packed.items()}


def test_each_sequence_is_packed_once():
    lengths = random_lengths(300)
    features = make_sequences(lengths)
    packed = pack_sequences(features, 64)
    unpacked = list(unpack(packed))
    for name, sequences in features.items():
        assert sorted(s[name] for s in unpacked) == sorted(sequences)
    for sequence in unpacked:
        index = features["token_ids"].index(sequence["token_ids"])
        assert sequence["segment_ids"] == features["segment_ids"][index]
        assert sequence["position_ids"] == list(range(len(sequence["token_ids"])))


def test_packing_keeps_input_order():
    sequences = list(unpack(pack_sequences(make_sequences(random_lengths(300)), 64)))
    firsts = [s["token_ids"][1] for s in sequences if s["sequence_ids"][0] == 1]
    assert firsts == sorted(firsts)
    numbers = [s["token_ids"][1] for s in sequences]
    starts = np.flatnonzero([s["sequence_ids"][0] == 1 for s in sequences])
    assert all(list(row) == sorted(row) for row in np.split(np.array(numbers), starts[1:]))


@pytest.mark.parametrize("seed", range(4))
def test_best_fit_rows_match_reference(seed):
    lengths = random_lengths(200, seed=seed)
    rows = best_fit_rows(lengths, 64)
    spaces = []
    for size in sorted(lengths, reverse=True):
        rows_with_space = [(space, row) for row, space in enumerate(spaces) if space >= size]
        if rows_with_space:
            space, row = min(rows_with_space)
            spaces[row] = space - size
        else:
            spaces.append(64 - size)
    actual = 64 - np.bincount(rows, weights=lengths)
    assert sorted(actual) == sorted(spaces)


def test_empty_sequences_are_skipped():
    packed = pack_sequences({"token_ids": [[], [5, 6], [], [7]]}, 4)
    assert packed["token_ids"].tolist() == [[5, 6, 7, 0]]
    assert packed["sequence_ids"].tolist() == [[1, 1, 2, 0]]
    empty = pack_sequences({"token_ids": [[], []]}, 4)
    assert empty["token_ids"].shape == empty["sequence_ids"].shape == (0, 4)


def make_windows(*groups):
    """Returns windows with the given numbers of sequences."""
    sizes = np.concatenate([[0], np.cumsum(groups)])
    return [
        make_sequences(random_lengths(size, seed=size), first)
        for size, first in zip(groups, sizes[:-1], strict=True)
    ]


def test_batch_size_is_independent_of_windows():
    windows = make_windows(100, 37, 80)
    batches = list(packed_batches(windows, batch_size=8, sequence_length=64))
    sizes = [len(batch["token_ids"]) for batch in batches]
    assert sizes[:-1] == [8] * (len(sizes) - 1)
    sequences = [s for batch in batches for s in unpack(batch)]
    assert sorted(s["token_ids"][1] for s in sequences) == list(range(100, 317))

    dropped = packed_batches(windows, batch_size=8, sequence_length=64, drop_remainder=True)
    assert [len(batch["token_ids"]) for batch in dropped] == [size for size in sizes if size == 8]


def test_ragged_input_matches_lists():
    features = make_sequences(random_lengths(50))
    lengths = np.array([len(row) for row in features["token_ids"]])
    flat = {name: Ragged(np.concatenate(rows), lengths) for name, rows in features.items()}
    expected = pack_sequences(features, 64)
    for name, value in pack_sequences(flat, 64).items():
        np.testing.assert_array_equal(value, expected[name])


def test_whole_word_masking_of_packed_rows():
    features = make_sequences(random_lengths(300))
    # Each word has two tokens.
    starts = [[position % 2 == 1 for position in range(len(row))] for row in features["token_ids"]]
    packed = pack_sequences({**features, "word_starts": starts}, 64)
    masker = MaskedLMMaskGenerator(1000, MASK, [0, CLS, SEP, MASK], unit="word")
    masked = masker(packed, 0)
    used = masked["mask_weights"] == 1
    row, column = np.nonzero(used)[0], masked["mask_positions"][used]
    np.testing.assert_array_equal(packed["token_ids"][row, column], masked["mask_ids"][used])
    assert (masked["mask_ids"][used] >= 100).all()
    budgets = np.round(0.15 * (masked["sequence_ids"] > 0).sum(axis=1))
    assert (budgets - used.sum(axis=1) <= 1).all()
    assert (budgets >= used.sum(axis=1)).all()
    second = masked["position_ids"][row, column] % 2 == 0
    assert set(zip(row[second], column[second] - 1, strict=True)) <= set(
        zip(row[~second], column[~second], strict=True)
    )
    for name in ("position_ids", "sequence_ids", "segment_ids"):
        np.testing.assert_array_equal(masked[name], packed[name])


def test_overlong_sequence_raises():
    with pytest.raises(
        ValueError,
        match=r"must have at most sequence_length=8 tokens. Received: 9 tokens \(sequence 1\)",
    ):
        pack_sequences(make_sequences([4, 9]), 8)


def test_mismatched_feature_lengths_raise():
    features = {**make_sequences([4, 5]), "segment_ids": make_sequences([5, 4])["segment_ids"]}
    with pytest.raises(
        ValueError,
        match=r"segment_ids must be as long as the token_ids, \[4, 5\]. Received: \[5, 4\]",
    ):
        pack_sequences(features, 16)

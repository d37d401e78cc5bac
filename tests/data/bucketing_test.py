# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from keras_bert.data.bucketing import bucket_lengths, permutation, rows_of_batches

pytestmark = pytest.mark.backend_independent


def test_bucket_lengths_grow_gradually():
    lengths = bucket_lengths(512)
    assert lengths[0] == 8
    assert lengths[-1] == 512
    steps = np.diff(lengths) / lengths[:-1]
    assert steps[8:].max() <= 0.25
    assert bucket_lengths(100, coarse=True) == (16, 32, 64, 100)
    assert bucket_lengths(5) == (5,)


def test_equal_texts_are_in_different_batches():
    # Every second pair shares a text with the pair before it.
    texts = np.arange(120).reshape(60, 2)
    texts[1::2, 0] = texts[::2, 0]
    batches = list(rows_of_batches(np.full(60, 7), 3, (0,), texts))
    assert sorted(np.concatenate(batches)) == list(range(60))
    assert all(len(np.unique(texts[rows])) == 6 for rows in batches)
    # Each text is in more rows than the number of batches.
    batches = list(rows_of_batches(np.arange(7), 3, None, np.zeros((7, 2), "int64")))
    assert [rows.tolist() for rows in batches] == [[0, 1, 2], [3, 4, 5], [6]]


def test_permutation_is_independent_of_numpy():
    assert permutation(8, 1, 2).tolist() == [7, 1, 3, 0, 4, 2, 6, 5]
    assert sorted(permutation(1000, 3)) == list(range(1000))

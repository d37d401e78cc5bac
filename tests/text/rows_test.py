# SPDX-License-Identifier: Apache-2.0
"""Rows of values one after another, against NumPy."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from keras_bert.text.graph.rows import ranges, repeat, row_ids, select  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

COUNTS = [[], [0], [0, 0], [3], [0, 2, 0, 0, 5, 1, 0], [1, 0, 4]]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("counts", COUNTS)
def test_rows_are_repeated(counts, dtype):
    x = np.arange(len(counts)) * 10
    repeated = repeat(tf.constant(x), tf.constant(counts, dtype))
    np.testing.assert_array_equal(repeated, np.repeat(x, counts))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("lengths", COUNTS)
def test_ranges_begin_where_they_are_told(lengths, dtype):
    starts = 7 - np.arange(len(lengths), dtype=dtype)
    found = ranges(tf.constant(starts), tf.constant(lengths, dtype))
    expected = [n for n, m in zip(starts, lengths, strict=True) for n in range(n, n + m)]
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == dtype


@pytest.mark.parametrize("lengths", COUNTS)
def test_values_have_the_number_of_their_row(lengths):
    values = tf.zeros([sum(lengths)])
    ragged = tf.RaggedTensor.from_row_lengths(values, tf.constant(lengths, tf.int64))
    np.testing.assert_array_equal(row_ids(ragged), np.repeat(np.arange(len(lengths)), lengths))


@pytest.mark.parametrize("shape", [(0,), (5,), (3, 4)])
def test_elements_that_fulfill_a_condition_are_selected(shape):
    x = np.arange(np.prod(shape)).reshape(shape)
    for condition in (x % 3 == 1, x < 0, x >= 0):
        np.testing.assert_array_equal(select(tf.constant(x), tf.constant(condition)), x[condition])
    rows = np.ones(shape[:1], bool)
    np.testing.assert_array_equal(select(tf.constant(x), tf.constant(rows)), x[rows])

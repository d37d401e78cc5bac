# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from keras_bert.text.graph.rows import ranges, repeat  # noqa: E402

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

COUNTS = [[], [0], [0, 0], [3], [0, 2, 0, 0, 5, 1, 0], [1, 0, 4]]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("counts", COUNTS)
def test_repeat_matches_numpy(counts, dtype):
    x = np.arange(len(counts)) * 10
    repeated = repeat(tf.constant(x), tf.constant(counts, dtype))
    np.testing.assert_array_equal(repeated, np.repeat(x, counts))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("lengths", COUNTS)
def test_ranges_match_python(lengths, dtype):
    starts = 7 - np.arange(len(lengths), dtype=dtype)
    actual = ranges(tf.constant(starts), tf.constant(lengths, dtype))
    expected = [n for n, m in zip(starts, lengths, strict=True) for n in range(n, n + m)]
    np.testing.assert_array_equal(actual, expected)
    assert actual.dtype == dtype

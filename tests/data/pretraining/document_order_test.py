# SPDX-License-Identifier: Apache-2.0


import numpy as np
import pytest

pytestmark = pytest.mark.backend_independent

from keras_bert.data.pretraining.document_order import DocumentOrder  # noqa: E402


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 17, 1000, 4096, 65537])
def test_positions_are_a_permutation(count):
    order = DocumentOrder(count, 7, 0)
    positions = order.positions(np.arange(count))
    assert positions.dtype == np.int64
    np.testing.assert_array_equal(np.sort(positions), np.arange(count))
    np.testing.assert_array_equal(order.documents(positions), np.arange(count))


def test_positions_in_huge_corpus():
    count = 10**12
    order = DocumentOrder(count, 7)
    documents = np.array([0, 1, count - 1, count // 3])
    positions = order.positions(documents)
    assert ((positions >= 0) & (positions < count)).all()
    np.testing.assert_array_equal(order.documents(positions), documents)
    for document, position in zip(documents, positions, strict=True):
        assert order.positions(np.array([document])) == position

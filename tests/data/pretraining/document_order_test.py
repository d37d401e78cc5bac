# SPDX-License-Identifier: Apache-2.0

import collections

import numpy as np
import pytest

pytestmark = pytest.mark.backend_independent

from keras_bert.data.pretraining.document_order import DocumentOrder  # noqa: E402


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 17, 1000, 4096, 65537])
def test_each_document_has_one_position_and_is_found_there(count):
    order = DocumentOrder(count, 7, 0)
    positions = order.positions(np.arange(count))
    assert positions.dtype == np.int64
    np.testing.assert_array_equal(np.sort(positions), np.arange(count))
    np.testing.assert_array_equal(order.documents(positions), np.arange(count))


def test_a_part_is_computed_alone_for_more_documents_than_memory_holds():
    count = 10**12
    order = DocumentOrder(count, 7)
    documents = np.array([0, 1, count - 1, count // 3])
    positions = order.positions(documents)
    assert ((positions >= 0) & (positions < count)).all()
    np.testing.assert_array_equal(order.documents(positions), documents)
    for one, position in zip(documents, positions, strict=True):
        assert order.positions(np.array([one])) == position


def test_every_order_of_a_few_documents_is_about_as_frequent():
    orders = collections.Counter(
        tuple(DocumentOrder(4, seed).positions(np.arange(4)).tolist()) for seed in range(4800)
    )
    assert len(orders) == 24
    # 200 of each are expected; the chi-square statistic has a mean of 23, and 60 is 5 deviations.
    assert sum((count - 200) ** 2 / 200 for count in orders.values()) < 60


def test_neighbors_and_seeds_are_independent():
    count = 50_000
    first, second = (DocumentOrder(count, 3, n).positions(np.arange(count)) for n in range(2))
    for a, b in ((first[:-1], first[1:]), (first, np.arange(count)), (first, second)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.02
    np.testing.assert_array_equal(first, DocumentOrder(count, 3, 0).positions(np.arange(count)))

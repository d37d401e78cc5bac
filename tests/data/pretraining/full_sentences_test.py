# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert.data.pretraining.instances import document_sentences, full_sentences  # noqa: E402
from tests.data.pretraining import plain_pairs  # noqa: E402

SEPARATOR = -7


def test_full_sentences_cross_documents():
    documents = [[np.array([1, 2]), np.array([3])], [np.array([4, 5])], [np.array([6, 7, 8])]]
    rows = [row.tolist() for row in full_sentences(documents, 6, SEPARATOR)]
    assert rows == [[1, 2, 3, SEPARATOR, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("max_tokens", [3, 10, 64])
def test_full_sentences_keep_all_tokens(max_tokens):
    documents = plain_pairs.make_corpus(30)
    rows = list(full_sentences(documents, max_tokens, SEPARATOR))
    tokens = np.concatenate(rows)
    text = np.concatenate([sentence for document in documents for sentence in document])
    assert (tokens[tokens != SEPARATOR] == text).all()
    assert max(map(len, rows)) <= max_tokens
    for row in rows:
        assert SEPARATOR not in (row[0], row[-1])
        separators = np.flatnonzero(row == SEPARATOR)
        document_indices = plain_pairs.document_index(row)
        assert (document_indices[separators - 1] + 1 == document_indices[separators + 1]).all()
    if max_tokens == 64:
        # A sentence has at most 25 tokens, so a row never has 26 free positions.
        assert min(map(len, rows[:-1])) >= 64 - 25


def test_document_sentences_stay_in_document():
    documents = plain_pairs.make_corpus(20)
    for index, document in enumerate(documents):
        rows = list(document_sentences(document, 50))
        assert (np.concatenate(rows) == np.concatenate(document)).all()
        assert {plain_pairs.document_index(token) for row in rows for token in row} == {index}


def test_overlong_sentence_is_split():
    rows = [row.tolist() for row in document_sentences([np.arange(7)], 3)]
    assert rows == [[0, 1, 2], [3, 4, 5], [6]]

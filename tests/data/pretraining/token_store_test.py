# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")

from keras_bert.data.pretraining import token_store  # noqa: E402
from keras_bert.data.pretraining.token_store import TokenStore, TokenStoreWriter  # noqa: E402
from tests.data.pretraining import plain_pairs  # noqa: E402


def write_store(directory, documents):
    with TokenStoreWriter(directory) as writer:
        for document in documents:
            writer.add_sentences(document)
            writer.end_document()
    return TokenStore(directory)


def test_documents_round_trip(tmp_path):
    documents = plain_pairs.make_corpus(40)
    store = write_store(tmp_path / "store", documents)
    assert len(store) == 40
    assert store.num_sentences == sum(map(len, documents))
    assert store.num_tokens == sum(len(s) for document in documents for s in document)
    for stored, document in zip(store, documents, strict=True):
        assert len(stored) == len(document)
        for iterated, index, sentence in zip(stored, range(len(document)), document, strict=True):
            np.testing.assert_array_equal(iterated, sentence)
            np.testing.assert_array_equal(stored[index], sentence)
            assert iterated.dtype == np.int32
    np.testing.assert_array_equal(store[-1][-1], documents[-1][-1])


def test_out_of_range_index_raises(tmp_path):
    store = write_store(tmp_path / "store", [[[5]], [[6]]])
    for index in (2, -3):
        with pytest.raises(IndexError, match=rf"index must be in \[-2, 2\). Received: {index}"):
            store[index]
    with pytest.raises(IndexError, match=r"index must be in \[-1, 1\). Received: 1"):
        store[0][1]


def test_overlong_documents_are_split(tmp_path, monkeypatch):
    monkeypatch.setattr(token_store, "MAX_DOCUMENT_TOKENS", 5)
    store = write_store(tmp_path / "store", [[[1, 2, 3], [4, 5, 6], [7], [8]], [[9]]])
    assert [[s.tolist() for s in document] for document in store] == [
        [[1, 2, 3], [4, 5, 6]],
        [[7], [8]],
        [[9]],
    ]


def test_unfinished_store_is_not_written(tmp_path):
    writer = TokenStoreWriter(tmp_path / "store")
    writer.add_sentences([[5]])
    with pytest.raises(FileNotFoundError, match="store does not exist"):
        TokenStore(tmp_path / "store")
    writer.__exit__(KeyError, KeyError(), None)
    assert list(tmp_path.iterdir()) == []


def test_existing_store_is_not_overwritten(tmp_path):
    write_store(tmp_path / "store", [[[5]]])
    with pytest.raises(FileExistsError, match="already exists"):
        TokenStoreWriter(tmp_path / "store")

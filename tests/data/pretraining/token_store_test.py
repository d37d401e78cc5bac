# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

pytestmark = [pytest.mark.needs_tensorflow, pytest.mark.backend_independent]

pytest.importorskip("tensorflow")  # which keras_bert.data imports

from keras_bert.data.pretraining import token_store  # noqa: E402
from keras_bert.data.pretraining.token_store import TokenStore, TokenStoreWriter  # noqa: E402
from tests.data.pretraining import plain_pairs  # noqa: E402


def write(folder, documents):
    with TokenStoreWriter(folder) as writer:
        for document in documents:
            writer.add_sentences(document)
            writer.end_document()
    return TokenStore(folder)


def test_documents_come_back_as_they_were(tmp_path):
    documents = plain_pairs.corpus(40)
    store = write(tmp_path / "store", documents)
    assert len(store) == 40
    assert store.num_sentences == sum(map(len, documents))
    assert store.num_tokens == sum(len(s) for document in documents for s in document)
    for stored, document in zip(store, documents, strict=True):
        assert len(stored) == len(document)
        for whole, single, sentence in zip(stored, range(len(document)), document, strict=True):
            np.testing.assert_array_equal(whole, sentence)
            np.testing.assert_array_equal(stored[single], sentence)
            assert whole.dtype == np.int32
    np.testing.assert_array_equal(store[-1][-1], documents[-1][-1])


def test_indices_out_of_range_are_refused(tmp_path):
    store = write(tmp_path / "store", [[[5]], [[6]]])
    for index in (2, -3):
        with pytest.raises(IndexError, match=f"index must be in .* Received: {index}"):
            store[index]
    with pytest.raises(IndexError, match=r"index must be in .* Received: 1"):
        store[0][1]


def test_documents_too_long_for_memory_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(token_store, "MAX_DOCUMENT_TOKENS", 5)
    store = write(tmp_path / "store", [[[1, 2, 3], [4, 5, 6], [7], [8]], [[9]]])
    assert [[s.tolist() for s in document] for document in store] == [
        [[1, 2, 3], [4, 5, 6]],
        [[7], [8]],
        [[9]],
    ]


def test_a_store_that_was_not_finished_is_not_there(tmp_path):
    writer = TokenStoreWriter(tmp_path / "store")
    writer.add_sentences([[5]])
    with pytest.raises(FileNotFoundError, match="store does not exist"):
        TokenStore(tmp_path / "store")
    writer.__exit__(KeyError, KeyError(), None)
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_not_written_over_another(tmp_path):
    write(tmp_path / "store", [[[5]]])
    with pytest.raises(FileExistsError, match="already exists"):
        TokenStoreWriter(tmp_path / "store")

# SPDX-License-Identifier: Apache-2.0

import numpy as np
import pytest

from keras_bert.data import token_vectors
from keras_bert.data.token_vectors import max_similarities, pool_tokens

pytestmark = pytest.mark.backend_independent


def random_vectors(*lengths):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(length, 4)).astype("float32") for length in lengths]


@pytest.mark.parametrize("at_once", [1, 20, 30, 1 << 24])
def test_max_similarities_in_chunks(at_once, monkeypatch):
    monkeypatch.setattr(token_vectors, "_SIMILARITIES_AT_ONCE", at_once)
    query, *documents = random_vectors(3, 2, 0, 5, 1, 0, 9, 1)
    expected = [(query @ rows.T).max(axis=1).sum() if len(rows) else 0.0 for rows in documents]
    np.testing.assert_allclose(max_similarities(query, documents), expected, rtol=1e-5)
    assert max_similarities(query, []).shape == (0,)


def test_pool_tokens_averages_similar_vectors():
    first, *groups = np.eye(4, dtype="float32")
    vectors = np.stack([first, groups[0], groups[1], groups[0], groups[1]])
    np.testing.assert_array_equal(pool_tokens(vectors, 2)[0], first)
    assert sorted(map(tuple, pool_tokens(vectors, 2)[1:])) == sorted(map(tuple, groups[:2]))
    # Equal vectors are a single cluster, although there could be two.
    assert len(pool_tokens(np.repeat(vectors[:1], 5, axis=0), 2)) <= 3
    for few in (vectors[:0], vectors[:1], vectors[:2]):
        np.testing.assert_array_equal(pool_tokens(few, 3), few)
    with pytest.raises(ValueError, match="pool_factor must be an integer above 0"):
        pool_tokens(vectors, 0)

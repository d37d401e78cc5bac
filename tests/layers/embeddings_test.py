# SPDX-License-Identifier: Apache-2.0
"""Token embeddings, and the dtypes and dropout of the embeddings added to them."""

import numpy as np

from keras_bert.layers import EmbeddingPostprocessor, TokenEmbedding
from tests.models.small_backbone import random_weights, to_numpy

IDS = np.array([[3, 1, 0, 2], [2, 2, 4, 3]], "int32")
VECTORS = np.random.default_rng(0).normal(size=(2, 4, 6)).astype("float32")
SEGMENTS = np.array([[0, 0, 1, 1], [0, 1, 1, 1]], "int32")


def make_postprocessor(**arguments) -> EmbeddingPostprocessor:
    layer = EmbeddingPostprocessor(**{"max_sequence_length": 5, "num_segments": 2} | arguments)
    layer.build((None, None, 6))
    random_weights(layer)
    return layer


def test_embedding_table_works_in_reverse():
    layer = TokenEmbedding(5, 6)
    vectors = to_numpy(layer(IDS))
    table = layer.embeddings.numpy()
    np.testing.assert_array_equal(vectors, table[IDS])
    np.testing.assert_allclose(to_numpy(layer(VECTORS, reverse=True)), VECTORS @ table.T, atol=1e-6)


def test_mixed_precision_dtypes():
    layer = TokenEmbedding(5, 6, dtype="mixed_bfloat16")
    vectors = to_numpy(layer(IDS))
    np.testing.assert_array_equal(vectors, layer.embeddings.numpy()[IDS])
    assert "bfloat16" in str(layer(VECTORS, reverse=True).dtype)


def test_dropout_comes_last():
    layer = make_postprocessor(dropout=0.5)
    whole = to_numpy(layer(VECTORS, SEGMENTS))
    dropped = to_numpy(layer(VECTORS, SEGMENTS, training=True))
    zero = dropped == 0
    assert 0.2 < zero.mean() < 0.8
    np.testing.assert_allclose(dropped[~zero], 2 * whole[~zero], rtol=1e-5)


def test_half_precision_sums_in_float32():
    layer = make_postprocessor(dtype="mixed_bfloat16")
    reference = make_postprocessor()
    expected = to_numpy(reference(VECTORS, SEGMENTS))
    # The result is rounded once: half of the last of bfloat16's eight bits.
    np.testing.assert_allclose(to_numpy(layer(VECTORS, SEGMENTS)), expected, rtol=2**-8)

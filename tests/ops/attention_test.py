# SPDX-License-Identifier: Apache-2.0
import keras
import numpy as np
import pytest

from keras_bert.ops import attention, attention_with_scores
from tests.ops.backend_gradients import as_tensors, to_numpy, value_and_gradients

BATCH, LENGTH, HEADS, HEAD_DIM = 2, 6, 3, 4
RANDOM = np.random.default_rng(0)
PACKED = RANDOM.normal(size=(BATCH, LENGTH, 3, HEADS, HEAD_DIM))
UPSTREAM = RANDOM.normal(size=(BATCH, LENGTH, HEADS, HEAD_DIM))

MASKS = {
    "whole": None,
    "padded": (np.arange(LENGTH) < np.array([[6], [2]]))[:, None, None, :],
    "blocks": np.kron(np.eye(3), np.ones((2, 2))).astype(bool)[None, None],
}


def numpy_attention(packed, mask):
    query, key, value = np.moveaxis(packed, 2, 0)
    scores = np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(packed.shape[-1])
    scores = scores if mask is None else np.where(mask, scores, -1e9)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bnts,bsnh->btnh", weights / weights.sum(-1, keepdims=True), value)


def as_mask(mask):
    return None if mask is None else keras.ops.convert_to_tensor(mask)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_values_agree_with_numpy(mask, training):
    (packed,) = as_tensors((PACKED,), "float32")
    context = attention(packed, as_mask(mask), training=training)
    np.testing.assert_allclose(to_numpy(context), numpy_attention(PACKED, mask), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_row_without_a_single_key_stays_finite(dtype):
    (packed,) = as_tensors((PACKED,), dtype)
    mask = keras.ops.zeros((BATCH, 1, 1, LENGTH), "bool")
    for training in (False, True):
        assert np.isfinite(to_numpy(attention(packed, mask, training=training))).all()


@pytest.mark.parametrize("length", [LENGTH, 2100])  # the latter in blocks, where there are some
def test_products_of_large_queries_and_keys_do_not_overflow(length):
    """Those of 1 and 1 are 102,400, and 12,800 when they are scaled."""
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (1, length, 3, 1, 64))
    signs[:, :, 1] = signs[:, ::-1, 0]  # so that each query has a key like it
    (packed,) = as_tensors((40 * signs,), "float16")
    expected = numpy_attention(40 * signs, None)
    for training in (False, True):
        found = to_numpy(attention(packed, training=training))
        np.testing.assert_allclose(found, expected, rtol=1e-2)
    np.testing.assert_allclose(to_numpy(attention_with_scores(packed)[0]), expected, rtol=1e-2)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 0.04)])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_agrees_with_the_definition(mask, training, dtype, tolerance):
    packed, upstream = as_tensors((PACKED, UPSTREAM), dtype)
    mask = as_mask(mask)
    value, (gradient,) = value_and_gradients(
        lambda packed: attention(packed, mask, training=training), (packed,), upstream
    )
    packed, upstream = (keras.ops.cast(tensor, "float32") for tensor in (packed, upstream))
    expected, (expected_gradient,) = value_and_gradients(
        lambda packed: attention_with_scores(packed, mask)[0], (packed,), upstream
    )
    np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=tolerance, atol=tolerance)


def dropped_probabilities(rate, seed, length=64):
    """The probabilities behind dropout in both passes, each `(length, length)`.

    Attention is linear in the values: unit vectors as values show the probabilities.
    """
    packed = np.zeros((1, length, 3, 1, length), "float32")
    packed[0, :, 2, 0] = np.eye(length)
    packed, upstream = as_tensors((packed, np.eye(length)[None, :, None, :]), "float32")
    value, (gradient,) = value_and_gradients(
        lambda packed: attention(
            packed, dropout=rate, seed=keras.random.SeedGenerator(seed), training=True
        ),
        (packed,),
        upstream,
    )
    return value[0, :, 0], gradient[0, :, 2, 0].T


def test_forward_and_backward_drop_the_same_share():
    forward, backward = dropped_probabilities(0.25, seed=7)
    np.testing.assert_allclose(forward, backward, atol=1e-6)
    kept = forward > 0
    np.testing.assert_allclose(forward[kept], 1 / 64 / 0.75, rtol=1e-5)
    assert abs(kept.mean() - 0.75) < 4 * np.sqrt(0.25 * 0.75 / kept.size)


def test_each_seed_drops_others():
    first, second = (dropped_probabilities(0.5, seed)[0] > 0 for seed in (7, 8))
    assert 0.45 < (first == second).mean() < 0.55


def test_the_gradient_of_the_scores_sees_the_dropout():
    (upstream,) = as_tensors((UPSTREAM,), "float32")

    def loss(packed):
        value, (gradient,) = value_and_gradients(
            lambda packed: attention(
                packed, dropout=0.5, seed=keras.random.SeedGenerator(1), training=True
            ),
            as_tensors((packed,), "float32"),
            upstream,
        )
        return (value * UPSTREAM).sum(), gradient

    direction = np.random.default_rng(2).normal(size=PACKED.shape)
    _, gradient = loss(PACKED)
    step = 1e-2
    slope = (loss(PACKED + step * direction)[0] - loss(PACKED - step * direction)[0]) / (2 * step)
    np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=2e-2)

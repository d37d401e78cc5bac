# SPDX-License-Identifier: Apache-2.0
"""Kernels on this machine match the reference implementation, which matches NumPy."""

import dataclasses
import importlib

import keras
import numpy as np
import pytest

from keras_bert.ops import BatchLayout, attention, attention_with_scores
from keras_bert.ops.attention import kernels
from keras_bert.ops.masks import AttentionPattern
from tests.ops.attention.layouts import LAYOUTS, PATTERNS, arrays, packed, padded, whole
from tests.ops.backend_gradients import as_tensors, to_numpy, value_and_gradients

# Shorter than the window, and five blocks that are not full
LENGTHS = (7, 333)
BACKEND = keras.backend.backend()
# Without dropout, only TensorFlow has a separate kernel for training.
IN_TRAINING = [False, True] if BACKEND == "tensorflow" else [True]


def compute_bias(query, key):
    """Returns a bias for each head that depends on the distance and on the queries."""
    length, heads = query.shape[2], query.shape[1]
    distance = np.abs(np.arange(length)[:, None] - np.arange(length)) / 10
    head_bias = (np.arange(heads)[:, None, None] * distance)[None].astype("float32")
    return keras.ops.cast(head_bias, query.dtype) + keras.ops.sum(query, -1, keepdims=True) / 8


def check_kernel(
    batch, pattern, dtype="float32", tolerance=2e-5, key_value_heads=4, bias=None, **options
):
    mask = batch.mask(**pattern)
    has_keys = mask.any(-1)[:, 0, :, None, None]
    *three, upstream = arrays(batch, key_value_heads)
    # A token without keys gets a meaningless value.
    *three, upstream = as_tensors((*three, upstream * has_keys), dtype)
    value, gradients = value_and_gradients(
        lambda *x: attention(x, batch.layout, bias=bias, **pattern, **options), three, upstream
    )
    assert np.isfinite(value).all()
    mask = keras.ops.convert_to_tensor(mask)
    *three, upstream = (keras.ops.cast(x, "float32") for x in (*three, upstream))
    expected, expected_gradients = value_and_gradients(
        lambda *x: attention_with_scores(x, mask, bias=bias)[0], three, upstream
    )
    np.testing.assert_allclose(value * has_keys, expected * has_keys, tolerance, tolerance)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, other, tolerance, tolerance)


def test_reference_matches_numpy():
    batch = packed(50)
    mask = batch.mask(causal=True, window=10)
    query, key, value, _ = arrays(batch)
    scores = np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(query.shape[-1])
    weights = np.exp(np.where(mask, scores, -1e9))
    weights /= weights.sum(-1, keepdims=True)
    three = tuple(as_tensors((query, key, value), "float32"))
    actual, probabilities = attention_with_scores(three, keras.ops.convert_to_tensor(mask))
    np.testing.assert_allclose(to_numpy(probabilities), weights, atol=1e-5)
    expected = np.einsum("bnts,bsnh->btnh", weights, value)
    np.testing.assert_allclose(to_numpy(actual), expected, atol=1e-5)


@pytest.mark.parametrize("training", IN_TRAINING)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_match_reference(layout, pattern, length, training):
    check_kernel(LAYOUTS[layout](length), PATTERNS[pattern], training=training)


@pytest.mark.parametrize("length", [100, 256])
def test_windows_match_in_one_and_full_blocks(length):
    check_kernel(packed(length), PATTERNS["window"], training=True)


@pytest.mark.parametrize("training", IN_TRAINING)
@pytest.mark.parametrize("pattern", ["full", "window"])
@pytest.mark.parametrize("layout", ["padded"])
def test_grouped_heads_match_reference(layout, pattern, training):
    check_kernel(LAYOUTS[layout](100), PATTERNS[pattern], key_value_heads=2, training=training)


@pytest.mark.parametrize("training", IN_TRAINING)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bias_matches_reference(layout, training):
    check_kernel(LAYOUTS[layout](33), PATTERNS["full"], bias=compute_bias, training=training)


@pytest.mark.parametrize("training", IN_TRAINING)
@pytest.mark.parametrize("pattern", ["full", "window"])
def test_bfloat16_matches_within_rounding(pattern, training):
    check_kernel(padded(333), PATTERNS[pattern], "bfloat16", 0.05, training=training)


@pytest.mark.skipif(BACKEND == "torch", reason="PyTorch has no chunks of its own")
@pytest.mark.parametrize(
    ("layout", "bias"), [("whole", None), ("padded", None), ("packed", compute_bias)]
)
def test_long_rows_match_reference(layout, bias):
    check_kernel(LAYOUTS[layout](2100), PATTERNS["full"], tolerance=1e-4, bias=bias, training=True)


def test_fused_projections_match_separate_tensors():
    batch = padded(20)
    *three, _ = as_tensors(arrays(batch), "float32")
    actual = attention(keras.ops.stack(three, axis=2), batch.layout)
    expected = attention(tuple(three), batch.layout)
    np.testing.assert_allclose(to_numpy(actual), to_numpy(expected), atol=1e-6)


def test_precomputed_masks_match():
    """An encoder computes the masks once for all of its blocks."""
    for layout in LAYOUTS.values():
        batch = layout(333)
        three = tuple(as_tensors(arrays(batch)[:3], "float32"))
        for pattern in PATTERNS.values():
            attention_pattern = AttentionPattern(**pattern)
            masks = {attention_pattern.name: batch.layout.mask(three[0], attention_pattern)}
            made = dataclasses.replace(
                batch.layout, masks=masks, padding_mask=None, sequence_ids=None
            )
            actual, expected = (attention(three, x, **pattern) for x in (made, batch.layout))
            np.testing.assert_array_equal(to_numpy(actual), to_numpy(expected))


# Each kernel in the table, and a case that uses it on this machine
REACHED = {
    "tensorflow": {
        "per_group": ("unpadded", "full", {}),
        "windowed": ("padded", "window", {}),
        "fused_step": ("padded", "full", {"training": True}),
        "plain": ("padded", "full", {}),
        "portable": ("padded", "full", {"training": True, "dropout": 0.1, "bias": compute_bias}),
    },
    "jax": {
        "windowed": ("padded", "window", {}),
        "chunked": ("padded", "full", {"length": 2100}),
        "portable": ("padded", "full", {}),
    },
    "torch": {
        "per_group": ("unpadded", "full", {}),
        "windowed": ("padded", "window", {}),
        "sdpa": ("padded", "full", {}),
        "portable": ("padded", "full", {"training": True, "dropout": 0.1}),
    },
}


def test_all_cpu_kernels_are_covered(monkeypatch):
    """Except for dropout, the tests above compare all kernels with the reference."""
    called = []
    original = kernels.kernel_of

    def kernel_of(case):
        called.append(original(case))
        return called[-1]

    package = importlib.import_module("keras_bert.ops.attention")
    monkeypatch.setattr(package, "kernel_of", kernel_of)
    for kernel, (layout, pattern, options) in REACHED[BACKEND].items():
        options = dict(options)
        batch = LAYOUTS[layout](options.pop("length", 100))
        three = tuple(as_tensors(arrays(batch)[:3], "float32"))
        called.clear()
        seed = keras.random.SeedGenerator(1)
        attention(three, batch.layout, seed=seed, **PATTERNS[pattern], **options)
        assert called[0] == kernel
    gpu_kernels = {"varlen", "flex", "cudnn"}
    cpu_kernels = {
        row.kernel for row in kernels.TABLE if row.backend in (None, BACKEND)
    } - gpu_kernels
    assert cpu_kernels - ({"per_group"} if BACKEND == "jax" else set()) == set(REACHED[BACKEND])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_fully_masked_row_is_finite(dtype):
    *three, upstream = as_tensors(arrays(whole(6)), dtype)
    mask = keras.ops.zeros((3, 6), "bool")
    layout = BatchLayout(padding_mask=mask)
    for compute in (
        lambda *x: attention(x, layout),
        lambda *x: attention(x, layout, training=True),
        lambda *x: attention_with_scores(x, mask[:, None, None])[0],
    ):
        value, gradients = value_and_gradients(compute, three, upstream)
        assert all(np.isfinite(array).all() for array in (value, *gradients))


@pytest.mark.parametrize(
    "length", [6, 2100]
)  # Longer rows are computed in chunks on some backends.
def test_large_queries_and_keys_do_not_overflow(length):
    """Products of equal signs are 102,400, and 12,800 after scaling."""
    signs = np.random.default_rng(1).choice([-1.0, 1.0], (1, length, 3, 1, 64))
    signs[:, :, 1] = signs[:, ::-1, 0]  # Each query has an equal key.
    (wide,) = as_tensors((40 * signs,), "float32")
    expected = to_numpy(attention_with_scores(wide)[0])
    (qkv,) = as_tensors((40 * signs,), "float16")
    for training in (False, True):
        np.testing.assert_allclose(to_numpy(attention(qkv, training=training)), expected, rtol=1e-2)
    np.testing.assert_allclose(to_numpy(attention_with_scores(qkv)[0]), expected, rtol=1e-2)


@pytest.mark.parametrize("window", [0, -1, 2.5])
def test_invalid_window_raises(window):
    three = tuple(as_tensors(arrays(whole(7))[:3], "float32"))
    with pytest.raises(ValueError, match=r"window must be an integer above 0\. Received: "):
        attention(three, window=window)
    with pytest.raises(ValueError, match="window and bias must not"):
        attention(three, window=3, bias=compute_bias)


# === Dropout ===


def probabilities_after_dropout(rate, seed, length=64, window=None):
    """Returns the probabilities after dropout in both passes, each `(length, length)`.

    Attention is linear in the values, so unit vectors as values show the probabilities.
    """
    units = np.eye(length)[None, :, None]
    *three, upstream = as_tensors((0 * units, 0 * units, units, units), "float32")
    value, gradients = value_and_gradients(
        lambda *x: attention(
            x,
            window=window,
            dropout=rate,
            seed=keras.random.SeedGenerator(seed),
            training=True,
        ),
        three,
        upstream,
    )
    return value[0, :, 0], gradients[2][0, :, 0].T


@pytest.mark.parametrize(("length", "window"), [(64, None), (256, 10)])
def test_forward_and_backward_drop_the_same(length, window):
    forward, backward = probabilities_after_dropout(0.25, 7, length, window)
    np.testing.assert_allclose(forward, backward, atol=1e-6)
    reach = length if window is None else window
    is_in_window = np.abs(np.arange(length)[:, None] - np.arange(length)) <= reach
    assert not forward[~is_in_window].any()
    is_kept = forward > 0
    expected = np.broadcast_to(1 / is_in_window.sum(-1, keepdims=True) / 0.75, is_kept.shape)
    np.testing.assert_allclose(forward[is_kept], expected[is_kept], rtol=1e-5)
    assert abs(is_kept[is_in_window].mean() - 0.75) < 4 * np.sqrt(0.25 * 0.75 / is_in_window.sum())


def test_seeds_drop_different_values():
    first, second = (probabilities_after_dropout(0.5, seed)[0] > 0 for seed in (7, 8))
    assert 0.45 < (first == second).mean() < 0.55


def test_score_gradients_include_dropout():
    packed_shape = (2, 6, 3, 3, 4)
    random = np.random.default_rng(0)
    x, direction = (random.normal(size=packed_shape) for _ in "ab")
    upstream = random.normal(size=(2, 6, 3, 4))

    def loss(x):
        value, (gradient,) = value_and_gradients(
            lambda x: attention(x, dropout=0.5, seed=keras.random.SeedGenerator(1), training=True),
            as_tensors((x,), "float32"),
            as_tensors((upstream,), "float32")[0],
        )
        return (value * upstream).sum(), gradient

    step = 1e-2
    slope = (loss(x + step * direction)[0] - loss(x - step * direction)[0]) / (2 * step)
    np.testing.assert_allclose((loss(x)[1] * direction).sum(), slope, rtol=2e-2)

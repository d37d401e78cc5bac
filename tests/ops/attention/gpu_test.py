# SPDX-License-Identifier: Apache-2.0
"""GPU kernels match the reference implementation of attention in float32 on the same GPU.

CONTRIBUTING.md describes how to run only this file on a machine with a GPU.
"""

import contextlib

import keras
import numpy as np
import pytest

from keras_bert import Backbone
from keras_bert.ops import BatchLayout, attention, attention_with_scores, dispatch
from keras_bert.ops.attention.kernels import case_of, kernel_of, mask_kind
from keras_bert.ops.masks import AttentionPattern
from keras_bert.ops.varlen import varlen_of
from tests.models.small_backbone import WITHOUT_DROPOUT, random_weights
from tests.ops.backend_gradients import as_tensors, to_numpy, value_and_gradients

BACKEND = keras.backend.backend()
pytestmark = pytest.mark.skipif(
    (dispatch.cuda_capability() or (0, 0)) < (8, 0), reason="needs an NVIDIA GPU of Ampere or later"
)
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="PyTorch's own")
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="JAX's own")

BATCH, LENGTH, HEADS, HEAD_DIM = 3, 256, 4, 64
RIGHT_PADDED = np.arange(LENGTH) < np.array([[256], [100], [33]])
WITH_HOLES = RIGHT_PADDED & (np.random.default_rng(1).random((BATCH, LENGTH)) < 0.7)
SEQUENCES = np.repeat(np.arange(1, 9), 32)[None].repeat(BATCH, axis=0)
LAYOUTS = {
    "whole": {},
    "right-padded": {"padding_mask": RIGHT_PADDED},
    "with holes": {"padding_mask": WITH_HOLES},
    "packed": {"sequence_ids": SEQUENCES},
}
# Relative to the largest value: the reference computes with inputs rounded to this dtype.
TOLERANCE = {"bfloat16": 0.02, "float16": 0.003, "float32": 0.002}


def arrays(key_value_heads=HEADS, length=LENGTH, batch=BATCH):
    random = np.random.default_rng(0)
    heads = (HEADS, key_value_heads, key_value_heads, HEADS)
    return [random.normal(size=(batch, length, count, HEAD_DIM)) for count in heads]


def make_layout(**inputs):
    return BatchLayout(**{name: keras.ops.convert_to_tensor(x) for name, x in inputs.items()})


def make_mask(layout, three, **pattern):
    """Returns the mask of all token pairs in float32."""
    return layout.mask(three[0], AttentionPattern(**pattern, in_blocks=False), "float32")[0]


def find_kernel(three, layout, dropout=0.0, **pattern):
    mask = layout.mask(three[0], AttentionPattern(**pattern))[0]
    options = {"causal": pattern.get("causal", False), "window": "window" in pattern}
    options = {"form": layout.form, "mask": mask_kind(mask), "dropout": dropout, **options}
    return kernel_of(case_of(tuple(three), **options))


@contextlib.contextmanager
def forbid_stored_scores():
    """Makes PyTorch raise an error instead of using its math backend, which stores the scores."""
    if BACKEND != "torch":
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kernels = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
    with sdpa_kernel([getattr(SDPBackend, name) for name in kernels]):
        yield


def check_matches_reference(function, reference, tensors, upstream):
    dtype = keras.backend.standardize_dtype(upstream.dtype)
    with forbid_stored_scores():
        value, gradients = value_and_gradients(function, tensors, upstream)
    wide = [keras.ops.cast(x, "float32") for x in (*tensors, upstream)]
    expected, expected_gradients = value_and_gradients(reference, wide[:-1], wide[-1])
    for array, expected_array in zip(
        (value, *gradients), (expected, *expected_gradients), strict=True
    ):
        assert np.isfinite(array).all()
        assert abs(array - expected_array).max() < TOLERANCE[dtype] * abs(expected_array).max()


@pytest.mark.parametrize("key_value_heads", [HEADS, 2])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("case", LAYOUTS)
def test_attention_matches_reference(case, dtype, key_value_heads):
    layout = make_layout(**LAYOUTS[case])
    *three, upstream = as_tensors(arrays(key_value_heads), dtype)
    assert find_kernel(three, layout) in ("sdpa", "cudnn")
    mask = make_mask(layout, three)
    check_matches_reference(
        lambda *x: attention(x, layout, training=True),
        lambda *x: attention_with_scores(x, mask)[0],
        three,
        upstream,
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_fully_masked_row_is_finite(dtype):
    *three, upstream = as_tensors(arrays(), dtype)
    layout = make_layout(padding_mask=np.zeros((BATCH, LENGTH), "bool"))
    value, gradients = value_and_gradients(lambda *x: attention(x, layout), three, upstream)
    assert all(np.isfinite(array).all() for array in (value, *gradients))


@pytest.mark.parametrize("case", ["whole", "padded", "packed", "causal"])
def test_windows_match_reference(case):
    length = 700
    layout = {
        "padded": make_layout(padding_mask=np.arange(length) < np.array([[700], [500], [41]])),
        "packed": make_layout(
            sequence_ids=np.repeat(np.arange(1, 8), 100)[None].repeat(BATCH, axis=0)
        ),
    }.get(case, BatchLayout())
    pattern = {"causal": case == "causal", "window": 40}
    *three, upstream = as_tensors(arrays(2, length), "bfloat16")
    assert find_kernel(three, layout, **pattern) == (
        "flex" if BACKEND == "torch" else "cudnn" if case == "causal" else "windowed"
    )
    mask = make_mask(layout, three, **pattern)
    has_keys = keras.ops.convert_to_tensor((to_numpy(mask) >= 0).any(-1)[:, 0, :, None, None])
    if BACKEND == "jax":  # On JAX, masks are boolean.
        has_keys = keras.ops.any(mask, -1)[:, 0, :, None, None]
    upstream = keras.ops.where(has_keys, upstream, keras.ops.zeros_like(upstream))

    def drop_unattended_queries(context):
        return keras.ops.where(has_keys, context, keras.ops.zeros_like(context))

    check_matches_reference(
        lambda *x: drop_unattended_queries(attention(x, layout, training=True, **pattern)),
        lambda *x: drop_unattended_queries(attention_with_scores(x, mask)[0]),
        three,
        upstream,
    )


@on_jax
@pytest.mark.parametrize("case", LAYOUTS)
def test_compiled_step_calls_cudnn(case):
    import jax

    layout = make_layout(**LAYOUTS[case])
    *three, _ = as_tensors(arrays(), "bfloat16")
    gradient = jax.grad(lambda *x: attention(x, layout, training=True).astype("float32").sum())
    compiled = jax.jit(gradient).lower(*three).compile()
    text = compiled.as_text()
    assert "__cudnn$fmha" in text
    assert "Backward" in text


@on_jax
def test_multi_device_lengths_match_rows():
    """JAX passes each device a part of the queries, and must pass the lengths of the same rows."""
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    count = len(jax.devices())
    if count < 2:
        pytest.skip("needs two GPUs")
    lengths = np.random.default_rng(2).integers(1, LENGTH, (2 * count, 1))
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("batch",)), PartitionSpec("batch"))
    mask = jax.device_put(np.arange(LENGTH) < lengths, sharding)
    *three, _ = as_tensors(arrays(batch=2 * count), "bfloat16")
    layout = BatchLayout(padding_mask=mask)
    actual = jax.jit(lambda *x: attention(x, layout))(*(jax.device_put(x, sharding) for x in three))
    wide = tuple(keras.ops.cast(x, "float32") for x in three)
    expected = attention_with_scores(wide, np.asarray(mask)[:, None, None])[0]
    np.testing.assert_allclose(to_numpy(actual), to_numpy(expected), atol=0.05)


def test_dropout_is_unbiased_and_off_at_inference():
    rate, num_samples = 0.25, 400
    *three, _ = as_tensors(arrays(length=64), "bfloat16")
    layout = make_layout(padding_mask=RIGHT_PADDED[:, :64])
    seed = keras.random.SeedGenerator(1)

    def sample():
        context = attention(tuple(three), layout, dropout=rate, seed=seed, training=True)
        return to_numpy(context)

    with forbid_stored_scores():
        expected = to_numpy(attention(tuple(three), layout))
        inference = to_numpy(
            attention(tuple(three), layout, dropout=rate, seed=seed, training=False)
        )
        samples = np.stack([sample() for _ in range(num_samples)])
    np.testing.assert_array_equal(inference, expected)
    error = samples.std(axis=0) / np.sqrt(num_samples)
    # The rest is the rounding of bfloat16.
    assert (abs(samples.mean(axis=0) - expected) < 5 * error + 0.02).all()
    assert samples.std(axis=0).max() > 0.1


def test_seed_drops_the_same_in_both_passes():
    length = 64
    # Attention is linear in the values, so unit vectors as values show the probabilities.
    units = np.eye(length)[None, :, None]
    tensors = as_tensors((0 * units, 0 * units, units, units), "bfloat16")

    def sample(seed):
        value, gradients = value_and_gradients(
            lambda *x: attention(
                x, dropout=0.25, seed=keras.random.SeedGenerator(seed), training=True
            ),
            tensors[:3],
            tensors[3],
        )
        return value[0, :, 0], gradients[2][0, :, 0].T

    with forbid_stored_scores():
        (first, backward), (again, _), (other, _) = sample(7), sample(7), sample(8)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first, backward, atol=1e-3)
    assert 0.5 < ((first > 0) == (other > 0)).mean() < 0.75
    is_nonzero = first > 0
    np.testing.assert_allclose(first[is_nonzero], 1 / length / 0.75, rtol=0.01)
    assert abs(is_nonzero.mean() - 0.75) < 4 * np.sqrt(0.25 * 0.75 / is_nonzero.size)


@on_torch
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_scores_are_not_stored(rate):
    import torch

    length = 4096
    *three, _ = as_tensors(arrays(length=length, batch=1), "bfloat16")
    three = [x.requires_grad_() for x in three]
    layout = make_layout(padding_mask=(np.arange(length) < length - 5)[None])
    seed = keras.random.SeedGenerator()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attention(tuple(three), layout, dropout=rate, seed=seed, training=True).sum().backward()
    assert torch.cuda.max_memory_allocated() - before < HEADS * length**2


@on_jax
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_compiled_steps_store_no_scores(rate):
    import jax

    length = 4096
    *three, _ = as_tensors(arrays(length=length, batch=1), "bfloat16")
    layout = make_layout(padding_mask=(np.arange(length) < length - 5)[None])

    def loss(*x):
        seed = keras.random.SeedGenerator(1)
        context = attention(x, layout, dropout=rate, seed=seed, training=True)
        return context.astype("float32").sum()

    compiled = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(*three).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 4 * HEADS * length**2


@on_torch
@pytest.mark.parametrize("key_value_heads", [HEADS, 2])
@pytest.mark.parametrize("mask", [RIGHT_PADDED, WITH_HOLES], ids=["right-padded", "with holes"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_varlen_matches_reference(dtype, mask, key_value_heads):
    varlen = varlen_of(keras.ops.convert_to_tensor(mask))
    is_same_row = (varlen.row_ids[:, None] == varlen.row_ids) & varlen.is_key
    layout = BatchLayout(varlen=varlen)
    *three, upstream = as_tensors(arrays(key_value_heads, len(varlen.row_ids), batch=1), dtype)
    assert find_kernel(three, layout) == "varlen"
    check_matches_reference(
        lambda *x: attention(x, layout),
        lambda *x: attention_with_scores(x, is_same_row[None, None])[0],
        three,
        upstream,
    )


@on_torch
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(
    "fields", [{}, {"attention_window": 8, "global_attention_every": 2}], ids=["bert", "windows"]
)
def test_unpadded_batches_match_padded(fields, dtype):
    config = WITHOUT_DROPOUT.replace(num_heads=2, hidden_dim=32, max_sequence_length=300, **fields)
    encoders = [Backbone(config, unpadded=value, dtype=dtype) for value in (False, True)]
    for encoder in encoders:
        random_weights(encoder, stddev=0.1)
    lengths = np.array([[3], [290], [40], [270], [7]])
    mask = np.arange(290) < lengths
    mask[1, 20:30] = False  # Such tokens are queries but not keys.
    ids = np.where(mask, np.random.default_rng(0).integers(1, 50, mask.shape), 0)
    inputs = {
        "token_ids": ids.astype("int32"),
        "segment_ids": np.zeros_like(ids, "int32"),
        "padding_mask": mask,
    }
    results = []
    for encoder in encoders:
        vectors = encoder(inputs, training=True)["sequence_output"].float()
        weights = [variable.value for variable in encoder.trainable_variables]
        loss = (vectors * keras.ops.convert_to_tensor(mask[..., None])).square().mean()
        loss.backward()
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        results.append([to_numpy(vectors)[mask], *map(to_numpy, gradients)])
        encoder.zero_grad()
    tolerance = 0.002 if dtype == "float32" else 0.05
    assert len(results[0]) == len(results[1]) > 5
    for padded, unpadded in zip(*results, strict=True):
        assert abs(padded - unpadded).max() <= tolerance * abs(padded).max()


@on_torch
def test_large_batches_are_unpadded_by_default():
    config = WITHOUT_DROPOUT.replace(num_heads=2, hidden_dim=32, max_sequence_length=256)
    default, padded = (
        Backbone(config, unpadded=value, dtype="bfloat16") for value in (None, False)
    )
    default.set_weights(padded.get_weights())
    for rows in (256, 8):  # 65,536 positions, and 2,048
        mask = np.arange(256) < np.random.default_rng(0).integers(1, 257, (rows, 1))
        inputs = {
            "token_ids": np.where(mask, 7, 0).astype("int32"),
            "segment_ids": np.zeros(mask.shape, "int32"),
            "padding_mask": mask,
        }
        default_output, padded_output = (
            to_numpy(encoder(inputs)["sequence_output"].float()) for encoder in (default, padded)
        )
        assert abs(default_output - padded_output)[mask].max() < 0.05
        assert (not default_output[~mask].any()) == (rows == 256)

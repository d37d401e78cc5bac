# SPDX-License-Identifier: Apache-2.0
"""Arguments of PyTorch's attention, whose math backend runs on a CPU."""

import keras
import numpy as np
import pytest

from keras_bert.ops import attention
from tests.ops.attention.layouts import LAYOUTS
from tests.ops.attention.layouts import arrays as layout_arrays
from tests.ops.backend_gradients import as_tensors, to_numpy

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch's own")


@pytest.fixture(autouse=True)
def use_cpu():
    with keras.device("cpu"):
        yield


HEADS, HEAD_DIM = 3, 8
BATCH, LENGTH = 4, 12
MASK = np.arange(LENGTH) < np.array([[3], [12], [0], [7]])
MASK[1, 4] = MASK[3, :2] = False
RATE = 0.25


def padded(three, *, rate=0.0, seed=None, mask=None):
    import torch

    from keras_bert.ops.attention.torch import sdpa

    heads = (x.transpose(1, 2) for x in three)
    mask = None if mask is None else torch.where(mask, 0.0, -1e9)
    return sdpa(*heads, mask, dropout=rate, seed=seed).transpose(1, 2)


def arrays(shape, key_value_heads=HEADS):
    random = np.random.default_rng(0)
    heads = (HEADS, key_value_heads, key_value_heads, HEADS)
    return [random.normal(size=(*shape, count, HEAD_DIM)) for count in heads]


def test_attention_can_be_compiled():
    """As with `jit_compile=True`. Only the tracing can fail, so the traced code runs eagerly."""
    import torch

    three = tuple(as_tensors(arrays((BATCH, LENGTH))[:3], "float32"))
    compiled = torch.compile(attention, backend="eager", fullgraph=True)
    expected = to_numpy(attention(three, training=True))
    np.testing.assert_allclose(to_numpy(compiled(three, training=True)), expected, atol=1e-6)


def make_tensors():
    return as_tensors(arrays((2, 16))[:3], "float32")


def test_dropout_is_unbiased():
    three = make_tensors()
    expected = padded(three).numpy()
    seed = keras.random.SeedGenerator(1)
    samples = np.stack([padded(three, rate=RATE, seed=seed).numpy() for _ in range(400)])
    error = samples.std(axis=0) / np.sqrt(len(samples))
    distance = np.abs(samples.mean(axis=0) - expected)
    assert (distance < 5 * error + 1e-6).all()
    # The variance of a sum of dropped terms
    assert samples.std(axis=0).max() > 0.1


def test_seed_is_deterministic_and_keeps_rng_state():
    import torch

    three = make_tensors()

    def sample(seed):
        return padded(three, rate=RATE, seed=keras.random.SeedGenerator(seed)).numpy()

    state = torch.get_rng_state()
    first, second, other = sample(3), sample(3), sample(4)
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_unseeded_generator_uses_pytorch_rng():
    import torch

    three = make_tensors()
    seed = keras.random.SeedGenerator()

    def sample():
        torch.manual_seed(0)
        return [padded(three, rate=RATE, seed=seed).numpy() for _ in range(2)]

    first, second = sample(), sample()
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(*first)


def test_gradient_includes_dropout():
    import torch

    three = make_tensors()
    (direction,) = as_tensors([np.random.default_rng(2).normal(size=three[0].shape)], "float64")
    three = [x.double().requires_grad_() for x in three]

    def loss(three):
        seed = keras.random.SeedGenerator(5)
        return (padded(three, rate=RATE, seed=seed) ** 2).sum()

    for index, gradient in enumerate(torch.autograd.grad(loss(three), three)):
        moved = [list(three), list(three)]
        for sign, inputs in zip((1, -1), moved, strict=True):
            inputs[index] = inputs[index] + sign * 1e-5 * direction
        slope = (loss(moved[0]) - loss(moved[1])) / 2e-5
        torch.testing.assert_close((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("layout", "causal", "window"),
    [("whole", False, 10), ("whole", True, 200), ("padded", False, 128), ("packed", True, 10)],
)
def test_flex_block_mask_matches_pytorch(layout, causal, window):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask

    from keras_bert.ops.attention.torch import block_mask, mask_function

    length = 700
    batch_of_rows = LAYOUTS[layout](length)
    masks = batch_of_rows.layout.padding_mask, batch_of_rows.layout.sequence_ids
    device = keras.ops.zeros(()).device
    is_attended = mask_function(*masks, torch.tensor(window, device=device), causal)
    batch, query, key = torch.meshgrid(
        *(torch.arange(size, device=device) for size in (3, length, length)), indexing="ij"
    )
    expected = batch_of_rows.mask(causal, window)
    np.testing.assert_array_equal(to_numpy(is_attended(batch, 0, query, key)), expected[:, 0])

    actual_mask = block_mask(is_attended, length, window, causal, device).to("cpu")
    expected_mask = create_block_mask(is_attended, 3, None, length, length, device).to("cpu")
    # Blocks with only padding may be computed, but no block with a score may be missing.
    assert (actual_mask.to_dense() >= expected_mask.to_dense()).all()
    if layout == "whole":
        np.testing.assert_array_equal(
            actual_mask.to_dense().expand(3, -1, -1, -1), expected_mask.to_dense()
        )


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_flex_matches_window_blocks(layout, causal, monkeypatch):
    from torch.nn.attention.flex_attention import flex_attention

    from keras_bert.ops.attention import torch as kernels

    window, batch = 10, LAYOUTS[layout](300)
    three = tuple(as_tensors(layout_arrays(batch, key_value_heads=2, head_dim=16)[:3], "float32"))
    expected = attention(three, batch.layout, causal=causal, window=window)
    # The compiled kernel needs a GPU.
    monkeypatch.setattr(kernels, "_compiled", lambda: flex_attention)
    context = kernels.flex(*three, batch.layout, window=window, causal=causal)
    has_keys = batch.mask(causal, window).any(-1)[:, 0, :, None, None]
    context, expected = to_numpy(context) * has_keys, to_numpy(expected) * has_keys
    np.testing.assert_allclose(context, expected, atol=1e-5)

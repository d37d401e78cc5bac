# SPDX-License-Identifier: Apache-2.0
"""What is passed to PyTorch's attention, whose own definition runs on a CPU."""

import keras
import numpy as np
import pytest

from keras_bert.ops import attention, attention_with_scores
from tests.ops.backend_gradients import as_tensors, to_numpy, value_and_gradients

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch's own")


@pytest.fixture(autouse=True)
def on_a_cpu():
    with keras.device("cpu"):
        yield


HEADS, HEAD_DIM = 3, 8
BATCH, LENGTH = 4, 12
MASK = np.arange(LENGTH) < np.array([[3], [12], [0], [7]])
MASK[1, 4] = MASK[3, :2] = False
RATE = 0.25


def padded(three, *, rate=0.0, seed=None, mask=None):
    from keras_bert.ops.attention_torch import attention

    heads = (x.transpose(1, 2) for x in three)
    return attention(*heads, mask, dropout=rate, seed=seed).transpose(1, 2)


def arrays(shape, key_value_heads=HEADS):
    random = np.random.default_rng(0)
    heads = (HEADS, key_value_heads, key_value_heads, HEADS)
    return [random.normal(size=(*shape, count, HEAD_DIM)) for count in heads]


def check_agreement(function, mask, three, upstream):
    value, gradients = value_and_gradients(lambda *x: function(x), three, upstream)
    expected, expected_gradients = value_and_gradients(
        lambda *x: attention_with_scores(x, mask)[0], three, upstream
    )
    np.testing.assert_allclose(value, expected, atol=1e-5)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, other, atol=1e-5)


@pytest.mark.parametrize("masked", [None, "keys", "pairs"])
def test_padded_rows_agree_with_the_definition(masked):
    import torch

    *three, upstream = as_tensors(arrays((BATCH, LENGTH)), "float32")
    masks = {
        None: None,
        "keys": MASK[:, None, None],
        "pairs": MASK[:, None, None] & MASK[:, None, :, None],
    }
    mask = masks[masked]
    if mask is not None:
        # What a token without keys gets has no meaning, nor has its gradient.
        upstream = upstream * torch.tensor(mask.any(-1)[:, 0, :, None, None])
        mask = torch.tensor(mask)
    check_agreement(lambda x: padded(x, mask=mask), mask, three, upstream)


def test_attention_is_part_of_a_compiled_function():
    """As in steps with `jit_compile=True`; it is the tracing that can fail, so it runs as it is."""
    import torch

    three = tuple(as_tensors(arrays((BATCH, LENGTH))[:3], "float32"))
    compiled = torch.compile(attention, backend="eager", fullgraph=True)
    expected = to_numpy(attention(three, training=True))
    np.testing.assert_allclose(to_numpy(compiled(three, training=True)), expected, atol=1e-6)


def three_heads():
    return as_tensors(arrays((2, 16))[:3], "float32")


def test_dropout_is_unbiased():
    three = three_heads()
    expected = padded(three).numpy()
    seed = keras.random.SeedGenerator(1)
    draws = np.stack([padded(three, rate=RATE, seed=seed).numpy() for _ in range(400)])
    error = draws.std(axis=0) / np.sqrt(len(draws))
    distance = np.abs(draws.mean(axis=0) - expected)
    assert (distance < 5 * error + 1e-6).all()
    # The variance of a sum of dropped terms
    assert draws.std(axis=0).max() > 0.1


def test_a_seed_draws_the_same_and_leaves_the_generator_alone():
    import torch

    three = three_heads()

    def draw(seed):
        return padded(three, rate=RATE, seed=keras.random.SeedGenerator(seed)).numpy()

    state = torch.get_rng_state()
    first, second, other = draw(3), draw(3), draw(4)
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_generator_without_a_seed_draws_from_pytorchs():
    import torch

    three = three_heads()
    seed = keras.random.SeedGenerator()

    def draw():
        torch.manual_seed(0)
        return [padded(three, rate=RATE, seed=seed).numpy() for _ in range(2)]

    first, second = draw(), draw()
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(*first)


def test_the_gradient_sees_the_dropout():
    import torch

    three = three_heads()
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_row_without_a_single_key_stays_finite(dtype):
    import torch

    *three, _ = as_tensors(arrays((BATCH, LENGTH)), dtype)
    mask = torch.zeros((BATCH, 1, 1, LENGTH), dtype=torch.bool)
    assert torch.isfinite(padded(three, mask=mask)).all()

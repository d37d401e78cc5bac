# SPDX-License-Identifier: Apache-2.0
"""JAX kernels: cuDNN calls in GPU programs, the same arguments in XLA, and chunks of queries."""

import functools
import re

import keras
import numpy as np
import pytest

from keras_bert.ops import attention, attention_with_scores
from tests.ops.backend_gradients import as_tensors, value_and_gradients

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX's own")

BATCH, LENGTH, HEADS, HEAD_DIM = 3, 12, 4, 8
RIGHT_PADDED = np.arange(LENGTH) < np.array([[12], [5], [9]])
WITH_HOLES = np.array([[True] * 12, [False, False] + [True] * 10, [True, False] * 6])
PAIRS = np.kron(np.eye(3), np.ones((4, 4))).astype(bool)[None, None]
MASKS = {
    "whole": None,
    "right-padded": RIGHT_PADDED[:, None, None],
    "with holes": WITH_HOLES[:, None, None],
    "one for all rows": RIGHT_PADDED[1:2, None, None],
    "pairs": PAIRS,
    "pairs of each row": PAIRS & RIGHT_PADDED[:, None, None],
}
# Heads share keys and values, whatever the mask.
CASES = [*((case, HEADS) for case in MASKS), ("right-padded", 2)]


def arrays(key_value_heads=HEADS):
    random = np.random.default_rng(0)
    heads = (HEADS, key_value_heads, key_value_heads, HEADS)
    return [random.normal(size=(BATCH, LENGTH, count, HEAD_DIM)) for count in heads]


@pytest.fixture
def cudnn_version(monkeypatch):
    """Lets JAX lower programs for a GPU without cuDNN, although JAX asks for its version."""
    from jax._src.cudnn import fused_attention_stablehlo

    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91100)


def find_cudnn_calls(function, *arrays):
    """Returns the names, settings and operand types of cuDNN's custom calls in a GPU program."""
    import jax

    lowered = jax.jit(function).trace(*arrays).lower(lowering_platforms=("cuda",))
    text = lowered.as_text()
    calls = re.findall(
        r"custom_call @(__cudnn\$\w+)\(.*backend_config = \"(.*?)\".* : \((.*?)\) ->", text
    )
    assert len(calls) == text.count("custom_call @__cudnn")
    settings = r"mask_type\\22: \\22(\w+)\\22.*dropout_rate\\22: ([\d.]+).*window_length\\22: (\d+)"
    return [(name, *re.search(settings, config).groups(), types) for name, config, types in calls]


def loss_and_gradients(function):
    import jax

    return jax.grad(lambda *x: function(*x).astype("float32").sum(), argnums=(0, 1, 2))


@pytest.mark.parametrize(("case", "key_value_heads"), CASES)
def test_gpu_program_calls_cudnn(case, key_value_heads, cudnn_version):
    from keras_bert.ops.attention.jax import cudnn

    mask = MASKS[case]
    *three, _ = as_tensors(arrays(key_value_heads), "bfloat16")

    def compute(query, key, value):
        return cudnn(query, key, value, None if mask is None else keras.ops.array(mask))

    kind = "Softmax" if mask is None or mask.shape[2] == 1 else "ScaleBiasSoftmax"
    has_lengths = mask is not None and mask.shape[2] == 1
    padding = "PADDING" if has_lengths else "NO_MASK"
    (call,) = find_cudnn_calls(compute, *three)
    assert call[:4] == (f"__cudnn$fmha{kind}", padding, "0.0", "0")
    assert call[4].count(f"tensor<{BATCH}xi32>") == 2 * has_lengths
    forward, backward = find_cudnn_calls(loss_and_gradients(compute), *three)
    assert forward[:2] == call[:2]
    assert backward[:4] == (f"__cudnn$fmha{kind}Backward", padding, "0.0", "0")
    assert backward[4].count(f"tensor<{BATCH}xi32>") == 2 * has_lengths
    # The calls have no scores for each head.
    scores = f"{BATCH}x{HEADS}x{LENGTH}x{LENGTH}x"
    assert not any(scores in types for *_, types in (call, forward, backward))


def test_left_window_uses_cudnn(cudnn_version):
    from keras_bert.ops.attention.jax import cudnn

    *three, _ = as_tensors(arrays(), "bfloat16")
    compute = functools.partial(cudnn, window=3)
    (call,) = find_cudnn_calls(compute, *three)
    # The window includes the token itself.
    assert call[:4] == ("__cudnn$fmhaSoftmax", "CAUSAL", "0.0", "4")
    assert [name for name, *_ in find_cudnn_calls(loss_and_gradients(compute), *three)] == [
        "__cudnn$fmhaSoftmax",
        "__cudnn$fmhaSoftmaxBackward",
    ]


@pytest.mark.parametrize(("case", "key_value_heads"), CASES)
def test_cudnn_arguments_match_reference(case, key_value_heads, monkeypatch):
    import jax

    from keras_bert.ops.attention import jax as kernels

    xla_attention = functools.partial(jax.nn.dot_product_attention, implementation="xla")
    monkeypatch.setattr(kernels, "_fused", xla_attention)
    mask = None if MASKS[case] is None else keras.ops.array(MASKS[case])
    *three, upstream = as_tensors(arrays(key_value_heads), "float32")
    value, gradients = value_and_gradients(lambda *x: kernels.cudnn(*x, mask), three, upstream)
    expected, expected_gradients = value_and_gradients(
        lambda *x: attention_with_scores(x, mask)[0], three, upstream
    )
    np.testing.assert_allclose(value, expected, atol=1e-5)
    for gradient, other in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, other, atol=1e-5)


def test_fully_masked_row_is_finite(monkeypatch):
    import jax

    from keras_bert.ops.attention import jax as kernels

    xla_attention = functools.partial(jax.nn.dot_product_attention, implementation="xla")
    monkeypatch.setattr(kernels, "_fused", xla_attention)
    *three, upstream = as_tensors(arrays(), "float32")
    mask = keras.ops.zeros((BATCH, 1, 1, LENGTH), "bool")
    value, gradients = value_and_gradients(lambda *x: kernels.cudnn(*x, mask), three, upstream)
    assert all(np.isfinite(array).all() for array in (value, *gradients))


def test_key_order_is_restored_without_a_sum():
    """Summing gradients with atomic operations would not be deterministic."""
    import jax

    from keras_bert.ops.attention.jax import _in_order

    x = keras.ops.ones((2, 5, 1, 1))
    order = keras.ops.array([[1, 0, 2, 4, 3]] * 2)
    gradient = jax.grad(lambda x: (_in_order(x, order) ** 2).sum())
    assert "unique_indices = true" in jax.jit(gradient).lower(x).as_text()


@pytest.mark.parametrize(
    ("masked", "rate"), [(None, 0.0), (None, 0.25), ("keys", 0.25), ("pairs", 0.25)]
)
def test_chunked_dropout_matches_reference(masked, rate):
    import jax

    from keras_bert.ops.attention import jax as kernels

    random = np.random.default_rng(0)
    length = 2100  # Not a multiple of the chunk size
    inputs = [random.normal(size=(1, length, 2, 4)).astype("float32") for _ in range(3)]
    upstream = random.normal(size=(1, length, 2, 4)).astype("float32")
    mask = None
    if masked is not None:
        shape = (1, 1, 1 if masked == "keys" else length, length)
        mask = random.random(shape) < 0.7

    def run_with_gradients(function):
        outputs, gradients = jax.vjp(function, *inputs)
        return [outputs, *gradients(upstream)]

    def options():  # The same elements are dropped.
        return {"dropout": rate, "seed": keras.random.SeedGenerator(3)}

    def compute_in_chunks(*x):
        heads = (jax.numpy.swapaxes(part, 1, 2) for part in x)
        return jax.numpy.swapaxes(kernels.chunked(*heads, mask, **options()), 1, 2)

    actual = run_with_gradients(compute_in_chunks)
    expected = run_with_gradients(lambda *x: attention_with_scores(x, mask, **options())[0])
    for actual_array, expected_array in zip(actual, expected, strict=True):
        np.testing.assert_allclose(actual_array, expected_array, atol=2e-5)


def test_dropout_stores_no_scores():
    import jax

    def temporary_bytes(length):
        x = jax.ShapeDtypeStruct((1, length, 1, 8), "float32")

        def loss(x):
            seed = keras.random.SeedGenerator(3)
            return attention((x, x, x), dropout=0.1, seed=seed, training=True).sum()

        compiled = jax.jit(jax.grad(loss)).lower(x).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary_bytes(8192) < 3 * temporary_bytes(4096)
    assert temporary_bytes(8192) < 4 * 8192**2 / 2

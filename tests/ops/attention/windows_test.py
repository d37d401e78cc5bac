# SPDX-License-Identifier: Apache-2.0
"""Windowed attention: one graph for all lengths, at a cost of length times window."""

import keras
import numpy as np
import pytest

from keras_bert.ops import BatchLayout, attention
from keras_bert.ops.local_attention import WindowBlocks
from tests.ops.attention.layouts import HEAD_DIM, HEADS, arrays, packed, padded, whole
from tests.ops.backend_gradients import as_tensors, to_numpy

WINDOW = 10
# Shorter than the window, one block, four full blocks, and five blocks that are not full
LENGTHS = (7, 100, 256, 333)


def make_tensors(batch):
    return tuple(as_tensors(arrays(batch)[:3], "float32"))


def test_window_can_exceed_row_length():
    three = make_tensors(whole(333))
    actual = attention(three, window=1000)
    np.testing.assert_allclose(to_numpy(actual), to_numpy(attention(three)), atol=1e-5)


@pytest.mark.parametrize("length", [7, 333])
def test_xla_matches_eager(length):
    batch = padded(length)
    tensors = make_tensors(batch)

    def compute(*three):
        return attention(three, batch.layout, window=WINDOW)

    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        compiled = tf.function(compute, jit_compile=True, autograph=False)
    elif backend == "jax":
        import jax

        compiled = jax.jit(compute)
    else:
        pytest.skip("PyTorch has no XLA here")
    np.testing.assert_allclose(compiled(*tensors), compute(*tensors), atol=1e-5)


@pytest.mark.needs_tensorflow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's own")
@pytest.mark.parametrize("causal", [False, True])
def test_one_graph_serves_all_lengths(causal, tmp_path):
    import tensorflow as tf

    def compute(three, sequence_ids):
        layout = BatchLayout(sequence_ids=sequence_ids)
        with tf.GradientTape() as tape:
            tape.watch(three)
            context = attention(three, layout, causal=causal, window=WINDOW)
        return context, tape.gradient(context, three)

    class Served(tf.Module):
        @tf.function(
            input_signature=[tf.TensorSpec((None, None, HEADS, HEAD_DIM), name=x) for x in "qkv"]
            + [tf.TensorSpec((None, None), tf.int32)],
            autograph=False,
        )
        def __call__(self, query, key, value, sequence_ids):
            return compute((query, key, value), sequence_ids)

    tf.saved_model.save(Served(), tmp_path)
    served = tf.saved_model.load(tmp_path)
    for length in (1, *LENGTHS):
        batch = packed(length)
        three = make_tensors(batch)
        context, gradients = served(*three, batch.layout.sequence_ids)
        expected, expected_gradients = compute(three, batch.layout.sequence_ids)
        np.testing.assert_allclose(context, expected, atol=1e-5)
        for gradient, expected in zip(gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(gradient, expected, atol=1e-5)


class SelfAttention(keras.layers.Layer):
    """A layer whose output shape Keras infers by calling it with symbolic tensors."""

    def call(self, inputs):
        return attention((inputs, inputs, inputs), window=WINDOW)


def test_functional_model_accepts_all_lengths():
    inputs = keras.Input((None, HEADS, HEAD_DIM))
    model = keras.Model(inputs, SelfAttention()(inputs))
    assert model.output_shape == (None, None, HEADS, HEAD_DIM)
    for length in (7, 333):
        query = arrays(whole(length))[0].astype("float32")
        expected = attention(tuple(as_tensors([query] * 3, "float32")), window=WINDOW)
        np.testing.assert_allclose(to_numpy(model(query)), to_numpy(expected), atol=1e-5)


@pytest.mark.backend_independent
@pytest.mark.parametrize("window", [1, 10, 64, 100])
def test_blocks_cover_row_and_window(window):
    for length in range(1, 2000, 7):
        blocks = WindowBlocks.from_length(length, window)
        assert length <= blocks.number * blocks.size < length + blocks.number
        if blocks.number > 1:
            assert blocks.size >= 2 * window
            assert blocks.before == blocks.after == window


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="counts no operations")
@pytest.mark.parametrize("gradients", [False, True])
def test_cost_is_linear_in_length(gradients):
    def count_flops(length):
        tensors = make_tensors(whole(length))

        def compute(*three):
            # PyTorch's counter does not count its fused kernel. With dropout, it is not used.
            seed = keras.random.SeedGenerator(0)
            options = {"dropout": 0.1, "seed": seed, "training": True}
            return keras.ops.sum(attention(three, window=WINDOW, **options))

        if keras.backend.backend() == "jax":
            import jax

            function = jax.grad(compute, argnums=(0, 1, 2)) if gradients else compute
            return jax.jit(function).lower(*tensors).compile().cost_analysis()["flops"]
        from torch.utils.flop_counter import FlopCounterMode

        for tensor in tensors:
            tensor.requires_grad_(gradients)
        with FlopCounterMode(display=False) as counter:
            value = compute(*tensors)
            if gradients:
                value.backward()
        return counter.get_total_flops()

    assert 1.9 < count_flops(2048) / count_flops(1024) < 2.1

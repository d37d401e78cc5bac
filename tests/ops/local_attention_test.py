# SPDX-License-Identifier: Apache-2.0
"""Local attention agrees with attention with a mask of all pairs, and does not compute them."""

import keras
import numpy as np
import pytest

from keras_bert.ops import attention_with_scores, local_attention
from keras_bert.ops.local_attention import Blocks
from tests.ops.backend_gradients import as_tensors, to_numpy, value_and_gradients

BATCH, HEADS, HEAD_DIM, WINDOW = 2, 4, 8, 10
# Below the window, and in one block, four that are full, and five that are not
LENGTHS = (7, 100, 256, 333)


def arrays(length, key_value_heads=HEADS, seed=0):
    random = np.random.default_rng(seed)
    heads = (HEADS, key_value_heads, key_value_heads)
    return [random.normal(size=(BATCH, length, count, HEAD_DIM)) for count in heads]


def padding_of(length):
    """The second row has a third of padding."""
    return np.arange(length) < np.array([[length], [length - length // 3]])


def sequences_of(length):
    """Sequences of 5 to 60 tokens, the last tokens of the second row are padding."""
    random = np.random.default_rng(1)
    rows = [np.repeat(np.arange(1, length + 1), random.integers(5, 60, length)) for _ in "ab"]
    return np.stack([row[:length] for row in rows]) * (np.arange(length) < [[length], [length - 4]])


def mask_of_pairs(length, padding_mask=None, sequence_ids=None, causal=False, window=WINDOW):
    distance = np.arange(length)[:, None] - np.arange(length)
    mask = (distance <= window) & (distance >= (0 if causal else -window))
    mask = np.broadcast_to(mask, (BATCH, 1, length, length))
    if padding_mask is not None:
        mask = mask & padding_mask[:, None, None, :]
    if sequence_ids is not None:
        mask = mask & (sequence_ids[:, None, :, None] == sequence_ids[:, None, None, :])
    return mask


CASES = {
    "whole": lambda length: {},
    "padded": lambda length: {"padding_mask": padding_of(length)},
    "packed": lambda length: {"sequence_ids": sequences_of(length)},
    "causal": lambda length: {"causal": True},
    "causal, all masks": lambda length: {
        "causal": True,
        "padding_mask": sequences_of(length) > 0,
        "sequence_ids": sequences_of(length),
    },
}


def as_masks(options):
    return {
        name: keras.ops.convert_to_tensor(value) if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("case", CASES)
def test_agrees_with_a_mask_of_all_pairs(case, length, training):
    check_agreement(length, CASES[case](length), training=training)


@pytest.mark.parametrize("key_value_heads", [1, 2])
@pytest.mark.parametrize("training", [False, True])
def test_groups_of_heads_share_keys_and_values(key_value_heads, training):
    options = CASES["padded"](333)
    check_agreement(333, options, training=training, key_value_heads=key_value_heads)


@pytest.mark.parametrize("training", [False, True])
def test_bfloat16_differs_by_its_rounding(training):
    check_agreement(333, CASES["padded"](333), training, dtype="bfloat16", tolerance=0.05)


def check_agreement(
    length, options, training, key_value_heads=HEADS, dtype="float32", tolerance=1e-5
):
    mask = mask_of_pairs(length, **options)
    has_keys = mask.any(-1)[:, 0, :, None, None]
    random = np.random.default_rng(2)
    # What a token without keys gets has no meaning.
    upstream = random.normal(size=(BATCH, length, HEADS, HEAD_DIM)) * has_keys
    *tensors, upstream = as_tensors((*arrays(length, key_value_heads), upstream), dtype)
    masks = as_masks(options)
    value, gradients = value_and_gradients(
        lambda *three: local_attention(*three, window=WINDOW, training=training, **masks),
        tensors,
        upstream,
    )
    assert np.isfinite(value).all()
    mask = keras.ops.convert_to_tensor(mask)
    *tensors, upstream = (keras.ops.cast(x, "float32") for x in (*tensors, upstream))
    expected, expected_gradients = value_and_gradients(
        lambda *three: attention_with_scores(three, mask)[0], tensors, upstream
    )
    np.testing.assert_allclose(value * has_keys, expected * has_keys, tolerance, tolerance)
    for gradient, expected in zip(gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(gradient, expected, tolerance, tolerance)


@pytest.mark.parametrize("length", [7, 333])
def test_the_window_may_be_larger_than_the_row(length):
    tensors = as_tensors(arrays(length), "float32")
    value = local_attention(*tensors, window=1000)
    expected = attention_with_scores(tuple(tensors))[0]
    np.testing.assert_allclose(to_numpy(value), to_numpy(expected), atol=1e-5)


def test_forward_and_backward_drop_the_same_share():
    # Attention is linear in the values: unit vectors as values show the probabilities.
    length = 256
    units = np.eye(length)[None, :, None]
    query, key, value, upstream = as_tensors((0 * units, 0 * units, units, units), "float32")
    forward, gradients = value_and_gradients(
        lambda *three: local_attention(
            *three,
            window=WINDOW,
            dropout=0.25,
            seed=keras.random.SeedGenerator(7),
            training=True,
        ),
        (query, key, value),
        upstream,
    )
    forward, backward = forward[0, :, 0], gradients[2][0, :, 0].T
    np.testing.assert_allclose(forward, backward, atol=1e-6)
    near = np.abs(np.arange(length)[:, None] - np.arange(length)) <= WINDOW
    assert not forward[~near].any()
    kept = forward > 0
    expected = np.broadcast_to(1 / near.sum(-1, keepdims=True) / 0.75, kept.shape)
    np.testing.assert_allclose(forward[kept], expected[kept], rtol=1e-5)
    share, pairs = kept[near].mean(), near.sum()
    assert abs(share - 0.75) < 4 * np.sqrt(0.25 * 0.75 / pairs)


@pytest.mark.parametrize("length", [7, 333])
def test_compiled_by_xla(length):
    tensors = as_tensors(arrays(length), "float32")
    mask = keras.ops.convert_to_tensor(padding_of(length))

    def compute(*three):
        return local_attention(*three, mask, window=WINDOW)

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
@pytest.mark.parametrize("case", ["whole", "packed", "causal, all masks"])
def test_one_graph_serves_all_lengths(case, tmp_path):
    import tensorflow as tf

    options = CASES[case](5)
    names = [name for name, value in options.items() if isinstance(value, np.ndarray)]
    static = {name: value for name, value in options.items() if name not in names}

    class Served(tf.Module):
        @tf.function(
            input_signature=[tf.TensorSpec((None, None, HEADS, HEAD_DIM), name=x) for x in "qkv"]
            + [tf.TensorSpec((None, None), tf.int32, name=name) for name in names],
            autograph=False,
        )
        def __call__(self, query, key, value, *masks):
            masks = dict(zip(names, masks, strict=True))
            three = (query, key, value)
            with tf.GradientTape() as tape:
                tape.watch(three)
                context = local_attention(*three, window=WINDOW, **masks, **static)
            return context, tape.gradient(context, three)

    tf.saved_model.save(Served(), tmp_path)
    served = tf.saved_model.load(tmp_path)
    for length in (1, *LENGTHS):
        options = CASES[case](length)
        masks = [tf.cast(options[name], tf.int32) for name in names]
        tensors = as_tensors(arrays(length), "float32")
        context, gradients = served(*tensors, *masks)
        expected, expected_gradients = value_and_gradients(
            lambda *three, options=options: local_attention(
                *three, window=WINDOW, **as_masks(options)
            ),
            tensors,
            tf.ones_like(tensors[0]),
        )
        np.testing.assert_allclose(context, expected, atol=1e-5)
        for gradient, expected in zip(gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(gradient, expected, atol=1e-5)


class LocalAttentionToItself(keras.layers.Layer):
    """A layer whose output shape Keras finds by calling it with symbolic tensors."""

    def call(self, inputs):
        return local_attention(inputs, inputs, inputs, window=WINDOW)


def test_a_functional_model_takes_all_lengths():
    inputs = keras.Input((None, HEADS, HEAD_DIM))
    model = keras.Model(inputs, LocalAttentionToItself()(inputs))
    assert model.output_shape == (None, None, HEADS, HEAD_DIM)
    for length in (7, 333):
        query = arrays(length)[0].astype("float32")
        expected = local_attention(*as_tensors([query] * 3, "float32"), window=WINDOW)
        np.testing.assert_allclose(to_numpy(model(query)), to_numpy(expected), atol=1e-5)


@pytest.mark.parametrize("window", [0, -1, 2.5])
def test_refuses_windows_without_tokens(window):
    tensors = as_tensors(arrays(7), "float32")
    with pytest.raises(ValueError, match="window"):
        local_attention(*tensors, window=window)


@pytest.mark.backend_independent
@pytest.mark.parametrize("window", [1, 10, 64, 100])
def test_blocks_hold_the_row_and_reach_the_window(window):
    for length in range(1, 2000, 7):
        blocks = Blocks.of(length, window)
        assert length <= blocks.number * blocks.size < length + blocks.number
        if blocks.number > 1:
            assert blocks.size >= 2 * window
            assert blocks.before == blocks.after == window


@pytest.mark.skipif(keras.backend.backend() == "tensorflow", reason="counts no operations")
@pytest.mark.parametrize("gradients", [False, True])
def test_twice_the_length_is_twice_the_work(gradients):
    def work(length):
        tensors = as_tensors(arrays(length), "float32")

        def compute(*three):
            # PyTorch's counter does not know its fused kernel, which has no dropout here.
            seed = keras.random.SeedGenerator(0)
            options = {"dropout": 0.1, "seed": seed, "training": True}
            return keras.ops.sum(local_attention(*three, window=WINDOW, **options))

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

    assert 1.9 < work(2048) / work(1024) < 2.1

# SPDX-License-Identifier: Apache-2.0
"""Chunked attention for long rows on TensorFlow and a CPU matches the reference."""

import keras
import numpy as np
import pytest

from keras_bert.ops import BatchLayout, attention, attention_with_scores
from keras_bert.ops.masks import AttentionPattern

pytestmark = [
    pytest.mark.needs_tensorflow,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's own"),
]

LENGTH = 2100  # Not a multiple of the chunk size


def value_and_gradients(function, inputs, upstream, *, is_length_unknown):
    """Returns a function's value in a graph, and its gradients, with a known or unknown length."""
    import tensorflow as tf

    length = None if is_length_unknown else inputs[0].shape[1]

    @tf.function(input_signature=[tf.TensorSpec((1, length, 1, 4))] * 4, autograph=False)
    def compute(upstream, *inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = function(inputs)
        return value, *tape.gradient(value, inputs, upstream)

    return [part.numpy() for part in compute(upstream, *inputs)]


@pytest.mark.parametrize("is_length_unknown", [False, True])
@pytest.mark.parametrize(
    ("length", "masked"), [(6, "pairs"), (LENGTH, None), (LENGTH, "keys"), (LENGTH, "pairs")]
)
def test_chunked_attention_matches_reference(length, masked, is_length_unknown):
    random = np.random.default_rng(0)
    *inputs, upstream = random.normal(size=(4, 1, length, 1, 4)).astype("float32")
    ids = random.integers(0, 2, (1, length)).astype("int32")
    layout, mask = BatchLayout(), None
    if masked == "keys":
        layout, mask = BatchLayout(padding_mask=keras.ops.array(ids > 0)), ids[:, None, None] > 0
    elif masked == "pairs":
        layout = BatchLayout(sequence_ids=keras.ops.array(ids))
        mask = (ids[:, :, None] == ids[:, None])[:, None]

    def run_in_graph(function):
        return value_and_gradients(function, inputs, upstream, is_length_unknown=is_length_unknown)

    actual = run_in_graph(lambda inputs: attention(inputs, layout, training=True))
    mask = None if mask is None else keras.ops.convert_to_tensor(mask)
    expected = run_in_graph(lambda inputs: attention_with_scores(inputs, mask)[0])
    for actual_array, expected_array in zip(actual, expected, strict=True):
        np.testing.assert_allclose(actual_array, expected_array, atol=2e-5)


@pytest.mark.parametrize("training", [False, True])
def test_shared_mask_is_repeated_for_each_row(training):
    """The fused kernel is hundreds of times slower if it broadcasts masks over the batch."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((None, 6, 3, 2, 8))], autograph=False)
    def mask_and_context(packed):
        mask = BatchLayout().mask(packed, AttentionPattern(causal=True))[0]
        return mask, attention(packed, causal=True, training=training)

    packed = tf.random.normal((4, 6, 3, 2, 8))
    mask, context = mask_and_context(packed)
    assert mask.shape == (4, 1, 6, 6)
    expected = attention_with_scores(packed, mask)[0]
    np.testing.assert_allclose(context, expected, atol=1e-6)


@pytest.mark.parametrize(("max_length", "branches"), [(None, 1), (2048, 1), (512, 0)])
def test_graph_branches_only_for_long_rows(max_length, branches):
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((1, None, 1, 4))], autograph=False)
    def compute(x):
        return attention((x, x, x), training=True, max_length=max_length)

    library = compute.get_concrete_function().graph.as_graph_def().library
    operations = [node.op for function in library.function for node in function.node_def]
    assert sum(operation in ("If", "StatelessIf") for operation in operations) == branches
    x = np.random.default_rng(0).normal(size=(1, LENGTH, 1, 4)).astype("float32")
    expected = attention_with_scores((x, x, x))[0]
    np.testing.assert_allclose(compute(x), expected, atol=2e-5)


def attend_with_dropout(inputs, upstream):
    seed = keras.random.SeedGenerator(1)
    return value_and_gradients(
        lambda inputs: attention(inputs, dropout=0.5, seed=seed, training=True),
        inputs,
        upstream,
        is_length_unknown=False,
    )


def test_backward_pass_drops_the_same():
    random = np.random.default_rng(0)
    *inputs, upstream = random.normal(size=(4, 1, LENGTH, 1, 4)).astype("float32")
    directions = random.normal(size=(3, 1, LENGTH, 1, 4)).astype("float32")
    _, *gradients = attend_with_dropout(inputs, upstream)
    after, before = (
        (attend_with_dropout(inputs + step * directions, upstream)[0] * upstream).sum()
        for step in (1e-2, -1e-2)
    )
    slope = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(slope, (after - before) / 2e-2, rtol=2e-2)


def test_chunks_drop_different_keys():
    """With equal scores and values, the context is the fraction of keys that are kept."""
    zeros, ones = (np.full((1, LENGTH, 1, 4), value, "float32") for value in (0, 1))
    context = attend_with_dropout([zeros, zeros, ones], ones)[0][0, :, 0, 0]
    first, second = context[:420], context[420:840]  # Five chunks of 420 queries
    assert abs(context.mean() - 1) < 0.01
    assert (first != second).mean() > 0.9

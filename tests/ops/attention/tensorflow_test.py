# SPDX-License-Identifier: Apache-2.0
"""Attention of long rows on TensorFlow and a CPU, in chunks, compared with its definition."""

import keras
import numpy as np
import pytest

from keras_bert.ops import BatchLayout, attention, attention_with_scores
from keras_bert.ops.masks import AttentionPattern

pytestmark = [
    pytest.mark.needs_tensorflow,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's own"),
]

LENGTH = 2100  # not a multiple of a chunk


def value_and_gradients(function, inputs, upstream, *, with_any_length):
    """The value of a function in a graph, and its gradients, with a length known or not."""
    import tensorflow as tf

    length = None if with_any_length else inputs[0].shape[1]

    @tf.function(input_signature=[tf.TensorSpec((1, length, 1, 4))] * 4, autograph=False)
    def compute(upstream, *inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            value = function(inputs)
        return value, *tape.gradient(value, inputs, upstream)

    return [part.numpy() for part in compute(upstream, *inputs)]


@pytest.mark.parametrize("with_any_length", [False, True])
@pytest.mark.parametrize(
    ("length", "masked"), [(6, "pairs"), (LENGTH, None), (LENGTH, "keys"), (LENGTH, "pairs")]
)
def test_attention_in_chunks_is_attention(length, masked, with_any_length):
    random = np.random.default_rng(0)
    *inputs, upstream = random.normal(size=(4, 1, length, 1, 4)).astype("float32")
    ids = random.integers(0, 2, (1, length)).astype("int32")
    layout, mask = BatchLayout(), None
    if masked == "keys":
        layout, mask = BatchLayout(padding_mask=keras.ops.array(ids > 0)), ids[:, None, None] > 0
    elif masked == "pairs":
        layout = BatchLayout(sequence_ids=keras.ops.array(ids))
        mask = (ids[:, :, None] == ids[:, None])[:, None]

    def of(function):
        return value_and_gradients(function, inputs, upstream, with_any_length=with_any_length)

    actual = of(lambda inputs: attention(inputs, layout, training=True))
    mask = None if mask is None else keras.ops.convert_to_tensor(mask)
    expected = of(lambda inputs: attention_with_scores(inputs, mask)[0])
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


@pytest.mark.parametrize("training", [False, True])
def test_a_mask_for_all_rows_is_repeated_for_each(training):
    """The fused kernel broadcasts masks over the batch hundreds of times more slowly."""
    import tensorflow as tf

    @tf.function(input_signature=[tf.TensorSpec((None, 6, 3, 2, 8))], autograph=False)
    def mask_of(packed):
        mask = BatchLayout().mask(packed, AttentionPattern(causal=True))[0]
        return mask, attention(packed, causal=True, training=training)

    packed = tf.random.normal((4, 6, 3, 2, 8))
    mask, context = mask_of(packed)
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


def attended_with_dropout(inputs, upstream):
    seed = keras.random.SeedGenerator(1)
    return value_and_gradients(
        lambda inputs: attention(inputs, dropout=0.5, seed=seed, training=True),
        inputs,
        upstream,
        with_any_length=False,
    )


def test_the_backward_pass_drops_the_same():
    random = np.random.default_rng(0)
    *inputs, upstream = random.normal(size=(4, 1, LENGTH, 1, 4)).astype("float32")
    directions = random.normal(size=(3, 1, LENGTH, 1, 4)).astype("float32")
    _, *gradients = attended_with_dropout(inputs, upstream)
    after, before = (
        (attended_with_dropout(inputs + step * directions, upstream)[0] * upstream).sum()
        for step in (1e-2, -1e-2)
    )
    slope = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(slope, (after - before) / 2e-2, rtol=2e-2)


def test_each_chunk_drops_others():
    """With equal scores and values, the context is the share of the keys that were not dropped."""
    zeros, ones = (np.full((1, LENGTH, 1, 4), value, "float32") for value in (0, 1))
    context = attended_with_dropout([zeros, zeros, ones], ones)[0][0, :, 0, 0]
    first, second = context[:420], context[420:840]  # five chunks of 420 queries
    assert abs(context.mean() - 1) < 0.01
    assert (first != second).mean() > 0.9

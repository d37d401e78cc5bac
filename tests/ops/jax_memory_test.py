# SPDX-License-Identifier: Apache-2.0
"""What needs less memory with JAX on a CPU, compared with its definition, and measured."""

import keras
import numpy as np
import pytest

from keras_bert import Backbone, BertConfig
from keras_bert.ops.attention import attention, attention_with_scores

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="for JAX on a CPU")


@pytest.mark.parametrize("rate", [0.0, 0.25])
@pytest.mark.parametrize("masked", [None, "keys", "pairs"])
def test_attention_in_blocks_is_attention(masked, rate):
    jax = pytest.importorskip("jax")
    random = np.random.default_rng(0)
    length = 2100  # not a multiple of a block
    inputs = [random.normal(size=(1, length, 2, 4)).astype("float32") for _ in range(3)]
    upstream = random.normal(size=(1, length, 2, 4)).astype("float32")
    mask = None
    if masked is not None:
        shape = (1, 1, 1 if masked == "keys" else length, length)
        mask = random.random(shape) < 0.7

    def of(function):
        outputs, gradients = jax.vjp(function, *inputs)
        return [outputs, *gradients(upstream)]

    def options():  # the same elements are dropped
        return {"dropout": rate, "seed": keras.random.SeedGenerator(3)}

    found = of(lambda *x: attention(x, mask, training=True, **options()))
    expected = of(lambda *x: attention_with_scores(x, mask, **options())[0])
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_dropout_stores_no_scores():
    jax = pytest.importorskip("jax")

    def temporary_bytes(length):
        x = jax.ShapeDtypeStruct((1, length, 1, 8), "float32")

        def loss(x):
            seed = keras.random.SeedGenerator(3)
            return attention((x, x, x), dropout=0.1, seed=seed, training=True).sum()

        compiled = jax.jit(jax.grad(loss)).lower(x).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary_bytes(8192) < 3 * temporary_bytes(4096)
    assert temporary_bytes(8192) < 4 * 8192**2 / 2


def test_rematerialization_needs_less_memory():
    """XLA on a CPU would share what the forward pass has computed, and keep it."""
    jax = pytest.importorskip("jax")
    config = BertConfig(
        vocabulary_size=8, num_layers=6, num_heads=2, hidden_dim=16, intermediate_dim=64,
        dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    ids = np.ones((2, 256), "int32")

    def temporary_bytes(rematerialize):
        backbone = Backbone(config, rematerialize=rematerialize)

        def loss(weights):
            outputs, _ = backbone.stateless_call(
                weights,
                [variable.value for variable in backbone.non_trainable_variables],
                {"token_ids": ids, "segment_ids": None, "padding_mask": None},
                training=True,
            )
            return outputs["sequence_output"].sum()

        weights = [variable.value for variable in backbone.trainable_variables]
        compiled = jax.jit(jax.grad(loss)).lower(weights).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporary_bytes(True) < 0.6 * temporary_bytes(False)

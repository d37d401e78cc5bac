# SPDX-License-Identifier: Apache-2.0
"""Memory of rematerialization with JAX on a CPU."""

import keras
import numpy as np
import pytest

from keras_bert import Backbone, BertConfig

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="for JAX on a CPU")


def test_rematerialization_needs_less_memory():
    """Otherwise XLA on a CPU would reuse and keep the results of the forward pass."""
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

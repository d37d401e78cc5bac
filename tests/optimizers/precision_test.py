# SPDX-License-Identifier: Apache-2.0
"""Training under Keras's dtype policies."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.optimizers import LAMB, AdamW, AdamWeightDecay, StableAdamW
from tests.optimizers.compiled_apply import compiled_apply
from tests.optimizers.small_model import fit, small_model


@pytest.mark.parametrize(
    ("optimizer", "policy"),
    [
        (AdamW, "mixed_float16"),
        (AdamWeightDecay, "mixed_bfloat16"),
        (LAMB, "bfloat16"),
    ],
)
def test_training_lowers_loss_in_half_precision(optimizer, policy):
    keras.config.set_dtype_policy(policy)
    model = small_model(optimizer(3e-2))
    losses = fit(model, epochs=6)
    assert losses[-1] < 0.9 * losses[0]
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer) == (
        policy == "mixed_float16"
    )


def test_loss_scaling_skips_infinite_gradients():
    weight = keras.Variable(np.ones(2, "float32"), name="kernel")
    inner = AdamW(0.1)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0)
    optimizer.build([weight])
    apply = compiled_apply(optimizer, [weight])
    apply([ops.convert_to_tensor([np.inf, 1.0], "float32")])
    np.testing.assert_array_equal(ops.convert_to_numpy(weight.value), 1)
    assert int(inner.iterations) == 0
    apply([ops.ones(2)])
    np.testing.assert_allclose(ops.convert_to_numpy(weight.value), 1 - 0.1 * 1.01, rtol=1e-5)


@pytest.mark.parametrize("optimizer", [AdamW, AdamWeightDecay, LAMB, StableAdamW])
def test_moments_of_bfloat16_weights_are_float32(optimizer):
    weight = keras.Variable(np.ones(4), name="kernel", dtype="bfloat16")
    instance = optimizer(0.1)
    gradient = ops.full((4,), 0.25, dtype="bfloat16")
    instance.apply([gradient], [weight])
    moments = {v.name.rpartition("_")[2]: v for v in instance.variables if "kernel" in v.name}
    assert {v.dtype for v in moments.values()} == {"float32"}
    np.testing.assert_allclose(ops.convert_to_numpy(moments["momentum"].value), 0.025, rtol=1e-6)
    assert weight.dtype == "bfloat16"
    assert (ops.convert_to_numpy(ops.cast(weight.value, "float32")) < 1).all()

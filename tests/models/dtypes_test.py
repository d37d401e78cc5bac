# SPDX-License-Identifier: Apache-2.0
"""The encoder and its heads under Keras's dtype policies."""

import keras
import numpy as np
import pytest

from keras_bert.models import Backbone
from keras_bert.ops import BatchLayout
from keras_bert.ops.batch_layout import rope_name
from keras_bert.tasks import Pretrainer, TextClassifier
from tests.models.small_backbone import SMALL, features, random_weights, to_numpy

# A policy, the dtypes of its variables and outputs, and the tolerance compared with float32.
# LayerNorm makes the outputs about 1, and each step rounds them to 8 or 11 bits.
POLICIES = [
    pytest.param("float32", "float32", "float32", 0.0, marks=pytest.mark.on_torch),
    ("bfloat16", "bfloat16", "bfloat16", 0.08),
    ("mixed_bfloat16", "float32", "bfloat16", 0.05),
    pytest.param("mixed_float16", "float32", "float16", 0.01, marks=pytest.mark.on_torch),
]
each_policy = pytest.mark.parametrize(("policy", "variables", "outputs", "atol"), POLICIES)


def tensor_dtype(tensor) -> str:
    return keras.backend.standardize_dtype(tensor.dtype)


@pytest.fixture(scope="module")
def reference() -> Pretrainer:
    model = Pretrainer(Backbone(SMALL, dtype="float32"))
    random_weights(model, stddev=0.1)
    return model


@each_policy
def test_policy_dtypes_and_outputs(reference, policy, variables, outputs, atol):
    model = Pretrainer(Backbone(SMALL, dtype=policy))
    model.set_weights(reference.get_weights())
    inputs = features()
    encoded, expected = model.backbone(inputs), reference.backbone(inputs)
    assert {tensor_dtype(v) for v in model.backbone.weights} == {variables}
    for name, tensor in encoded.items():
        assert tensor_dtype(tensor) == outputs
        difference = abs(to_numpy(tensor) - to_numpy(expected[name]))
        assert difference.max() <= 4 * atol
        assert difference.mean() <= atol / 4

    inputs["mask_positions"] = np.array([[0, 3], [1, 2], [0, 0]])
    logits, expected = model(inputs), reference(inputs)
    for name, tensor in logits.items():
        assert tensor_dtype(tensor) == "float32"
        np.testing.assert_allclose(to_numpy(tensor), to_numpy(expected[name]), atol=4 * atol)


def test_global_policy_is_the_default():
    keras.config.set_dtype_policy("mixed_bfloat16")
    backbone = Backbone(SMALL)
    assert backbone.dtype_policy.name == "mixed_bfloat16"
    assert {block.dtype_policy.name for block in backbone.blocks} == {"mixed_bfloat16"}
    assert Backbone(SMALL, dtype="float32").blocks[0].dtype_policy.name == "float32"


@pytest.mark.on_torch
def test_logits_ignore_global_policy():
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = Pretrainer(Backbone(SMALL))
    random_weights(model)
    # With this tolerance, the logits cannot have been computed in half precision.
    head = model.get_layer("next_sentence")
    pooled = to_numpy(model.backbone(features())["pooled_output"])
    kernel, bias = head.get_weights()
    inputs = {**features(), "mask_positions": np.zeros((3, 1), "int32")}
    logits = to_numpy(model(inputs)["next_sentence_logits"])
    np.testing.assert_allclose(logits, pooled @ kernel + bias, atol=1e-6)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX has no float64 by default")
def test_float64_trains():
    config = SMALL.replace(num_layers=1)
    classifier = TextClassifier(Backbone(config, dtype="float64"), num_classes=2)
    classifier.compile()
    history = classifier.fit(features(), np.array([0, 1, 1]), batch_size=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()


@pytest.mark.on_torch
def test_rotary_angles_stay_float32():
    config = SMALL.replace(positions="rotary", num_segments=0)
    backbone = Backbone(config, dtype="mixed_bfloat16")
    random_weights(backbone, stddev=1.0)
    x = np.random.default_rng(0).normal(size=(3, 12, 16))
    x = keras.ops.convert_to_tensor(x, "bfloat16")
    exact = BatchLayout().rope(x, config.head_dim, config.rotary_base)
    rounded = keras.ops.cast(keras.ops.cast(exact, "bfloat16"), "float32")
    name = rope_name(config.rotary_base, config.rotary_scale)
    one, other = (
        to_numpy(backbone.blocks[0](x, layout=BatchLayout(cos_sin={name: angles})))
        for angles in (exact, rounded)
    )
    assert (one != other).any()

# SPDX-License-Identifier: Apache-2.0
"""LoRA and int8 quantization."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_bert.layers import ClassificationHead
from keras_bert.models import Backbone
from keras_bert.models.inputs import token_inputs
from keras_bert.ops.annotations import LARGEST_IN_KERNEL
from tests.models.small_backbone import SMALL, WITHOUT_DROPOUT, features, random_weights, to_numpy


def sequence_output(model) -> np.ndarray:
    return to_numpy(model(features())["sequence_output"])


def make_lora_backbone(rank: int = 2, **arguments) -> Backbone:
    backbone = Backbone(WITHOUT_DROPOUT)
    random_weights(backbone)
    backbone.enable_lora(rank, **arguments)
    return backbone


def train(model: keras.Model, optimizer=None, steps: int = 3) -> list[float]:
    model.compile(optimizer or keras.optimizers.SGD(1.0), loss={"pooled_output": "mse"})
    targets = {"pooled_output": np.zeros((3, 16), "float32")}
    return [model.train_on_batch(features(), targets) for _ in range(steps)]


def test_lora_trains_two_matrices_per_block():
    backbone = make_lora_backbone(rank=2)
    assert [v.path for v in backbone.trainable_variables] == [
        f"layer_{block}/attention/query_key_value/lora_kernel_{side}"
        for block in range(2)
        for side in "ab"
    ]
    # A is (hidden, rank), B is (rank, 3 * hidden).
    assert sum(v.numpy().size for v in backbone.trainable_variables) == 2 * (2 * 16 + 2 * 48)


@pytest.mark.on_torch
def test_lora_starts_from_the_same_outputs():
    backbone = Backbone(SMALL)
    random_weights(backbone)
    before = sequence_output(backbone)
    backbone.enable_lora(4, lora_alpha=8)
    np.testing.assert_allclose(sequence_output(backbone), before, atol=1e-6)


def test_lora_training_changes_only_lora_weights():
    backbone = make_lora_backbone()
    before = {v.path: v.numpy().copy() for v in backbone.weights}
    losses = train(backbone)
    assert losses[-1] < losses[0]
    changed = {v.path for v in backbone.weights if (v.numpy() != before[v.path]).any()}
    assert changed == {v.path for v in backbone.trainable_variables}


@pytest.mark.on_torch
def test_head_trains_with_lora():
    backbone = make_lora_backbone()
    inputs = token_inputs()
    logits = ClassificationHead(2, name="classifier")(backbone(inputs)["pooled_output"])
    model = keras.Model(inputs, logits)
    assert {v.path.split("/")[-1] for v in model.trainable_variables} == {
        "lora_kernel_a", "lora_kernel_b", "kernel", "bias"
    }  # fmt: skip
    assert len(model.trainable_variables) == 6


def test_lora_alpha_scales_the_update():
    outputs = {}
    for alpha in (None, 2, 4):
        backbone = make_lora_backbone(rank=2, lora_alpha=alpha)
        for variable in backbone.trainable_variables:
            variable.assign(np.full(variable.shape, 0.05))
        outputs[alpha] = sequence_output(backbone)
    np.testing.assert_array_equal(outputs[None], outputs[2])
    assert abs(outputs[4] - outputs[2]).max() > 1e-3


@pytest.mark.on_torch
def test_plain_encoder_loads_merged_lora_weights(tmp_path):
    backbone = make_lora_backbone()
    train(backbone)
    backbone.save_weights(tmp_path / "encoder.weights.h5")
    plain = Backbone(WITHOUT_DROPOUT)
    plain.load_weights(tmp_path / "encoder.weights.h5")
    np.testing.assert_allclose(sequence_output(plain), sequence_output(backbone), atol=1e-5)


@pytest.mark.on_torch
def test_lora_learns_after_loading_plain_weights(tmp_path):
    plain = Backbone(WITHOUT_DROPOUT)
    plain.save_weights(tmp_path / "encoder.weights.h5")
    backbone = make_lora_backbone()
    backbone.load_weights(tmp_path / "encoder.weights.h5")
    np.testing.assert_allclose(sequence_output(backbone), sequence_output(plain), atol=1e-6)
    # The product of A and B has gradients because A is not 0.
    assert [v.numpy().any() for v in backbone.trainable_variables] == [True, False] * 2


@pytest.fixture(scope="module")
def quantized() -> tuple[Backbone, np.ndarray]:
    backbone = Backbone(SMALL)
    random_weights(backbone, stddev=0.1)
    before = sequence_output(backbone)
    with pytest.warns(UserWarning, match="does not have a `quantize` method"):
        backbone.quantize("int8")
    return backbone, before


def test_int8_quantizes_all_kernels(quantized):
    backbone, before = quantized
    # Four kernels per block, and the pooler's kernel
    kernels = [v for v in backbone.weights if v.name == "kernel"]
    assert len(kernels) == 2 * 4 + 1
    assert {v.dtype for v in kernels} == {"int8"}
    assert abs(sequence_output(backbone) - before).max() < 0.1


def make_static_int8_backbone(config=SMALL) -> tuple[Backbone, np.ndarray]:
    backbone = Backbone(config)
    random_weights(backbone, stddev=0.1)
    before = sequence_output(backbone)
    backbone.quantize("int8", calibration=features())
    return backbone, before


def test_static_int8_is_close_and_can_be_loaded(tmp_path):
    backbone, before = make_static_int8_backbone()
    layer = backbone.blocks[0].feed_forward.intermediate
    assert abs(keras.ops.convert_to_numpy(layer.int8_kernel.kernel)).max() == LARGEST_IN_KERNEL
    after = sequence_output(backbone)
    assert 0 < abs(after - before).max() < 0.1
    backbone.save(tmp_path / "int8.keras")
    loaded = keras.saving.load_model(tmp_path / "int8.keras")
    np.testing.assert_array_equal(sequence_output(loaded), after)
    with pytest.raises(ValueError, match="Enable LoRA before quantization"):
        loaded.enable_lora(2)
    with pytest.raises(ValueError, match="Train before quantization"):
        loaded(features(), training=True)
    with pytest.raises(ValueError, match="which is quantized"):
        loaded.quantize("int8", calibration=features())


@pytest.mark.on_tensorflow
def test_calibration_inside_strategy_scope_raises():
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        backbone = Backbone(SMALL)
        with pytest.raises(ValueError, match=r"be computed outside of `strategy\.scope"):
            backbone.quantize("int8", calibration=features())
    backbone.quantize("int8", calibration=features())
    assert backbone.blocks[0].feed_forward.intermediate.int8_kernel is not None


@pytest.mark.on_torch
def test_unsupported_calibration_raises():
    with pytest.raises(ValueError, match="calibration requires mode='int8'"):
        Backbone(SMALL).quantize("int4", calibration=features())
    gated = dataclasses.replace(SMALL, feed_forward="gated")
    with pytest.raises(ValueError, match="a GatedFeedForward"):
        make_static_int8_backbone(gated)
    with pytest.raises(ValueError, match="has a LoRA update"):
        make_lora_backbone().quantize("int8", calibration=features())

# SPDX-License-Identifier: Apache-2.0
"""Saved and reloaded models continue training with the same results."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_bert.optimizers import (
    LAMB,
    AdamW,
    AdamWeightDecay,
    ElectraWarmupDecay,
    PhasedSchedule,
    StableAdamW,
    TrapezoidalWarmupDecay,
)
from tests.optimizers.small_model import LABELS, TOKENS, fit, get_weights, small_model

OPTIMIZERS = {
    "AdamW": lambda: AdamW(1e-2, 20, 4, layer_decay=0.8, num_layers=1),
    "AdamWeightDecay": lambda: AdamWeightDecay(1e-2, 20, 4, gradient_accumulation_steps=2),
    "LAMB": lambda: LAMB(ElectraWarmupDecay(1e-2, 20, 4), global_clipnorm=None),
    "StableAdamW": lambda: StableAdamW(
        PhasedSchedule(TrapezoidalWarmupDecay(1e-2, 20, 2), [0, 5], [1.0, 0.5]),
        layer_decay=0.8,
        num_layers=1,
    ),
}
# Accumulated gradients, and the state of two schedules
ON_EACH_BACKEND = "AdamWeightDecay", "StableAdamW"

DECAYED = {"kernel", "embeddings", "position_embeddings", "biases_of_people"}


def get_state(optimizer: keras.optimizers.Optimizer) -> list[np.ndarray]:
    return [ops.convert_to_numpy(variable.value) for variable in optimizer.variables]


def train_three_steps(model: keras.Model) -> None:
    for first in (0, 4, 8):
        model.train_on_batch(TOKENS[first : first + 4], LABELS[first : first + 4])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ON_EACH_BACKEND else pytest.mark.on_torch)
        for name in OPTIMIZERS
    ],
)
def test_reloaded_model_continues_training(name, tmp_path):
    model = small_model(OPTIMIZERS[name]())
    fit(model)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    assert reloaded.optimizer.get_config() == model.optimizer.get_config()
    for a, b in zip(get_state(model.optimizer), get_state(reloaded.optimizer), strict=True):
        np.testing.assert_array_equal(a, b)
    train_three_steps(model)
    train_three_steps(reloaded)
    assert int(reloaded.optimizer._iterations) == 7
    for a, b in zip(get_weights(model), get_weights(reloaded), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(get_state(model.optimizer), get_state(reloaded.optimizer), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.on_torch
@pytest.mark.parametrize("optimizer", [AdamW, AdamWeightDecay, LAMB, StableAdamW])
def test_reloaded_optimizer_excludes_norms_and_biases(optimizer, tmp_path):
    model = small_model(optimizer(1e-2, weight_decay=0.5))
    fit(model)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    fresh = optimizer.from_config(reloaded.optimizer.get_config())
    variables = [
        keras.Variable(np.ones(2, "float32"), name=name)
        for name in (*DECAYED, "bias", "gamma", "beta", "output_bias")
    ]
    fresh.apply([ops.zeros(2) for _ in variables], variables)
    changed = {v.name for v in variables if ops.convert_to_numpy(v.value)[0] != 1}
    assert changed == DECAYED


@pytest.mark.on_torch
def test_reloaded_model_keeps_decay_exclusions(tmp_path):
    model = small_model(AdamW(1e-2, exclude_from_weight_decay=("embeddings",)))
    fit(model)
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    decayed = {
        variable.path
        for variable in reloaded.trainable_variables
        if reloaded.optimizer.decays(variable)
    }
    assert "token_embedding/embeddings" not in decayed
    assert len(decayed) == len(reloaded.trainable_variables) - 1

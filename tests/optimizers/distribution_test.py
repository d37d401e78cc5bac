# SPDX-License-Identifier: Apache-2.0
"""Compiled steps match plain steps, and two devices match one."""

import subprocess
import sys

import numpy as np
import pytest

from keras_bert.optimizers import LAMB, StableAdamW
from tests.optimizers.small_model import fit, get_weights, small_model
from tests.source_imports import ROOT

# JAX always compiles. tests/parallel_test.py trains JAX on two devices.
pytestmark = [pytest.mark.on_tensorflow, pytest.mark.slow]

# Devices must be configured before any computation, so this is a separate process. Its strong
# clipping detects a norm that is computed only over each device's rows.
PROGRAM = """
import tensorflow as tf
cpu, two = tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
import numpy as np
from keras_bert import optimizers
from keras_bert.optimizers.fit_updates import apply_accumulated
from tests.optimizers.small_model import fit, small_model, get_weights

def train(strategy):
    with strategy.scope():
        options = {"gradient_accumulation_steps": 3, "use_ema": True, "global_clipnorm": 0.01}
        model = small_model(optimizers.LAMB(1e-2, 8, 2, **options))
    fit(model)
    # One of the four micro-batches is left.
    apply_accumulated(model.optimizer, model.trainable_variables)
    return get_weights(model)

mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
one = train(tf.distribute.get_strategy())
two = train(mirrored)
print(max(float(np.abs(a - b).max()) for a, b in zip(one, two)) < 1e-6)
"""


def test_two_mirrored_replicas_match_one_device():
    process = subprocess.run(
        (sys.executable, "-c", PROGRAM), cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == ["True"]


@pytest.mark.parametrize(
    ("optimizer", "steps"),
    [(LAMB, 2), pytest.param(StableAdamW, None, marks=pytest.mark.release)],
)
def test_compiled_step_matches_plain_step(optimizer, steps):
    plain, compiled = (
        small_model(
            optimizer(1e-2, 8, 2, gradient_accumulation_steps=steps), jit_compile=jit_compile
        )
        for jit_compile in (False, True)
    )
    fit(plain)
    fit(compiled)
    for a, b in zip(get_weights(plain), get_weights(compiled), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

# SPDX-License-Identifier: Apache-2.0
"""Compiled steps, and two devices that are equivalent to one."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_bert.optimizers import LAMB, AdamW, StableAdamW
from tests.optimizers.small_model import fit, small_model, weights_of
from tests.source_imports import ROOT

pytestmark = pytest.mark.slow
BACKEND = keras.backend.backend()

# The devices must be configured before anything runs, so these are separate processes. Clipping
# is strong in them, to detect a norm computed on each device's share.
TENSORFLOW = """
import tensorflow as tf
cpu, two = tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
import numpy as np
from keras_bert import optimizers
from keras_bert.optimizers.fit_updates import apply_accumulated
from tests.optimizers.small_model import fit, small_model, weights_of

def train(strategy, optimizer, **arguments):
    with strategy.scope():
        model = small_model(optimizer(1e-2, 8, 2, global_clipnorm=0.01, **arguments))
    fit(model)
    # Of the 4 micro-batches, the last of three is left
    apply_accumulated(model.optimizer, model.trainable_variables)
    return weights_of(model)

mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for optimizer, arguments in (
    (optimizers.AdamW, {"gradient_accumulation_steps": 3, "use_ema": True}),
    (optimizers.LAMB, {"gradient_accumulation_steps": 2}),
    (optimizers.StableAdamW, {}),
):
    one = train(tf.distribute.get_strategy(), optimizer, **arguments)
    two = train(mirrored, optimizer, **arguments)
    print(max(float(np.abs(a - b).max()) for a, b in zip(one, two)) < 1e-6)
"""

JAX = """
import keras, numpy as np
from keras_bert import optimizers
from tests.optimizers.small_model import fit, small_model, weights_of

def train(optimizer, **arguments):
    model = small_model(optimizer(1e-2, 8, 2, global_clipnorm=0.01, **arguments))
    fit(model)
    return weights_of(model)

cases = [
    (optimizers.AdamW, {}),
    (optimizers.LAMB, {"gradient_accumulation_steps": 2}),
    (optimizers.StableAdamW, {}),
]
one = [train(optimizer, **arguments) for optimizer, arguments in cases]
keras.distribution.set_distribution(keras.distribution.DataParallel())
print(len(keras.distribution.list_devices()))
for alone, (optimizer, arguments) in zip(one, cases):
    two = train(optimizer, **arguments)
    print(max(float(np.abs(a - b).max()) for a, b in zip(alone, two)) < 1e-6)
"""


def printed_by(program: str, **environment: str) -> list[str]:
    """The lines a program prints in a Python of its own."""
    finished = subprocess.run(
        (sys.executable, "-c", program),
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.split()


@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute")
def test_two_mirrored_replicas_train_as_one_device():
    assert printed_by(TENSORFLOW) == ["True"] * 3


@pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution")
def test_two_jax_devices_train_as_one():
    assert printed_by(JAX, JAX_NUM_CPU_DEVICES="2") == ["2", "True", "True", "True"]


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX always compiles, PyTorch has no XLA")
@pytest.mark.parametrize(("optimizer", "steps"), [(AdamW, 2), (LAMB, None), (StableAdamW, None)])
def test_a_step_compiled_as_a_whole_is_the_same_step(optimizer, steps):
    plain, compiled = (
        small_model(
            optimizer(1e-2, 8, 2, gradient_accumulation_steps=steps), jit_compile=jit_compile
        )
        for jit_compile in (False, True)
    )
    fit(plain)
    fit(compiled)
    for a, b in zip(weights_of(plain), weights_of(compiled), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

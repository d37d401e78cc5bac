# SPDX-License-Identifier: Apache-2.0
"""Training on two devices gives what one device gives.

A process has its number of devices from the start, so each run is a process of its own: two
virtual CPUs, on which the same classifier is trained twice, on one device and on both.
"""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.source_imports import ROOT

TRAINING = """
import contextlib, json
import keras
import numpy as np
import keras_bert

CONFIG = keras_bert.BertConfig(
    vocabulary_size=50, num_layers=1, num_heads=2, hidden_dim=16, intermediate_dim=32,
    max_sequence_length=12, dropout=0.0, attention_dropout=0.0,
)
random = np.random.default_rng(0)
lengths = random.integers(3, 9, (16, 1))
# Integers: Keras averages a batch over the replicas of TensorFlow, which cannot be done with bools
mask = (np.arange(8) < lengths).astype("int32")
FEATURES = {"token_ids": random.integers(1, 50, (16, 8)) * mask, "padding_mask": mask}
LABELS = random.integers(0, 2, 16)

def train(scope, sample_weight=None):
    keras.utils.set_random_seed(0)
    with scope:
        classifier = keras_bert.TextClassifier(keras_bert.Backbone(CONFIG), num_classes=2)
        optimizer = keras_bert.optimizers.AdamW(
            1e-3, num_train_steps=20, num_warmup_steps=2, global_clipnorm=1.0
        )
        classifier.compile(optimizer)
    history = classifier.fit(
        FEATURES, LABELS, sample_weight=sample_weight,
        batch_size=8, epochs=3, shuffle=False, verbose=0,
    )
    logits = classifier.predict(FEATURES, batch_size=8, verbose=0)
    return {"loss": history.history["loss"], "logits": logits.tolist()}
"""

# The loss is divided by the weights of the whole batch, even if the rows without weight, which
# only fill the last batch up, all lie on the second device.
JAX = """
import jax
weights = (random.uniform(0.1, 3.0, 16) * (np.arange(16) < 13)).astype("float32")
single = train(contextlib.nullcontext(), weights)
keras.distribution.set_distribution(keras.distribution.DataParallel())
double = train(contextlib.nullcontext(), weights)
print(json.dumps({"devices": len(jax.devices()), "single": single, "double": double}))
"""

# Here Keras takes the mean over the replicas of each one's weighted mean: rows of equal weight.
TENSORFLOW = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
single, double = train(contextlib.nullcontext()), train(strategy.scope())
devices = strategy.num_replicas_in_sync
print(json.dumps({"devices": devices, "single": single, "double": double}))
"""

BACKEND = keras.backend.backend()
PROGRAMS = {"jax": JAX, "tensorflow": TENSORFLOW}

pytestmark = pytest.mark.skipif(
    BACKEND not in PROGRAMS, reason="Keras distributes on JAX and TensorFlow"
)


def test_two_devices_train_as_one():
    finished = subprocess.run(
        [sys.executable, "-c", TRAINING + PROGRAMS[BACKEND]],
        cwd=ROOT,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2 "
            "--xla_backend_optimization_level=0",
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    run = json.loads(finished.stdout.splitlines()[-1])
    assert run["devices"] == 2
    assert run["single"]["loss"][-1] < run["single"]["loss"][0]
    np.testing.assert_allclose(run["double"]["loss"], run["single"]["loss"], rtol=1e-5)
    np.testing.assert_allclose(run["double"]["logits"], run["single"]["logits"], atol=1e-5)

# SPDX-License-Identifier: Apache-2.0
"""Saves and restores checkpoints with an optimizer state sharded across two devices.

JAX fixes the number of devices when a process starts. A separate process therefore writes the
checkpoints, and this process reads them on one device. `pretrain_on_hosts_test.py` checks the
checkpoints that multiple processes write.
"""

import json
import os
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.source_imports import ROOT
from training.engine.run_checkpoints import RunCheckpoints, RunState, model_tensors

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="only JAX divides state")

PROGRAM = """
import contextlib, json, pathlib, resource, sys, time
import keras, numpy as np
from keras_bert.optimizers import AdamW
from tests.training.engine.sharded_tensors_test import (
    build, state, moment_shard_shapes, save_expected, train
)
from tests.training.engine.seed_runs_test import Killed, assert_same, train as fine_tune
from training.engine.run_checkpoints import DiskFullError, NotFiniteError, RunCheckpoints

directory = pathlib.Path(sys.argv[1])

def names(directory):
    return sorted(path.name for path in directory.iterdir())

devices = keras.distribution.list_devices()
keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
report = {"devices": len(devices)}
model, checkpoints = build(shard=True), RunCheckpoints(directory / "checkpoints", keep=2)
report["shards before"] = moment_shard_shapes(model)
for step in (1, 2, 3):
    train(model)
    checkpoints.save(model, state(step))
    if step == 2:
        save_expected(model, directory / "step_2.npz")
save_expected(model, directory / "step_3.npz")
train(model)  # while the last checkpoint is being written
checkpoints.wait()
report["names"] = names(directory / "checkpoints")

other = build(shard=True, seed=1)
report["restored"] = checkpoints.restore(other).step
report["shards after"] = moment_shard_shapes(other)

model.layers[-1].bias.assign(np.full(1024, np.nan))
try:
    checkpoints.save(model, state(4))
except NotFiniteError as error:
    report["not finite"] = str(error)
checkpoints.restore(model)
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
# A limit on file sizes raises the same error as a full disk, in the middle of a file.
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
checkpoints.save(model, state(4))
while len(names(directory / "checkpoints")) > 2:  # until the partial checkpoint is removed
    time.sleep(0.05)
# The next save also fails, and raises the error.
try:
    checkpoints.save(model, state(5))
except DiskFullError as error:
    report["full"] = str(error)
report["names after errors"] = names(directory / "checkpoints")
full_checkpoints = RunCheckpoints(directory / "full")
full_checkpoints.save(model, state(4))
while names(directory / "full"):
    time.sleep(0.05)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
full_checkpoints.save(model, state(5))
report["names with space again"] = names(directory / "full")

try:
    with full_checkpoints:
        full_checkpoints.save(model, state(6))
        raise RuntimeError("another error")
except RuntimeError:
    report["names after another error"] = names(directory / "full")

# A checkpoint in the middle of a fine-tuning epoch also includes the state of the metrics.
def optimizer():
    return AdamW(0.1, num_train_steps=6, gradient_accumulation_steps=3, shard_state=True)

uninterrupted = fine_tune(directory / "fine_tuned", seconds=1e9, optimizer=optimizer())
report["fine-tuning"] = []
with contextlib.redirect_stdout(sys.stderr):
    for killed_at in (3, 5):
        with contextlib.suppress(Killed):
            fine_tune(directory / "killed", killed_at=killed_at, optimizer=optimizer())
        report["fine-tuning"] += [
            path.parent.name for path in sorted(directory.glob("killed/checkpoints/*/tensors"))
        ]
    assert_same(fine_tune(directory / "killed", optimizer=optimizer()), uninterrupted)

# A checkpoint that was written without sharding is restored into shards.
whole = RunCheckpoints(directory / "whole")
keras.distribution.set_distribution(None)
single = build(seed=2)
train(single)
whole.save(single, state(7))
save_expected(single, directory / "whole.npz")
keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
whole.restore(other)
report["shards of whole"] = moment_shard_shapes(other)
save_expected(other, directory / "whole_read.npz")
print(json.dumps(report))
"""


def build(shard=False, seed=0):
    from keras_bert.ops.lazy_tensorflow import set_random_seed
    from keras_bert.optimizers import AdamW

    set_random_seed(seed)  # Keras' own imports TensorFlow.
    layers = [keras.Input((8,)), keras.layers.Dropout(0.5), keras.layers.Dense(1024)]
    model = keras.Sequential(layers)
    model.compile(AdamW(0.01, shard_state=shard), "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def train(model):
    x = np.arange(8 * 8, dtype="float32").reshape(8, 8) / 64
    model.fit(x, np.ones((8, 1024)), batch_size=8, verbose=0)


def state(step):
    return RunState(step, "jax", "abc", [], 1.5)


def moment_shard_shapes(model):
    moment = max(model.optimizer.variables, key=lambda variable: np.prod(variable.shape))
    return [part.data.shape for part in moment.value.addressable_shards]


def save_expected(model, path):
    np.savez(path, **model_tensors(model))


def assert_same(model, path):
    expected = np.load(path)
    tensors = model_tensors(model)
    assert sorted(tensors) == sorted(expected)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, expected[name], err_msg=name)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    directory = tmp_path_factory.mktemp("divided")
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory)],
        cwd=ROOT,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    return directory, json.loads(finished.stdout.splitlines()[-1])


def test_shards_restore_on_one_device(run):
    directory, report = run
    assert report["devices"] == 2
    assert report["names"] == ["step_000000002", "step_000000003"]
    model = build(seed=1)
    assert RunCheckpoints(directory / "checkpoints").restore(model) == state(3)
    assert_same(model, directory / "step_3.npz")


def test_each_device_restores_its_shard(run):
    directory, report = run
    assert report["shards before"] == report["shards after"] == [[4, 1024], [4, 1024]]
    assert report["restored"] == 3
    # Also from a checkpoint without shards.
    assert report["shards of whole"] == [[4, 1024], [4, 1024]]
    expected, actual = (np.load(directory / name) for name in ("whole.npz", "whole_read.npz"))
    for name in expected:
        np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)


def test_failed_checkpoint_is_removed(run):
    _, report = run
    assert re.fullmatch(r"after step 4, model\.\d+\.bias is not finite", report["not finite"])
    assert "not enough disk space for the checkpoint of step 5" in report["full"]
    assert "step_000000003 is kept" in report["full"]
    assert report["names after errors"] == report["names"]
    assert report["names with space again"] == ["step_000000005"]


def test_last_checkpoint_survives_error(run):
    _, report = run
    assert report["names after another error"] == ["step_000000005", "step_000000006"]


def test_fine_tuning_resumes_from_shards(run):
    _, report = run
    steps = [f"step_{step:09}" for step in (2, 3, 6, 7)]
    assert report["fine-tuning"] == steps


def test_damaged_shards_fall_back_to_previous(run):
    directory, _ = run
    checkpoints = RunCheckpoints(directory / "checkpoints")
    checkpoint = checkpoints.directory / "step_000000003"
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    assert len(files) > 5
    model = build(seed=1)
    for path in files:
        content = path.read_bytes()
        path.unlink()
        assert checkpoints.restore(model) == state(2), path
        changed = bytearray(content)
        changed[len(content) // 2] ^= 4
        path.write_bytes(changed)
        assert checkpoints.restore(model) == state(2), path
        path.write_bytes(content)
    assert_same(model, directory / "step_2.npz")
    assert checkpoints.restore(model) == state(3)

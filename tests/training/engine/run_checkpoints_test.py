# SPDX-License-Identifier: Apache-2.0

import platform
import resource
from pathlib import Path

import keras
import numpy as np
import pytest

from training.engine.run_checkpoints import (
    DiskFullError,
    NotFiniteError,
    RunCheckpoints,
    RunState,
    model_tensors,
    seed_dropout,
)

pytestmark = pytest.mark.on_torch


def build(seed=0, units=3):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dropout(0.5), keras.layers.Dense(units)]
    )
    model.compile("adam", "mse")
    model.optimizer.build(model.trainable_variables)
    return model


def train(model, steps=3, seed=0):
    x = np.arange(8 * 4, dtype="float32").reshape(8, 4) / 32
    y = np.ones((8, model.output_shape[-1]))
    reseed = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: seed_dropout(seed, batch)
    )
    model.fit(x, y, epochs=steps, shuffle=False, verbose=0, callbacks=[reseed])


def make_state(step):
    return RunState(step, keras.backend.backend(), "abc", [{"step": step, "loss": 0.5}], 1.5)


def file_names(directory: Path):
    return sorted(path.name for path in directory.iterdir())


def assert_same(model, other):
    expected = model_tensors(other)
    for name, tensor in model_tensors(model).items():
        np.testing.assert_array_equal(tensor, expected[name], err_msg=name)


@pytest.mark.on_each_backend
def test_restored_model_trains_to_the_same_weights(tmp_path):
    model, other = build(), build(seed=1)
    checkpoints = RunCheckpoints(tmp_path / "checkpoints")
    assert checkpoints.restore(other) is None
    train(model)
    checkpoints.save(model, make_state(3))
    assert checkpoints.restore(other) == make_state(3)
    assert_same(other, model)
    # Dropout's generator and the optimizer's moments are also restored.
    train(model, seed=5)
    train(other, seed=5)
    assert_same(other, model)


def test_last_checkpoints_are_kept(tmp_path):
    model, checkpoints = build(), RunCheckpoints(tmp_path, keep=2)
    for step in (9, 10, 100):
        checkpoints.save(model, make_state(step))
    assert file_names(tmp_path) == ["step_000000010", "step_000000100"]


@pytest.mark.parametrize(
    ("file", "damage"),
    [("tensors.safetensors", "changed"), ("state.json", "truncated"), ("state.json", "missing")],
)
def test_corrupted_checkpoint_falls_back_to_previous(tmp_path, file, damage):
    model, checkpoints = build(), RunCheckpoints(tmp_path)
    checkpoints.save(model, make_state(1))
    expected = model_tensors(model)
    train(model)
    checkpoints.save(model, make_state(2))
    path = tmp_path / "step_000000002" / file
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        content[-5] ^= 1
        path.write_bytes(content)
    assert checkpoints.restore(model) == make_state(1)
    for name, tensor in model_tensors(model).items():
        np.testing.assert_array_equal(tensor, expected[name])
    # Step 2, repeated, replaces the corrupted checkpoint.
    checkpoints.save(model, make_state(2))
    assert checkpoints.restore(model) == make_state(2)


def test_partial_directory_is_ignored(tmp_path):
    checkpoints = RunCheckpoints(tmp_path)
    partial = tmp_path / ".step_000000007.x.partial"
    (partial / "step_000000007").mkdir(parents=True)
    (partial / "step_000000007" / "state.json").write_text("{}")
    (partial / ".process").write_text(platform.node())  # No process locks it.
    assert checkpoints.restore(build()) is None
    checkpoints.save(build(), make_state(1))
    assert file_names(tmp_path) == ["step_000000001"]


def test_restore_raises_if_all_are_corrupted(tmp_path):
    checkpoints = RunCheckpoints(tmp_path)
    checkpoints.save(build(), make_state(1))
    (tmp_path / "step_000000001" / "state.json").write_text("")
    with pytest.raises(ValueError, match=r"every checkpoint in .* is corrupted"):
        checkpoints.restore(build())


def test_restore_rejects_a_different_model(tmp_path):
    checkpoints = RunCheckpoints(tmp_path)
    checkpoints.save(build(), make_state(1))
    with pytest.raises(ValueError, match=r"must have shape \(4, 5\)\. Received: \(4, 3\)"):
        checkpoints.restore(build(units=5))


def test_non_finite_weights_are_not_saved(tmp_path):
    model, checkpoints = build(), RunCheckpoints(tmp_path)
    checkpoints.save(model, make_state(1))
    model.layers[-1].bias.assign([1.0, np.nan, 0.0])
    with pytest.raises(NotFiniteError, match=r"after step 2, model\.\d+\.bias is not finite"):
        checkpoints.save(model, make_state(2))
    assert file_names(tmp_path) == ["step_000000001"]


def test_full_disk_keeps_the_last_checkpoint(tmp_path):
    model, checkpoints = build(units=3000), RunCheckpoints(tmp_path)
    checkpoints.save(model, make_state(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on file sizes raises the same kind of error as a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(DiskFullError, match=r"not enough .* step 2 .*step_000000001 is kept"):
            checkpoints.save(model, make_state(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file_names(tmp_path) == ["step_000000001"]
    assert checkpoints.restore(model) == make_state(1)


@pytest.mark.on_each_backend
def test_bfloat16_weights_round_trip(tmp_path):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, dtype="bfloat16")])
    model.compile("sgd", "mse")
    model.optimizer.build(model.trainable_variables)
    expected = model_tensors(model)
    checkpoints = RunCheckpoints(tmp_path)
    checkpoints.save(model, make_state(1))
    model.layers[0].kernel.assign(np.zeros((4, 3)))
    checkpoints.restore(model)
    for name, tensor in model_tensors(model).items():
        np.testing.assert_array_equal(tensor, expected[name])
